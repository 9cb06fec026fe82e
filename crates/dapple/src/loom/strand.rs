//! Models of what was started in a scope, as its wakers see it, and of a scope that rests.
//!
//! The scope's side, which is in `scope`, is copied here in as few words as will do; the rest is the real code.

use std::ptr::NonNull;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};

use loom::model;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread::{JoinHandle, spawn};

use super::{Plain, sleeper};
use crate::lane::inbox::Node;
use crate::prim::{Ordering, Parker};
use crate::task::here::{Watched, dealloc, here};
use crate::task::reach::Reach;
use crate::task::strand::{Ptr, Strand};

/// A waker, and the strand behind it, whose memory is watched.
struct Remote(Waker, Ptr);

// SAFETY: the waker may be anywhere, and it keeps the strand in memory.
unsafe impl Send for Remote {}

impl Remote {
    fn new(cx: &Context<'_>, strand: Ptr) -> Remote {
        Remote(cx.waker().clone(), strand)
    }

    /// The waker, after it has been seen that the strand is in memory.
    fn waker(self) -> Waker {
        // SAFETY: the waker has a reference.
        unsafe { Watched::touch(self.1) };
        self.0
    }
}

/// A scope with one strand, and who polls it.
struct Scope {
    reach: Arc<Reach>,
    strand: Ptr,
    /// The strand has left the scope.
    left: bool,
    parker: Arc<Parker>,
    waker: Waker,
}

impl Scope {
    fn new() -> Scope {
        let reach = Reach::new();
        let strand = Watched::new_strand(&reach);
        let (parker, waker) = sleeper();
        Scope { reach, strand, left: false, parker, waker }
    }

    /// `Children::start` and `Children::poll_next`: `true`, the strand is done.
    fn poll(&mut self, in_line: bool, poll: impl FnOnce(&mut Context<'_>, Ptr) -> bool) {
        assert!(!self.left, "it is polled until it is done");
        // SAFETY: it is in memory while it belongs to the scope.
        unsafe { Watched::touch(self.strand) };
        // SAFETY: it belongs to the scope, which is polled here.
        let (done, after) =
            here(|here| unsafe { Strand::poll(self.strand, here, in_line, |cx| poll(cx, self.strand)) });
        assert!(!after.woken, "nothing wakes itself in these models");
        if done {
            self.leave();
        }
    }

    /// `Children::leave`
    fn leave(&mut self) {
        self.left = true;
        // SAFETY: it belongs to this scope, and does not from now on.
        if unsafe { Strand::leave(self.strand, &self.reach) } {
            // SAFETY: as above.
            let layout = unsafe { self.strand.as_ref() }.layout();
            // SAFETY: it is ours alone.
            unsafe { dealloc(self.strand.as_ptr().cast(), layout) };
        }
    }

    /// The next that is to be polled: it can only be the strand, and that once.
    fn next_ready(&self) -> Option<Ptr> {
        let list = self.reach.inbox.pull()?;
        assert_eq!((list.first, list.last), (self.strand, self.strand));
        // SAFETY: what is in line is in memory.
        assert_eq!(NonNull::new(unsafe { list.first.as_ref() }.link()), None);
        Some(list.first)
    }

    /// What comes after `poll_next` in `run`: `is_done` is looked at again when the waker is left.
    fn rest(&self, is_done: impl FnOnce(&Scope) -> bool) {
        self.reach.leave_waker(&self.waker);
        if !is_done(self) && self.reach.inbox.release() {
            self.parker.park(None);
        }
    }

    /// Polls the strand whenever it is woken, until it is done.
    fn run(&mut self, mut poll: impl FnMut() -> bool) {
        while !self.left {
            match self.next_ready() {
                Some(strand) => {
                    // SAFETY: what is in line is in memory.
                    unsafe { strand.as_ref() }.leave_line();
                    self.poll(true, |_, _| poll());
                }
                None => self.rest(|_| false),
            }
        }
    }

    /// `Children::end`, and the end of the scope's own reference to its reach.
    fn end(mut self) -> Weak<Reach> {
        if !self.left {
            self.leave();
        }
        loop {
            while let Some(strand) = self.next_ready() {
                // SAFETY: the line's reference is ours.
                unsafe { Strand::drop_ref(strand) };
            }
            if self.reach.inbox.release() && self.reach.inbox.close() {
                return Arc::downgrade(&self.reach);
            }
        }
    }
}

/// That loom finds no memory in use is its own business; the reach is not loom's.
fn assert_gone(reach: &Weak<Reach>) {
    assert_eq!(reach.strong_count(), 0);
}

/// A strand is polled, and `wakes` on another thread, in the middle of that, after an event; the scope rests, and
/// polls it until it has seen all events.
fn sees_all(wakes: &[fn(Waker)]) {
    let mut scope = Scope::new();
    let events = Arc::new(AtomicUsize::new(0));
    let mut threads = Vec::new();
    scope.poll(false, |cx, strand| {
        threads.extend(wakes.iter().map(|&wake| {
            let (events, remote) = (events.clone(), Remote::new(cx, strand));
            spawn(move || {
                let waker = remote.waker();
                events.fetch_add(1, Relaxed);
                wake(waker);
            })
        }));
        false
    });
    let mut polls = 0;
    scope.run(|| {
        polls += 1;
        events.load(Relaxed) == wakes.len()
    });
    assert!(polls <= wakes.len());
    let reach = scope.end();
    threads.into_iter().for_each(|thread: JoinHandle<()>| thread.join().unwrap());
    assert_gone(&reach);
}

fn by_reference(waker: Waker) {
    waker.wake_by_ref();
}

#[test]
fn a_wake_up_of_a_scope_that_goes_to_rest_is_not_lost() {
    model(|| sees_all(&[Waker::wake]));
}

#[test]
fn a_wake_up_by_reference_is_not_lost() {
    model(|| sees_all(&[by_reference]));
}

#[test]
fn of_two_wakers_one_puts_a_strand_in_line() {
    model(|| sees_all(&[Waker::wake, by_reference]));
}

#[test]
fn a_strand_that_is_woken_when_it_is_done_is_freed_once() {
    for wake in [Waker::wake, by_reference, drop] {
        model(move || {
            let mut scope = Scope::new();
            let mut thread = None;
            scope.poll(false, |cx, strand| {
                let remote = Remote::new(cx, strand);
                thread = Some(spawn(move || wake(remote.waker())));
                true
            });
            let reach = scope.end();
            thread.unwrap().join().unwrap();
            assert_gone(&reach);
        });
    }
}

#[test]
fn a_scope_that_is_dropped_while_it_is_woken_is_freed_once() {
    for wake in [Waker::wake, by_reference] {
        model(move || {
            let mut scope = Scope::new();
            let mut thread = None;
            scope.poll(false, |cx, strand| {
                let remote = Remote::new(cx, strand);
                thread = Some(spawn(move || wake(remote.waker())));
                false
            });
            // It was `Pending`, and somebody drops it.
            scope.reach.leave_waker(&scope.waker);
            scope.reach.inbox.release();
            let reach = scope.end();
            thread.unwrap().join().unwrap();
            assert_gone(&reach);
        });
    }
}

#[test]
fn references_that_a_poll_has_not_counted_keep_the_memory() {
    model(|| {
        let mut scope = Scope::new();
        let mut threads = Vec::new();
        let mut kept = None;
        scope.poll(false, |cx, strand| {
            threads.extend([Waker::wake, drop].map(|use_up: fn(Waker)| {
                let remote = Remote::new(cx, strand);
                spawn(move || use_up(remote.waker()))
            }));
            drop(cx.waker().clone());
            kept = Some(Remote::new(cx, strand));
            false
        });
        scope.leave();
        drop(kept.unwrap().waker());
        let reach = scope.end();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_gone(&reach);
    });
}

#[test]
fn a_scope_does_not_sleep_through_a_cancel() {
    model(|| {
        let scope = Scope::new();
        let reach = scope.reach.clone();
        let thread = spawn(move || assert!(reach.cancel()));
        while !scope.reach.is_cancelled() {
            assert_eq!(scope.next_ready(), None);
            scope.rest(|scope| scope.reach.is_cancelled()); // `is_to_announce`
        }
        thread.join().unwrap();
        assert_gone(&scope.end());
    });
}

#[test]
fn of_two_cancels_one_is_the_first_and_none_is_slept_through() {
    model(|| {
        let scope = Scope::new();
        let threads = [(); 2].map(|()| {
            let reach = scope.reach.clone();
            spawn(move || reach.cancel())
        });
        while !scope.reach.is_cancelled() {
            assert_eq!(scope.next_ready(), None);
            scope.rest(|scope| scope.reach.is_cancelled());
        }
        let firsts = threads.into_iter().map(|thread| thread.join().unwrap());
        assert_eq!(firsts.filter(|first| *first).count(), 1);
        assert_gone(&scope.end());
    });
}

#[test]
fn a_scope_waits_for_what_was_spawned_and_sees_what_it_did() {
    model(|| {
        let scope = Scope::new();
        let result = Arc::new(Plain::new(0));
        scope.reach.spawned.fetch_add(2, Ordering::Relaxed);
        let task = spawn({
            let (reach, result) = (scope.reach.clone(), result.clone());
            move || {
                result.write(7);
                reach.task_ended();
            }
        });
        scope.reach.task_ended(); // the other one
        let have_ended = |scope: &Scope| scope.reach.spawned.load(Ordering::Acquire) == 0; // `Children::have_ended`
        while !have_ended(&scope) {
            assert_eq!(scope.next_ready(), None);
            scope.rest(have_ended);
        }
        assert_eq!(result.read(), 7);
        task.join().unwrap();
        assert_gone(&scope.end());
    });
}
