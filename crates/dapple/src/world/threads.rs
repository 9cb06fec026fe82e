//! Virtual threads: coroutines that take turns on one real thread, in the order of virtual time.
//!
//! The first virtual thread is the real thread itself. When it waits, it runs the others until its own event comes
//! up. The others have stacks of their own, and yield by returning to the first one's stack. So a world with one thread
//! needs no other stack.
//!
//! # Invariants
//!
//! * **ONE-EVENT**: a thread that waits is identified by the number of its wait. An event, or a notification, with
//!   another number comes too late, and has no effect.
//! * **OWN-STACK**: only the thread itself uses its yielder, on its own stack. So it uses the yielder only while that
//!   exists.
//! * **LEFT-BEHIND**: a thread that has not ended when its world does never runs again, and neither its
//!   stack nor the values on it are freed: others may refer to them.

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
/// The stack size, which is that of the standard library. Unused pages take no memory.
const STACK: usize = 2 << 20;
/// The most events without a poll or work in between. If there are more, some thread is in an endless
/// loop.
const MOST_IDLE: u64 = 1_000_000;
/// The virtual time in nanoseconds that threads get to end when their world ends.
const LEAVE: u64 = 1_000_000_000;

/// Swaps the context of a virtual thread with the context in use. Called when the thread begins to run, and after.
pub(crate) type Context = Box<dyn Fn()>;

/// The identity of a thread. An index is reused, an id is not.
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

/// Threads that were notified, by any thread, and are not yet scheduled.
#[derive(Default)]
pub(crate) struct NotifiedThreads {
    is_any: AtomicBool,
    threads: Mutex<Vec<ThreadId>>,
}

impl NotifiedThreads {
    pub(super) fn add(&self, thread: ThreadId) {
        lock(&self.threads).push(thread);
        self.is_any.store(true, Ordering::Release);
    }
}

pub(super) struct Threads {
    list: Vec<Thread>,
    /// The events: time, order among equal times, thread, and number of its wait.
    events: BinaryHeap<Reverse<(u64, u32, usize, u64)>>,
    current: usize,
    ids: u64,
    context: fn() -> Context,
}

struct Thread {
    id: u64,
    /// Present while the thread waits, or has not begun. The first thread has none.
    coroutine: Option<Coroutine<(), (), ()>>,
    /// OWN-STACK
    yielder: *const Yielder<(), ()>,
    /// Present while the thread does not run.
    context: Option<Context>,
    /// The number of its waits so far. ONE-EVENT
    waits: u64,
    does: Does,
    slowness: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Run,
    /// It waits for a time only.
    Work,
    /// It waits, and can be notified.
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
    kept.unwrap_or_else(|| DefaultStack::new(STACK).expect("cannot allocate the stack of a virtual thread"))
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

    /// The next event up to `limit` that is not outdated.
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
        let time = self.now.get() + self.rng.wake();
        let (tie, slowness) = (self.rng.tie(), self.rng.slowness());
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

    /// Suspends the current thread until a moment, or, if it `rests`, until it is notified. Others run meanwhile.
    pub(super) fn wait(&self, until: Option<u64>, rests: bool) {
        // A thread that unwinds does not yield, because the others would seem to unwind, too; unless it waits for
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
                threads.events.push(Reverse((until, self.rng.tie(), index, thread.waits)));
            }
            thread.yielder
        };
        // SAFETY: it is null, or it belongs to this thread, which runs on its own coroutine. OWN-STACK
        match unsafe { yielder.as_ref() } {
            Some(yielder) => yielder.suspend(()),
            None => self.run_others(),
        }
    }

    /// Schedules the threads that were notified.
    fn hear(&self) {
        if !self.notified.is_any.load(Ordering::Acquire) {
            return;
        }
        self.notified.is_any.store(false, Ordering::Relaxed);
        for name in std::mem::take(&mut *lock(&self.notified.threads)) {
            let (time, tie) = (self.now.get() + self.rng.wake(), self.rng.tie());
            let threads = &mut *self.threads.borrow_mut();
            let thread = &mut threads.list[name.index];
            if thread.id == name.id && thread.does == Does::Rest {
                thread.does = Does::Work;
                thread.waits += 1; // ONE-EVENT
                threads.events.push(Reverse((time, tie, name.index, thread.waits)));
            }
        }
    }

    /// Runs the others until it is the turn of the first thread, which calls this.
    fn run_others(&self) {
        let own =
            self.threads.borrow_mut().list[FIRST].context.take().expect("the first thread calls this itself");
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
                // It is the first thread's turn; or it must find out that the world has ended.
                next => break self.now.set(next.map_or(0, |(time, _)| time).max(self.now.get())),
            }
        }
        own();
        let threads = &mut *self.threads.borrow_mut();
        threads.current = FIRST;
        threads.list[FIRST].does = Does::Run;
        threads.list[FIRST].context = Some(own);
    }

    /// Runs a thread until it waits.
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

    /// Lets all threads end that can, called by the first thread before it leaves. The others are LEFT-BEHIND.
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
            // A thread that has not begun has only its closure on its stack.
            if let Some(coroutine) = thread.coroutine.take().filter(Coroutine::started) {
                std::mem::forget(coroutine); // LEFT-BEHIND
            }
        }
        debug_assert!(self.now.get() >= BEGIN);
    }
}
