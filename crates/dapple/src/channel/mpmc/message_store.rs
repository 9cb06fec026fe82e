//! The messages between senders and receivers, and how both wait: one short lock for all of it.
//!
//! Both sides wait by the same rules, those of [`permits`](crate::waitlist::permits): senders for room, receivers for
//! messages. What is there is handed to no waiter. A newcomer takes it if enough is left for the waiters in line, and
//! otherwise gives way once. A waiter that was woken and leaves without taking wakes the next.
//!
//! # Invariants
//!
//! * **STORE-WOKEN**: each message that is put wakes the next receiver that sleeps, and each that is taken the next
//!   sender that sleeps, under the lock under which they looked. Closing wakes all.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use crate::prim::{AtomicBool, Ordering, SpinGuard, SpinLock};
use crate::task::guarded::GuardedWaker;
use crate::task::waker::is_ours;
use crate::waitlist::permits::PermitRefusal;
use crate::waitlist::wait::{Wait, Wakers, wake};
use crate::waitlist::wait_queue::WaitQueue;

#[repr(align(128))] // the lock and what it guards, in lines of their own
pub(super) struct MessageStore<T> {
    inside: SpinLock<StoreState<T>>,
    closed: AtomicBool,
    pub(super) capacity: usize,
}

pub(super) struct StoreState<T> {
    messages: VecDeque<T>,
    closed: bool,
    senders: WaitQueue,
    receivers: WaitQueue,
}

/// A wait of one side.
#[derive(Default)]
pub(super) struct StorePlace {
    key: Option<usize>,
    wait: Wait,
}

/// What one side does with the store.
pub(super) trait StoreSide<T> {
    /// What it completes: "waits for".
    const WHAT: &'static &'static str;
    /// How much there is for this side.
    fn free(state: &StoreState<T>, capacity: usize) -> usize;
    fn line(state: &mut StoreState<T>) -> &mut WaitQueue;
    /// The line of the other side.
    fn others(state: &mut StoreState<T>) -> &mut WaitQueue;
    /// Takes what is free.
    fn take(&mut self, state: &mut StoreState<T>);
    /// Whether nothing may be taken after the channel was closed.
    const ENDS_AT_CLOSE: bool;
}

/// The message that is to be sent.
pub(super) struct ToSend<T>(pub(super) Option<T>);
/// The message that was received.
pub(super) struct ToReceive<T>(pub(super) Option<T>);

impl<T> StoreSide<T> for ToSend<T> {
    const WHAT: &'static &'static str = &"room in a channel";
    const ENDS_AT_CLOSE: bool = true;

    #[inline]
    fn free(state: &StoreState<T>, capacity: usize) -> usize {
        capacity - state.messages.len()
    }

    fn line(state: &mut StoreState<T>) -> &mut WaitQueue {
        &mut state.senders
    }

    fn others(state: &mut StoreState<T>) -> &mut WaitQueue {
        &mut state.receivers
    }

    #[inline]
    fn take(&mut self, state: &mut StoreState<T>) {
        state.messages.extend(self.0.take());
    }
}

impl<T> StoreSide<T> for ToReceive<T> {
    const WHAT: &'static &'static str = &"a message";
    const ENDS_AT_CLOSE: bool = false;

    #[inline]
    fn free(state: &StoreState<T>, _capacity: usize) -> usize {
        state.messages.len()
    }

    fn line(state: &mut StoreState<T>) -> &mut WaitQueue {
        &mut state.receivers
    }

    fn others(state: &mut StoreState<T>) -> &mut WaitQueue {
        &mut state.senders
    }

    #[inline]
    fn take(&mut self, state: &mut StoreState<T>) {
        self.0 = state.messages.pop_front();
    }
}

impl<T> MessageStore<T> {
    pub(super) fn new(capacity: usize) -> MessageStore<T> {
        MessageStore {
            inside: SpinLock::new(StoreState {
                messages: VecDeque::new(),
                closed: false,
                senders: WaitQueue::default(),
                receivers: WaitQueue::default(),
            }),
            closed: AtomicBool::new(false),
            capacity,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.inside.lock().messages.len()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Takes of what is free, if more than `leave` is.
    #[inline]
    fn take<S: StoreSide<T>>(
        &self,
        side: &mut S,
        state: &mut StoreState<T>,
        leave: usize,
    ) -> Result<(), PermitRefusal> {
        if state.closed && S::ENDS_AT_CLOSE {
            return Err(PermitRefusal::Closed);
        }
        match S::free(state, self.capacity) {
            // Nothing will come, so that there is no one to give way to.
            0 if state.closed => Err(PermitRefusal::Closed),
            free if free <= leave => Err(PermitRefusal::Busy),
            _ => {
                side.take(state);
                Ok(())
            }
        }
    }

    /// Unlocks after something was taken, and wakes the next of the other side. STORE-WOKEN
    #[inline]
    fn unlock_taken<S: StoreSide<T>>(&self, mut state: SpinGuard<'_, StoreState<T>>) {
        let waker = S::others(&mut state).next_waker();
        drop(state);
        if let Some(waker) = waker {
            wake(waker);
        }
    }

    /// Takes now, also ahead of waiters.
    pub(super) fn try_take<S: StoreSide<T>>(&self, side: &mut S) -> Result<(), PermitRefusal> {
        let mut state = self.inside.lock();
        self.take(side, &mut state, 0)?;
        self.unlock_taken::<S>(state);
        Ok(())
    }

    #[inline]
    pub(super) fn poll_take<S: StoreSide<T>>(
        &self,
        side: &mut S,
        place: &mut StorePlace,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PermitRefusal>> {
        if ready!(place.wait.begin(cx)).is_err() {
            self.leave::<S>(place);
            return Poll::Ready(Err(PermitRefusal::Cancelled));
        }
        if place.key.is_some() {
            return self.poll_in_line(side, place, cx);
        }
        let mut state = self.inside.lock();
        let leave = S::line(&mut state).needs();
        match self.take(side, &mut state, leave) {
            Ok(()) => {
                self.unlock_taken::<S>(state);
                place.wait.end();
                Poll::Ready(Ok(()))
            }
            Err(PermitRefusal::Busy) if is_ours(cx.waker()) => {
                self.join::<S>(state, place, GuardedWaker::of(cx.waker()));
                place.wait.rest(cx, S::WHAT);
                Poll::Pending
            }
            Err(PermitRefusal::Busy) => {
                drop(state);
                self.poll_in_line(side, place, cx)
            }
            Err(refused) => {
                drop(state);
                place.wait.end();
                Poll::Ready(Err(refused))
            }
        }
    }

    /// Joins the line. If there is something that is meant for others, gives way: it comes back without being woken.
    fn join<S: StoreSide<T>>(
        &self,
        mut state: SpinGuard<'_, StoreState<T>>,
        place: &mut StorePlace,
        waker: GuardedWaker,
    ) {
        let gives_way = S::free(&state, self.capacity) > 0;
        let mut waker = Some(waker);
        place.key = Some(S::line(&mut state).join(1, waker.take_if(|_| !gives_way)));
        drop(state);
        waker.into_iter().for_each(GuardedWaker::wake);
    }

    #[cold]
    fn poll_in_line<S: StoreSide<T>>(
        &self,
        side: &mut S,
        place: &mut StorePlace,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PermitRefusal>> {
        let waker = GuardedWaker::of(cx.waker());
        let cancelled = place.key.is_some() && place.wait.is_cancelled();
        let mut state = self.inside.lock();
        let free = S::free(&state, self.capacity);
        let taken = match place.key {
            None => {
                let leave = S::line(&mut state).needs();
                self.take(side, &mut state, leave)
            }
            Some(key) if state.closed || S::line(&mut state).may_take(key, free) => {
                self.take(side, &mut state, 0)
            }
            Some(_) => Err(PermitRefusal::Busy),
        };
        if taken == Err(PermitRefusal::Busy) && !cancelled {
            let mut old = None;
            let mut healed = None;
            match place.key {
                None => self.join::<S>(state, place, waker),
                Some(key) => {
                    let line = S::line(&mut state);
                    old = line.sleep(key, waker);
                    // What is free may be meant for one that will not come for it: lets one more see.
                    if free > 0 && line.claims() <= free {
                        healed = line.next_waker();
                    }
                    drop(state);
                }
            }
            drop(old);
            healed.into_iter().for_each(wake);
            place.wait.rest(cx, S::WHAT);
            return Poll::Pending;
        }
        let (old, next) = self.leave_line::<S>(&mut state, place, taken.is_ok());
        match taken {
            Ok(()) => self.unlock_taken::<S>(state),
            Err(_) => drop(state),
        }
        next.into_iter().for_each(wake);
        drop((old, waker));
        place.wait.end();
        Poll::Ready(taken.map_err(|refused| match refused {
            PermitRefusal::Busy => PermitRefusal::Cancelled,
            refused => refused,
        }))
    }

    /// Takes a waiter out of its line: the waker that it had, and that of the next, if it was woken in place of it.
    fn leave_line<S: StoreSide<T>>(
        &self,
        state: &mut StoreState<T>,
        place: &mut StorePlace,
        took: bool,
    ) -> (Option<GuardedWaker>, Option<GuardedWaker>) {
        let Some(key) = place.key.take() else { return (None, None) };
        let free = S::free(state, self.capacity);
        let line = S::line(state);
        let passes_on = line.is_woken(key) && !took;
        let waker = line.leave(key);
        let next = if free > 0 && (passes_on || free > line.claims()) { line.next_waker() } else { None };
        (waker, next)
    }

    /// Gives up waiting.
    pub(super) fn leave<S: StoreSide<T>>(&self, place: &mut StorePlace) {
        if place.key.is_some() {
            let mut state = self.inside.lock();
            let (old, next) = self.leave_line::<S>(&mut state, place, false);
            drop(state);
            next.into_iter().for_each(wake);
            drop(old);
        }
        place.wait.give_up();
    }

    /// Lets no one send any more. `drops`: and no one receives, so that what is left is dropped.
    pub(super) fn close(&self, drops: bool) {
        let mut wakers = Wakers::default();
        let mut left = VecDeque::new();
        loop {
            let mut state = self.inside.lock();
            state.closed = true;
            self.closed.store(true, Ordering::Release);
            if drops {
                left.append(&mut state.messages);
            }
            while state.senders.wake_next(&mut wakers) {}
            while state.receivers.wake_next(&mut wakers) {}
            let more = state.senders.next_need().is_some() || state.receivers.next_need().is_some();
            drop(state);
            wakers.wake_all();
            if !more {
                break;
            }
        }
        drop(left); // foreign code: not under the lock
    }
}
