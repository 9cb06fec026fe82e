//! Values that are put by some tasks and taken by others, and the waiters of both sides: one short lock for all of it.
//! `mpmc` and `MVar` are built on it.
//!
//! Both sides wait by the same rules, those of [`permits`](super::permits): putters for room, takers for values. Values and
//! room are not assigned to a waiter. A newcomer takes some if enough is left for the waiters in the queue, and otherwise
//! gives way once. A waiter that was woken and leaves without taking wakes the next. The place of a stream in the queue is
//! *loose*, because the stream may not be polled any more: a stream that is woken does not hold up the next waiter, which is
//! woken as well.
//!
//! # Invariants
//!
//! * **STORE-WOKEN**: each value that is put wakes the next taker that sleeps, and each that is taken the next putter that
//!   sleeps, under the lock under which they looked. Closing wakes all.

use std::task::{Context, Poll, ready};

use super::permits::PermitRefusal;
use super::wait::{Wait, Wakers, wake};
use super::wait_queue::WaitQueue;
use crate::prim::{SpinGuard, SpinLock};
use crate::task::guarded::GuardedWaker;
use crate::task::waker::is_ours;

/// The values, and how many there may be. It is used under the lock, so it runs no foreign code.
pub(crate) trait Stock {
    type Item;
    /// Completes "waits for": the wait of a putter.
    const ROOM: &'static &'static str;
    /// The wait of a taker.
    const ITEM: &'static &'static str;
    /// How many more values can be put.
    fn room(&self) -> usize;
    /// How many values can be taken.
    fn filled(&self) -> usize;
    /// Puts a value, for which there is room.
    fn put(&mut self, item: Option<Self::Item>);
    fn take(&mut self) -> Option<Self::Item>;
    /// Whether nothing will be put any more.
    fn is_closed(&self) -> bool {
        false
    }
}

/// A stock with its two queues.
pub(crate) struct Exchange<K>(SpinLock<ExchangeState<K>>);

struct ExchangeState<K> {
    stock: K,
    /// Allocated by the first waiter.
    queues: Option<Box<ExchangeQueues>>,
}

#[derive(Default)]
pub(crate) struct ExchangeQueues {
    putters: WaitQueue,
    takers: WaitQueue,
}

/// A wait of one side.
#[derive(Default)]
pub(crate) struct ExchangePlace {
    key: Option<usize>,
    is_loose: bool,
    wait: Wait,
}

impl ExchangePlace {
    /// That of a stream.
    pub(crate) fn loose() -> ExchangePlace {
        ExchangePlace { is_loose: true, ..ExchangePlace::default() }
    }
}

/// The waker of a waiter, and whether its place is loose.
type NextWaker = Option<(GuardedWaker, bool)>;

/// One side of an exchange: its operation on the stock, a put or a take.
pub(crate) trait ExchangeSide<K> {
    /// The object of the wait, for dumps: "waits for" is put before it.
    const WHAT: &'static &'static str;
    /// Whether nothing may be done after the stock was closed.
    const ENDS_AT_CLOSE: bool;
    /// Whether the other side may have something to do afterwards.
    const WAKES_OTHERS: bool;
    /// How much there is for this side.
    fn free(stock: &K) -> usize;
    fn queue(queues: &mut ExchangeQueues) -> &mut WaitQueue;
    /// The queue of the other side.
    fn others(queues: &mut ExchangeQueues) -> &mut WaitQueue;
    /// Takes what is free.
    fn take(&mut self, stock: &mut K);
}

/// The value that is to be put.
pub(crate) struct ToPut<T>(pub(crate) Option<T>);
/// The value that was taken.
pub(crate) struct ToTake<T>(pub(crate) Option<T>);

impl<K: Stock> ExchangeSide<K> for ToPut<K::Item> {
    const WHAT: &'static &'static str = K::ROOM;
    const ENDS_AT_CLOSE: bool = true;
    const WAKES_OTHERS: bool = true;

    #[inline]
    fn free(stock: &K) -> usize {
        stock.room()
    }

    #[inline]
    fn queue(queues: &mut ExchangeQueues) -> &mut WaitQueue {
        &mut queues.putters
    }

    #[inline]
    fn others(queues: &mut ExchangeQueues) -> &mut WaitQueue {
        &mut queues.takers
    }

    #[inline]
    fn take(&mut self, stock: &mut K) {
        stock.put(self.0.take());
    }
}

impl<K: Stock> ExchangeSide<K> for ToTake<K::Item> {
    const WHAT: &'static &'static str = K::ITEM;
    const ENDS_AT_CLOSE: bool = false;
    const WAKES_OTHERS: bool = true;

    #[inline]
    fn free(stock: &K) -> usize {
        stock.filled()
    }

    #[inline]
    fn queue(queues: &mut ExchangeQueues) -> &mut WaitQueue {
        &mut queues.takers
    }

    #[inline]
    fn others(queues: &mut ExchangeQueues) -> &mut WaitQueue {
        &mut queues.putters
    }

    #[inline]
    fn take(&mut self, stock: &mut K) {
        self.0 = stock.take();
    }
}

impl<K> ExchangeState<K> {
    /// The queue of a waiter that is in it, or is to join it.
    #[inline]
    fn queue<S: ExchangeSide<K>>(&mut self) -> &mut WaitQueue {
        S::queue(self.queues.get_or_insert_default())
    }

    #[inline]
    fn waiting<S: ExchangeSide<K>>(&mut self) -> usize {
        self.queues.as_mut().map_or(0, |queues| S::queue(queues).len())
    }
}

impl<K: Stock> Exchange<K> {
    pub(crate) fn new(stock: K) -> Exchange<K> {
        Exchange(SpinLock::new(ExchangeState { stock, queues: None }))
    }

    /// Looks at the values. `f` runs under the lock: it must be short, and run no foreign code.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut K) -> R) -> R {
        f(&mut self.0.lock().stock)
    }

    /// Takes what is free, if more than `leave` is.
    #[inline(always)]
    fn take<S: ExchangeSide<K>>(side: &mut S, stock: &mut K, leave: usize) -> Result<(), PermitRefusal> {
        if stock.is_closed() && S::ENDS_AT_CLOSE {
            return Err(PermitRefusal::Closed);
        }
        match S::free(stock) {
            // Nothing will come, so that there is no one to give way to.
            0 if stock.is_closed() => Err(PermitRefusal::Closed),
            free if free <= leave => Err(PermitRefusal::Busy),
            _ => {
                side.take(stock);
                Ok(())
            }
        }
    }

    /// Unlocks after something was taken, and wakes one of the other side. STORE-WOKEN
    #[inline(always)]
    fn unlock_taken<S: ExchangeSide<K>>(&self, mut state: SpinGuard<'_, ExchangeState<K>>) {
        if !S::WAKES_OTHERS {
            return;
        }
        let next = state.queues.as_mut().and_then(|queues| S::others(queues).next_waker());
        drop(state);
        self.wake_next(next, S::others);
    }

    /// Wakes a waiter of a queue; and if its place is loose, the next one as well.
    #[inline(always)]
    fn wake_next(&self, next: NextWaker, queue: fn(&mut ExchangeQueues) -> &mut WaitQueue) {
        if let Some((waker, is_loose)) = next {
            wake(waker);
            if is_loose {
                self.wake_beyond(queue);
            }
        }
    }

    #[cold]
    fn wake_beyond(&self, queue: fn(&mut ExchangeQueues) -> &mut WaitQueue) {
        let mut is_loose = true;
        while is_loose {
            let next = self.0.lock().queues.as_mut().and_then(|queues| queue(queues).next_waker());
            let Some((waker, loose)) = next else { return };
            wake(waker);
            is_loose = loose;
        }
    }

    /// Puts a value back that was only lent, and wakes the next taker. STORE-WOKEN
    pub(crate) fn give_back(&self, give: impl FnOnce(&mut K)) {
        let mut state = self.0.lock();
        give(&mut state.stock);
        self.unlock_taken::<ToPut<K::Item>>(state);
    }

    /// Takes what is free now, also ahead of waiters.
    pub(crate) fn try_take<S: ExchangeSide<K>>(&self, side: &mut S) -> Result<(), PermitRefusal> {
        let mut state = self.0.lock();
        Self::take(side, &mut state.stock, 0)?;
        self.unlock_taken::<S>(state);
        Ok(())
    }

    /// Takes what is free, or waits for it.
    #[inline]
    pub(crate) fn poll_take<S: ExchangeSide<K>>(
        &self,
        side: &mut S,
        place: &mut ExchangePlace,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PermitRefusal>> {
        if ready!(place.wait.begin(cx)).is_err() {
            self.leave::<S>(place);
            return Poll::Ready(Err(PermitRefusal::Cancelled));
        }
        if place.key.is_some() {
            return self.poll_queued(side, place, cx);
        }
        let mut state = self.0.lock();
        let leave = state.waiting::<S>();
        match Self::take(side, &mut state.stock, leave) {
            Ok(()) => {
                self.unlock_taken::<S>(state);
                place.wait.end();
                Poll::Ready(Ok(()))
            }
            Err(PermitRefusal::Busy) if is_ours(cx.waker()) => {
                Self::join::<S>(state, place, GuardedWaker::of(cx.waker()));
                place.wait.rest(cx, S::WHAT);
                Poll::Pending
            }
            Err(PermitRefusal::Busy) => {
                drop(state);
                self.poll_queued(side, place, cx)
            }
            Err(refused) => {
                drop(state);
                place.wait.end();
                Poll::Ready(Err(refused))
            }
        }
    }

    /// A newcomer joins its queue, under the lock under which it found too little.
    fn join<S: ExchangeSide<K>>(
        mut state: SpinGuard<'_, ExchangeState<K>>,
        place: &mut ExchangePlace,
        waker: GuardedWaker,
    ) {
        // Something is there, but not for this newcomer: it gives way to the waiters once.
        let gives_way = S::free(&state.stock) > 0;
        let mut waker = Some(waker);
        let queue = state.queue::<S>();
        let key = queue.join(1, waker.take_if(|_| !gives_way));
        if place.is_loose {
            queue.loosen(key);
        }
        place.key = Some(key);
        drop(state);
        waker.into_iter().for_each(GuardedWaker::wake);
    }

    #[cold]
    fn poll_queued<S: ExchangeSide<K>>(
        &self,
        side: &mut S,
        place: &mut ExchangePlace,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), PermitRefusal>> {
        // Foreign code runs before the lock is taken; a waker of ours is cloned only if it is needed. CLONED-FIRST
        let foreign = (!is_ours(cx.waker())).then(|| GuardedWaker::of(cx.waker()));
        let cancelled = place.key.is_some() && place.wait.is_cancelled();
        let mut state = self.0.lock();
        let free = S::free(&state.stock);
        let taken = match place.key {
            None => {
                let leave = state.waiting::<S>();
                Self::take(side, &mut state.stock, leave)
            }
            Some(key) if state.stock.is_closed() || state.queue::<S>().may_take(key, free) => {
                Self::take(side, &mut state.stock, 0)
            }
            Some(_) => Err(PermitRefusal::Busy),
        };
        if taken == Err(PermitRefusal::Busy) && !cancelled {
            let waker = foreign.unwrap_or_else(|| GuardedWaker::of(cx.waker()));
            let mut old = None;
            let mut healed = None;
            match place.key {
                None => Self::join::<S>(state, place, waker),
                Some(key) => {
                    let queue = state.queue::<S>();
                    old = queue.sleep(key, waker);
                    // A woken waiter ahead of this one may never come for the free room or value: wake one more.
                    if free > 0 && queue.claims() <= free {
                        healed = queue.next_waker();
                    }
                    drop(state);
                }
            }
            drop(old);
            self.wake_next(healed, S::queue);
            place.wait.rest(cx, S::WHAT);
            return Poll::Pending;
        }
        let (old, next) = Self::leave_queue::<S>(&mut state, place, taken.is_ok());
        match taken {
            Ok(()) => self.unlock_taken::<S>(state),
            Err(_) => drop(state),
        }
        self.wake_next(next, S::queue);
        drop((old, foreign));
        place.wait.end();
        Poll::Ready(taken.map_err(|refused| match refused {
            PermitRefusal::Busy => PermitRefusal::Cancelled,
            refused => refused,
        }))
    }

    /// Leaves the queue. Gives back the waker of the waiter, and that of the next one: if the waiter was woken and takes
    /// nothing, or if there is more than those that were woken will take.
    fn leave_queue<S: ExchangeSide<K>>(
        state: &mut ExchangeState<K>,
        place: &mut ExchangePlace,
        took: bool,
    ) -> (Option<GuardedWaker>, NextWaker) {
        let Some(key) = place.key.take() else { return (None, None) };
        let free = S::free(&state.stock);
        let queue = state.queue::<S>();
        let passes_on = queue.is_woken(key) && !took;
        let waker = queue.leave(key);
        let next = if free > 0 && (passes_on || free > queue.claims()) { queue.next_waker() } else { None };
        (waker, next)
    }

    /// Ends a wait that has not been served.
    #[inline]
    pub(crate) fn leave<S: ExchangeSide<K>>(&self, place: &mut ExchangePlace) {
        if place.key.is_some() {
            self.leave_slowly::<S>(place);
        }
        place.wait.give_up();
    }

    #[cold]
    fn leave_slowly<S: ExchangeSide<K>>(&self, place: &mut ExchangePlace) {
        let mut state = self.0.lock();
        let (old, next) = Self::leave_queue::<S>(&mut state, place, false);
        drop(state);
        self.wake_next(next, S::queue);
        drop(old);
    }

    /// Wakes all waiters, again and again until none sleeps; `each` is done under the lock before each time.
    pub(crate) fn wake_everyone(&self, mut each: impl FnMut(&mut K)) {
        let mut wakers = Wakers::default();
        loop {
            let mut state = self.0.lock();
            each(&mut state.stock);
            let more = state.queues.as_mut().is_some_and(|queues| {
                while queues.putters.wake_next(&mut wakers) {}
                while queues.takers.wake_next(&mut wakers) {}
                queues.putters.next_need().is_some() || queues.takers.next_need().is_some()
            });
            drop(state);
            wakers.wake_all();
            if !more {
                return;
            }
        }
    }
}
