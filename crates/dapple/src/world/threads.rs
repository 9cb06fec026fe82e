//! Virtual threads: coroutines that take turns on one real thread, in the order of virtual time.
//!
//! The first one is the real thread itself. When it waits, it runs the others until its own event comes
//! up; the others have stacks of their own, and give way by going back to its. So a world with one thread
//! needs no other stack.
//!
//! # Invariants
//!
//! * **ONE-EVENT**: a thread that waits is known by the number of its wait. An event, or a ring, that
//!   carries another number comes too late, and does nothing.
//! * **OWN-STACK**: the yielder of a thread is used by that thread alone, on its own stack, and so while
//!   it exists.
//! * **LEFT-BEHIND**: a thread that has not ended when its world does is never run again, nor are its
//!   stack or what is on it freed: others may refer to it.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ptr::null;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::plain::{AtomicBool, Mutex, Ordering, lock};
use super::{BEGIN, EarlyEnd, World};

/// The thread that entered the world.
const FIRST: usize = 0;
/// As large as the standard library makes them. What is not used takes no memory.
const STACK: usize = 2 << 20;
/// How many events there may be without anything being polled or worked on: if there are more, something
/// goes round in circles.
const MOST_IDLE: u64 = 1_000_000;
/// How long, in nanoseconds, threads may go on when their world ends.
const LEAVE: u64 = 1_000_000_000;

/// Exchanges what a virtual thread knows of itself for what is in use: on its way in, and out.
pub(crate) type Context = Box<dyn Fn()>;

/// Which thread. A place is used again, the name is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ThreadId {
    index: usize,
    id: u64,
}

impl ThreadId {
    pub(crate) fn index(self) -> usize {
        self.index
    }
}

/// Threads that were rung for, by anybody, and have not been told yet.
#[derive(Default)]
pub(crate) struct Rung {
    is_any: AtomicBool,
    threads: Mutex<Vec<ThreadId>>,
}

impl Rung {
    pub(super) fn ring(&self, thread: ThreadId) {
        lock(&self.threads).push(thread);
        self.is_any.store(true, Ordering::Release);
    }
}

pub(super) struct Threads {
    list: Vec<Thread>,
    /// When, who first at that moment, which thread, which of its waits.
    events: BinaryHeap<Reverse<(u64, u32, usize, u64)>>,
    current: usize,
    ids: u64,
    context: fn() -> Context,
}

struct Thread {
    id: u64,
    /// There while it waits, or is to begin. The first thread has none.
    coroutine: Option<Coroutine<(), (), ()>>,
    /// OWN-STACK
    yielder: *const Yielder<(), ()>,
    /// There while it does not run.
    context: Option<Context>,
    /// How many waits it has had. ONE-EVENT
    waits: u64,
    does: Does,
    slowness: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Run,
    /// It waits for a time alone.
    Work,
    /// It can be rung for.
    Rest,
    /// It has ended.
    Nothing,
}

thread_local! {
    /// Stacks that are not in use.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

fn new_stack() -> DefaultStack {
    let kept = STACKS.with_borrow_mut(Vec::pop);
    kept.unwrap_or_else(|| DefaultStack::new(STACK).expect("no memory for the stack of a virtual thread"))
}

impl Threads {
    pub(super) fn new(context: fn() -> Context) -> Threads {
        let first = Thread {
            id: 0,
            coroutine: None,
            yielder: null(),
            context: Some(context()),
            waits: 0,
            does: Does::Run,
            slowness: 1,
        };
        Threads { list: vec![first], events: BinaryHeap::new(), current: FIRST, ids: 0, context }
    }

    /// The next event that is not too late, before `limit`.
    fn next(&mut self, limit: u64) -> Option<(u64, usize)> {
        while let Some(&Reverse((time, _, index, wait))) = self.events.peek() {
            if time > limit {
                return None;
            }
            self.events.pop();
            let thread = &self.list[index];
            if thread.waits == wait && thread.does != Does::Nothing {
                return Some((time, index)); // ONE-EVENT
            }
        }
        None
    }
}

impl World {
    /// The thread that runs.
    pub(super) fn thread(&self) -> ThreadId {
        let threads = self.threads.borrow();
        ThreadId { index: threads.current, id: threads.list[threads.current].id }
    }

    pub(super) fn slowness(&self) -> u64 {
        let threads = self.threads.borrow();
        threads.list[threads.current].slowness
    }

    /// Starts a virtual thread.
    pub(crate) fn start_thread(&self, work: impl FnOnce() + 'static) {
        let time = self.now.get() + self.dice.wake();
        let (tie, slowness) = (self.dice.tie(), self.dice.slowness());
        let threads = &mut *self.threads.borrow_mut();
        threads.ids += 1;
        let free = threads.list.iter().skip(1).position(|thread| thread.does == Does::Nothing);
        let index = free.map_or(threads.list.len(), |index| index + 1);
        let coroutine = Coroutine::with_stack(new_stack(), move |yielder, ()| {
            super::with(|world| world.threads.borrow_mut().list[index].yielder = yielder);
            work();
        });
        let waits = threads.list.get(index).map_or(0, |thread| thread.waits + 1);
        let thread = Thread {
            id: threads.ids,
            coroutine: Some(coroutine),
            yielder: null(),
            context: Some((threads.context)()),
            waits,
            does: Does::Work,
            slowness,
        };
        match threads.list.get_mut(index) {
            Some(place) => *place = thread,
            None => threads.list.push(thread),
        }
        threads.events.push(Reverse((time, tie, index, waits)));
    }

    /// The current thread waits until a moment, or, if it `rests`, until it is rung for. Others go on.
    pub(super) fn wait(&self, until: Option<u64>, rests: bool) {
        // Who unwinds is not left for others, since they would seem to unwind, too; unless it waits for
        // them.
        if std::thread::panicking() && !rests {
            return;
        }
        self.hear();
        let yielder = {
            let threads = &mut *self.threads.borrow_mut();
            let is_first = |until| threads.events.peek().is_none_or(|Reverse((time, ..))| *time > until);
            if let Some(until) = until.filter(|until| is_first(*until)) {
                return self.now.set(until);
            }
            let index = threads.current;
            let thread = &mut threads.list[index];
            thread.waits += 1;
            thread.does = if rests { Does::Rest } else { Does::Work };
            if let Some(until) = until {
                threads.events.push(Reverse((until, self.dice.tie(), index, thread.waits)));
            }
            thread.yielder
        };
        // SAFETY: it is this thread's, which is in its coroutine. OWN-STACK
        match unsafe { yielder.as_ref() } {
            Some(yielder) => yielder.suspend(()),
            None => self.run_others(),
        }
    }

    /// Takes note of who was rung for.
    fn hear(&self) {
        if !self.rung.is_any.load(Ordering::Acquire) {
            return;
        }
        self.rung.is_any.store(false, Ordering::Relaxed);
        for name in std::mem::take(&mut *lock(&self.rung.threads)) {
            let (time, tie) = (self.now.get() + self.dice.wake(), self.dice.tie());
            let threads = &mut *self.threads.borrow_mut();
            let thread = &mut threads.list[name.index];
            if thread.id == name.id && thread.does == Does::Rest {
                thread.does = Does::Work;
                thread.waits += 1; // ONE-EVENT
                threads.events.push(Reverse((time, tie, name.index, thread.waits)));
            }
        }
    }

    /// Runs the others until it is the first thread's turn, which calls this.
    fn run_others(&self) {
        let own = self.threads.borrow_mut().list[FIRST].context.take().expect("the first thread is here");
        own();
        loop {
            self.hear();
            let next = self.threads.borrow_mut().next(u64::MAX);
            let is_stuck = next.is_none() || self.idle_events.get() > MOST_IDLE;
            if is_stuck && self.ended().is_none() {
                if next.is_some() || !self.is_helped() {
                    self.end(EarlyEnd::Stuck);
                }
                continue;
            }
            match next {
                Some((time, index)) if index != FIRST => self.run_thread(time, index),
                // It is the first thread's turn; or it has to see for itself that the world has ended.
                next => break self.now.set(next.map_or(0, |(time, _)| time).max(self.now.get())),
            }
        }
        own();
        let threads = &mut *self.threads.borrow_mut();
        threads.current = FIRST;
        threads.list[FIRST].does = Does::Run;
        threads.list[FIRST].context = Some(own);
    }

    /// Lets a thread go on until it waits.
    fn run_thread(&self, time: u64, index: usize) {
        self.now.set(time.max(self.now.get()));
        self.idle_events.set(self.idle_events.get() + 1);
        let (mut coroutine, context) = {
            let threads = &mut *self.threads.borrow_mut();
            threads.current = index;
            let thread = &mut threads.list[index];
            thread.does = Does::Run;
            let coroutine = thread.coroutine.take().expect("a thread that waits has its coroutine");
            (coroutine, thread.context.take().expect("a thread that waits has its context"))
        };
        context();
        let result = coroutine.resume(());
        context();
        let thread = &mut self.threads.borrow_mut().list[index];
        match result {
            CoroutineResult::Yield(()) => {
                thread.coroutine = Some(coroutine);
                thread.context = Some(context);
            }
            CoroutineResult::Return(()) => {
                thread.does = Does::Nothing;
                thread.yielder = null();
                STACKS.with_borrow_mut(|stacks| stacks.push(coroutine.into_stack()));
            }
        }
    }

    /// Lets all threads end that will, by the first, which is about to leave; LEFT-BEHIND are the others.
    pub(super) fn leave_threads(&self) {
        let limit = self.now.get().saturating_add(LEAVE);
        while !std::thread::panicking() {
            self.hear();
            let next = self.threads.borrow_mut().next(limit);
            match next {
                Some((_, FIRST)) => {}
                Some((time, index)) => self.run_thread(time, index),
                None => break,
            }
        }
        for thread in &mut self.threads.borrow_mut().list {
            // One that has not begun has nothing on its stack but what it was given.
            if let Some(coroutine) = thread.coroutine.take().filter(Coroutine::started) {
                std::mem::forget(coroutine); // LEFT-BEHIND
            }
        }
        debug_assert!(self.now.get() >= BEGIN);
    }
}
