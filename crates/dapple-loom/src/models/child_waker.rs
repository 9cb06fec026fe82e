//! Models of started children from the view of their wakers, and of a scope that waits.
//!
//! The scope's side, which is in `scope`, is copied here in a short form; the rest is the real code.

use std::ptr::NonNull;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};

use loom::model;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread::{JoinHandle, spawn};

use super::{Plain, sleeper};
use crate::cancel::child_waker::{ChildPtr, ChildWaker};
use crate::cancel::frame::CancelFrame;
use crate::cancel::scope::CancelScope;
use crate::child_memory::{Watched, dealloc};
use crate::context::with_context;
use crate::prim::{Ordering, Parker};
use crate::task::state::Snapshot;
use crate::task::waker::Behind;

/// A waker, and the `ChildWaker` behind it, in checked memory.
struct Remote(Waker, ChildPtr);

// SAFETY: the waker may be on any thread, and keeps the `ChildWaker` in memory.
unsafe impl Send for Remote {}

impl Remote {
    fn new(cx: &Context<'_>, child: ChildPtr) -> Remote {
        Remote(cx.waker().clone(), child)
    }

    /// Returns the waker, after a check that its `ChildWaker` is in memory.
    fn waker(self) -> Waker {
        // SAFETY: the waker has a reference.
        unsafe { Watched::touch(self.1) };
        self.0
    }
}

/// Poller of a scope.
enum Poller {
    /// A task, with its own waker, and the state of its word before this poll.
    Task(Arc<Behind>, Snapshot),
    /// A foreign poller, with a waker that is not the runtime's.
    Foreign(Arc<Parker>, Waker),
    /// No thread sleeps: the scope is polled as part of another future, with a waker of the runtime.
    Inner(Waker),
}

impl Poller {
    fn task() -> Poller {
        let task = Behind::new();
        let before = task.before_poll();
        Poller::Task(task, before)
    }

    fn foreign() -> Poller {
        let (parker, waker) = sleeper();
        Poller::Foreign(parker, waker)
    }

    /// `Children::polled_with`
    fn polls(&self, cancel_scope: &CancelScope) {
        match self {
            Poller::Task(task, _) => {
                assert!(cancel_scope.polled_with(&task.waker()) || cancel_scope.is_by_waker())
            }
            Poller::Foreign(_, waker) => assert!(!cancel_scope.polled_with(waker)),
            Poller::Inner(waker) => assert!(cancel_scope.polled_with(waker)),
        }
    }
}

const POLLERS: [fn() -> Poller; 2] = [Poller::task, Poller::foreign];

/// A scope with one child, and its poller.
struct Scope {
    cancel_scope: Arc<CancelScope>,
    child: ChildPtr,
    /// The child has left the scope.
    left: bool,
    poller: Poller,
}

impl Scope {
    fn new(poller: Poller) -> Scope {
        let cancel_scope = CancelScope::new();
        let child = Watched::new_child(&cancel_scope);
        poller.polls(&cancel_scope);
        Scope { cancel_scope, child, left: false, poller }
    }

    /// Changes the poller.
    fn goes_to(&mut self, poller: Poller) {
        self.poller = poller;
        self.poller.polls(&self.cancel_scope);
    }

    /// `Children::start` and `Children::poll_next`. `poll` returns `true` if the child is done.
    fn poll(&mut self, in_line: bool, poll: impl FnOnce(&mut Context<'_>, ChildPtr) -> bool) {
        assert!(!self.left, "it is polled until it is done");
        // SAFETY: the child is in memory while it belongs to the scope.
        unsafe { Watched::touch(self.child) };
        let frame = CancelFrame::of(Arc::as_ptr(&self.cancel_scope));
        let child = self.child;
        let (done, after) = with_context(|context| {
            // SAFETY: the child belongs to the scope, which this thread polls.
            frame.around(context, || unsafe {
                ChildWaker::poll(child, context, in_line, |cx| poll(cx, child))
            })
        });
        assert!(!after.woken, "nothing wakes itself in these models");
        if done {
            self.leave();
        }
    }

    /// `Children::leave`
    fn leave(&mut self) {
        self.left = true;
        // SAFETY: the child belongs to this scope until this call.
        if unsafe { ChildWaker::leave(self.child, &self.cancel_scope) } {
            // SAFETY: as above.
            let layout = unsafe { self.child.as_ref() }.layout();
            // SAFETY: no other reference exists.
            unsafe { dealloc(self.child.as_ptr().cast(), layout) };
        }
    }

    /// The next child to be polled: it can only be this one, and only once.
    fn next_ready(&self) -> Option<ChildPtr> {
        let list = self.cancel_scope.ready.pull(self.cancel_scope.is_by_waker())?;
        assert_eq!((list.first, list.last), (self.child, self.child));
        // SAFETY: a queued child is in memory.
        assert_eq!(NonNull::new(unsafe { list.first.as_ref() }.next_child()), None);
        Some(list.first)
    }

    /// The part of `run` after `poll_next`, and the next poll of the scope. `is_done` is checked again after
    /// a waker was stored.
    fn rest(&mut self, is_done: impl FnOnce(&Scope) -> bool) {
        match &self.poller {
            Poller::Task(task, before) => {
                if task.rest(*before) {
                    task.sleep();
                }
                self.poller = Poller::Task(task.clone(), task.before_poll());
            }
            Poller::Foreign(parker, waker) => {
                self.cancel_scope.store_waker(waker);
                if !is_done(self) && self.cancel_scope.ready.is_empty() {
                    parker.park(None);
                }
            }
            Poller::Inner(_) => panic!("the poller of the outer future sleeps"),
        }
    }

    /// Polls the child if it is queued. `true` if it was.
    fn poll_next(&mut self, poll: impl FnOnce() -> bool) -> bool {
        let Some(child) = self.next_ready() else { return false };
        // SAFETY: a queued child is in memory.
        unsafe { child.as_ref() }.note_dequeued();
        self.poll(true, |_, _| poll());
        true
    }

    /// Polls the child whenever it is woken, until it is done.
    fn run(&mut self, mut poll: impl FnMut() -> bool) {
        while !self.left {
            if !self.poll_next(&mut poll) {
                self.rest(|_| false);
            }
        }
    }

    /// `Children::end`, and the end of the scope's own reference to its `CancelScope`.
    fn end(mut self) -> Ended {
        if !self.left {
            self.leave();
        }
        if let Some(list) = self.cancel_scope.ready.close() {
            assert_eq!(list.first, list.last);
            // SAFETY: the queue's reference is ours.
            unsafe { ChildWaker::drop_ref(list.first) };
        }
        Ended(Arc::downgrade(&self.cancel_scope), self.poller)
    }
}

/// A scope that has ended: its `CancelScope`, and its poller.
struct Ended(Weak<CancelScope>, Poller);

impl Ended {
    /// All other threads are done.
    fn assert_gone(self) {
        // Loom checks its own memory for leaks; the `CancelScope` is not loom's.
        assert_eq!(self.0.strong_count(), 0);
        if let Poller::Task(task, _) = self.1 {
            task.end_anyway();
        }
    }
}

/// Polls a child; `wakes` runs on another thread in the middle of that poll, after an event. Then the scope
/// waits, and polls the child until it has seen all events. `then` is called in between.
fn sees_all(poller: Poller, wakes: &[fn(Waker)], then: impl FnOnce(&mut Scope)) {
    let mut scope = Scope::new(poller);
    let events = Arc::new(AtomicUsize::new(0));
    let mut threads = Vec::new();
    scope.poll(false, |cx, child| {
        threads.extend(wakes.iter().map(|&wake| {
            let (events, remote) = (events.clone(), Remote::new(cx, child));
            spawn(move || {
                let waker = remote.waker();
                events.fetch_add(1, Relaxed);
                wake(waker);
            })
        }));
        false
    });
    then(&mut scope);
    let mut polls = 0;
    scope.run(|| {
        polls += 1;
        events.load(Relaxed) == wakes.len()
    });
    assert!(polls <= wakes.len());
    let ended = scope.end();
    threads.into_iter().for_each(|thread: JoinHandle<()>| thread.join().unwrap());
    ended.assert_gone();
}

fn by_reference(waker: Waker) {
    waker.wake_by_ref();
}

#[test]
fn a_wake_up_of_a_scope_that_goes_to_rest_is_not_lost() {
    for poller in POLLERS {
        model(move || sees_all(poller(), &[Waker::wake], |_| ()));
    }
}

#[test]
fn a_wake_up_by_reference_is_not_lost() {
    for poller in POLLERS {
        model(move || sees_all(poller(), &[by_reference], |_| ()));
    }
}

#[test]
fn of_two_wakers_one_queues_the_child() {
    // With a foreign waker, two threads would spin at its lock for longer than loom follows.
    model(|| sees_all(Poller::task(), &[Waker::wake, by_reference], |_| ()));
}

#[test]
fn a_wake_up_of_a_scope_that_goes_to_another_is_not_lost() {
    model(|| {
        let task = Behind::new();
        let before = task.before_poll();
        let first = task.clone();
        sees_all(Poller::Task(task, before), &[Waker::wake], |scope| {
            first.rest(before);
            scope.goes_to(Poller::foreign());
        });
        first.end_anyway();
    });
}

#[test]
fn a_wake_up_of_a_scope_that_goes_to_another_task_is_not_lost() {
    model(|| {
        let task = Behind::new();
        let before = task.before_poll();
        let first = task.clone();
        sees_all(Poller::Task(task, before), &[by_reference], |scope| {
            first.rest(before);
            scope.goes_to(Poller::task());
        });
        first.end_anyway();
    });
}

#[test]
fn wake_ups_of_an_inner_scope_are_not_lost() {
    for poller in POLLERS {
        model(move || {
            let mut outer = Scope::new(poller());
            let event = Arc::new(AtomicUsize::new(0));
            let (mut inner, mut thread) = (None, None);
            outer.poll(false, |cx, _| {
                let mut scope = Scope::new(Poller::Inner(cx.waker().clone()));
                scope.poll(false, |cx, child| {
                    let (event, remote) = (event.clone(), Remote::new(cx, child));
                    thread = Some(spawn(move || {
                        let waker = remote.waker();
                        event.store(1, Relaxed);
                        waker.wake_by_ref();
                        event.store(2, Relaxed);
                        waker.wake();
                    }));
                    false
                });
                inner = Some(scope);
                false
            });
            let mut ended = None;
            outer.run(|| {
                let mut scope = inner.take().unwrap();
                while scope.poll_next(|| event.load(Relaxed) == 2) {
                    if scope.left {
                        ended = Some(scope.end());
                        return true;
                    }
                }
                inner = Some(scope);
                false
            });
            let outer = outer.end();
            thread.unwrap().join().unwrap();
            let Ended(cancel_scope, waker) = ended.unwrap();
            assert_eq!(cancel_scope.strong_count(), 0);
            drop(waker);
            outer.assert_gone();
        });
    }
}

#[test]
fn what_is_put_in_line_while_others_are_taken_is_not_lost() {
    model(|| {
        let mut scope = Scope::new(Poller::task());
        let other = Watched::new_child(&scope.cancel_scope);
        let children = [scope.child, other];
        let threads = children.map(|child| {
            let begin = |cx: &mut Context<'_>| {
                let remote = Remote::new(cx, child);
                spawn(move || remote.waker().wake())
            };
            // SAFETY: the child belongs to the scope, which this thread polls.
            with_context(|context| unsafe { ChildWaker::poll(child, context, false, begin) }).0
        });
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let Some(list) = scope.cancel_scope.ready.pull(false) else {
                scope.rest(|_| false);
                continue;
            };
            let mut next = Some(list.first);
            while let Some(child) = next {
                // SAFETY: a queued child is in memory.
                let this = unsafe { child.as_ref() };
                next = NonNull::new(this.next_child());
                this.note_dequeued();
                // SAFETY: the queue's reference is ours.
                unsafe { ChildWaker::drop_ref(child) };
                seen.push(child);
            }
        }
        assert!(children.iter().all(|child| seen.contains(child)));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // SAFETY: the child belongs to the scope until this call; no other thread knows of it any more.
        assert!(unsafe { ChildWaker::leave(other, &scope.cancel_scope) });
        // SAFETY: no other reference exists.
        let layout = unsafe { other.as_ref() }.layout();
        // SAFETY: as above.
        unsafe { dealloc(other.as_ptr().cast(), layout) };
        scope.end().assert_gone();
    });
}

#[test]
fn a_child_that_is_woken_when_it_is_done_is_freed_once() {
    for wake in [Waker::wake, by_reference, drop] {
        for poller in POLLERS {
            model(move || {
                let mut scope = Scope::new(poller());
                let mut thread = None;
                scope.poll(false, |cx, child| {
                    let remote = Remote::new(cx, child);
                    thread = Some(spawn(move || wake(remote.waker())));
                    true
                });
                let ended = scope.end();
                thread.unwrap().join().unwrap();
                ended.assert_gone();
            });
        }
    }
}

#[test]
fn a_scope_that_is_dropped_while_it_is_woken_is_freed_once() {
    for wake in [Waker::wake, by_reference] {
        for poller in POLLERS {
            model(move || {
                let mut scope = Scope::new(poller());
                let mut thread = None;
                scope.poll(false, |cx, child| {
                    let remote = Remote::new(cx, child);
                    thread = Some(spawn(move || wake(remote.waker())));
                    false
                });
                // It was `Pending`, and is dropped by another thread.
                match &scope.poller {
                    Poller::Task(task, before) => drop(task.rest(*before)),
                    Poller::Foreign(_, waker) => scope.cancel_scope.store_waker(waker),
                    Poller::Inner(_) => unreachable!(),
                }
                let ended = scope.end();
                thread.unwrap().join().unwrap();
                ended.assert_gone();
            });
        }
    }
}

/// The task that polled a scope ends, and the scope with it, while the scope is being woken. No thread uses
/// the task after it is freed. RUN-FIRST
#[test]
fn a_task_that_ends_while_its_scope_is_woken_is_not_used_any_more() {
    model(|| {
        let mut scope = Scope::new(Poller::task());
        let mut thread = None;
        scope.poll(false, |cx, child| {
            let remote = Remote::new(cx, child);
            thread = Some(spawn(move || remote.waker().wake()));
            false
        });
        // It runs all the time.
        let Ended(cancel_scope, Poller::Task(task, _)) = scope.end() else { unreachable!() };
        task.end();
        thread.unwrap().join().unwrap();
        assert_eq!(cancel_scope.strong_count(), 0);
        assert!(task.is_freed());
    });
}

#[test]
fn references_that_a_poll_has_not_counted_keep_the_memory() {
    model(|| {
        let mut scope = Scope::new(Poller::foreign());
        let mut threads = Vec::new();
        let mut kept = None;
        scope.poll(false, |cx, child| {
            threads.extend([Waker::wake, drop].map(|use_up: fn(Waker)| {
                let remote = Remote::new(cx, child);
                spawn(move || use_up(remote.waker()))
            }));
            drop(cx.waker().clone());
            kept = Some(Remote::new(cx, child));
            false
        });
        scope.leave();
        drop(kept.unwrap().waker());
        let ended = scope.end();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        ended.assert_gone();
    });
}

/// Polls a scope until it is cancelled.
fn until_cancelled(scope: &mut Scope) {
    while !scope.cancel_scope.is_cancelled() {
        assert_eq!(scope.next_ready(), None);
        scope.rest(|scope| scope.cancel_scope.is_cancelled()); // `is_to_announce`
    }
}

#[test]
fn a_scope_does_not_sleep_through_a_cancel() {
    for poller in POLLERS {
        model(move || {
            let mut scope = Scope::new(poller());
            let cancel_scope = scope.cancel_scope.clone();
            let thread = spawn(move || assert!(cancel_scope.cancel()));
            until_cancelled(&mut scope);
            thread.join().unwrap();
            scope.end().assert_gone();
        });
    }
}

#[test]
fn a_scope_that_goes_to_another_does_not_sleep_through_a_cancel() {
    model(|| {
        let task = Behind::new();
        let mut scope = Scope::new(Poller::Task(task.clone(), task.before_poll()));
        let cancel_scope = scope.cancel_scope.clone();
        let thread = spawn(move || assert!(cancel_scope.cancel()));
        scope.goes_to(Poller::foreign());
        until_cancelled(&mut scope);
        thread.join().unwrap();
        scope.end().assert_gone();
        task.end_anyway();
    });
}

#[test]
fn of_two_cancels_one_is_the_first_and_none_is_slept_through() {
    for poller in POLLERS {
        model(move || {
            let mut scope = Scope::new(poller());
            let threads = [(); 2].map(|()| {
                let cancel_scope = scope.cancel_scope.clone();
                spawn(move || cancel_scope.cancel())
            });
            until_cancelled(&mut scope);
            let firsts = threads.into_iter().map(|thread| thread.join().unwrap());
            assert_eq!(firsts.filter(|first| *first).count(), 1);
            scope.end().assert_gone();
        });
    }
}

#[test]
fn a_scope_waits_for_what_was_spawned_and_sees_what_it_did() {
    for poller in POLLERS {
        model(move || {
            let mut scope = Scope::new(poller());
            let result = Arc::new(Plain::new(0));
            scope.cancel_scope.spawned.fetch_add(2, Ordering::Relaxed);
            let task = spawn({
                let (cancel_scope, result) = (scope.cancel_scope.clone(), result.clone());
                move || {
                    result.write(7);
                    cancel_scope.task_ended();
                }
            });
            scope.cancel_scope.task_ended(); // the other task
            let have_ended = |scope: &Scope| scope.cancel_scope.spawned.load(Ordering::Acquire) == 0; // `Children::have_ended`
            while !have_ended(&scope) {
                assert_eq!(scope.next_ready(), None);
                scope.rest(have_ended);
            }
            assert_eq!(result.read(), 7);
            task.join().unwrap();
            scope.end().assert_gone();
        });
    }
}

#[test]
fn a_wake_up_from_a_spawned_task_is_not_lost() {
    for poller in POLLERS {
        model(move || {
            let mut scope = Scope::new(poller());
            let cancel_scope = scope.cancel_scope.clone();
            let mut task = None;
            scope.poll(false, |cx, child| {
                let remote = Remote::new(cx, child);
                // `Spawned::poll`
                task = Some(spawn(move || {
                    let frame = CancelFrame::of_spawned(Arc::as_ptr(&cancel_scope));
                    with_context(|context| frame.around(context, || remote.waker().wake()));
                }));
                false
            });
            scope.run(|| true);
            task.unwrap().join().unwrap();
            scope.end().assert_gone();
        });
    }
}
