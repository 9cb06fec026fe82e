//! Joining tasks, and the effect of cancelling and aborting on the tasks that wait.
#![expect(clippy::async_yields_async, reason = "handles are handed over, to be awaited elsewhere")]

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use crate::common::{
    Alone, Drops, Event, foreign_block_on, give_way, in_both_worlds, rounds, runtime, start_thread,
};
use dapple::task::yield_now;
use dapple::{Color, JoinHandle};

/// Sets an event when its future has been polled and waits.
struct Waits<F> {
    future: Pin<Box<F>>,
    begun: Event,
}

impl<F: Future> Future for Waits<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let polled = self.future.as_mut().poll(cx);
        if polled.is_pending() {
            self.begun.set();
        }
        polled
    }
}

fn waits<F: Future>(future: F) -> (Waits<F>, Event) {
    let begun = Event::default();
    (Waits { future: Box::pin(future), begun: begun.clone() }, begun)
}

#[test]
fn cancel_ends_a_wait_and_the_handle_can_be_awaited_elsewhere() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        for in_color in [false, true] {
            let gate = Event::default();
            let go = gate.clone();
            let mut slow = rt.spawn(async move {
                dapple::shield(go.happened()).await;
                5
            });
            let (wait, begun) = waits(async move {
                let error = (&mut slow).await.unwrap_err();
                assert!(error.is_cancelled() && !error.is_aborted() && !error.is_gone());
                // Every later wait of a cancelled task is cancelled too, at once.
                assert!((&mut slow).await.unwrap_err().is_cancelled());
                assert!(dapple::spawn(async {}).await.unwrap_err().is_cancelled());
                yield_now().await; // is not a wait
                slow
            });
            let waiter = if in_color { rt.handle().color().spawn(wait) } else { rt.spawn(wait) };
            begun.wait();
            waiter.cancel();
            waiter.cancel();
            let slow = rt.block_on(waiter).expect("a cancelled task ends by itself");
            gate.set();
            assert_eq!(rt.block_on(slow).unwrap(), 5, "the task that was waited for was not cancelled");
        }
    });
}

#[test]
fn cancel_reaches_a_task_that_has_not_begun_and_local_ones() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        rt.block_on(async {
            let wait = || async { dapple::spawn(pending::<()>()).await.unwrap_err().is_cancelled() };
            let tasks = [dapple::spawn(wait()), dapple::spawn_local(wait()), Color::main().spawn(wait())];
            for task in tasks {
                task.cancel();
                assert!(task.await.unwrap());
            }
        });
    });
}

#[test]
fn a_result_that_arrived_during_a_wait_is_returned_not_cancelled() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let (gate, color) = (Event::default(), rt.handle().color());
        let go = gate.clone();
        let slow = rt.spawn(async move {
            dapple::shield(go.happened()).await;
            5
        });
        let slow_task = slow.task().unwrap().clone();
        let (wait, begun) = waits(slow);
        let waiter = color.spawn(wait);
        begun.wait();
        // While this has the color, the waiter cannot be polled: the result comes, then the cancel.
        let waiter_task = waiter.task().unwrap().clone();
        let judge = color.call(move || {
            gate.set();
            while !slow_task.is_finished() {
                give_way();
            }
            waiter_task.cancel();
        });
        rt.block_on(judge).unwrap();
        let result = rt.block_on(waiter).unwrap();
        assert_eq!(result.expect("a result that was there"), 5);
    });
}

/// As `futures`' combinators do: polls its one future with a waker of its own, and only after
/// that waker was woken.
struct Picky<F> {
    future: Pin<Box<F>>,
    own: Arc<OwnWaker>,
}

#[derive(Default)]
struct OwnWaker {
    woken: AtomicBool,
    outer: Mutex<Option<Waker>>,
}

impl Wake for OwnWaker {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        let outer = self.outer.lock().unwrap().clone();
        outer.into_iter().for_each(Waker::wake);
    }
}

impl<F: Future> Picky<F> {
    fn new(future: F) -> Picky<F> {
        let own = Arc::new(OwnWaker { woken: AtomicBool::new(true), outer: Mutex::default() });
        Picky { future: Box::pin(future), own }
    }
}

impl<F: Future> Future for Picky<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        *self.own.outer.lock().unwrap() = Some(cx.waker().clone());
        if !self.own.woken.swap(false, Ordering::SeqCst) {
            return Poll::Pending;
        }
        let waker = Waker::from(self.own.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

#[test]
fn cancel_reaches_waits_behind_a_foreign_waker() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        for round in 0..rounds(100, 20) {
            let inner = rt.spawn(pending::<()>());
            let stop = inner.task().unwrap().clone();
            let (wait, begun) = waits(Picky::new(Picky::new(inner)));
            let waiter = rt.spawn(wait);
            if round % 2 == 0 {
                begun.wait(); // else the cancel may come before, while or after the wait is registered
            }
            waiter.cancel();
            assert!(rt.block_on(waiter).unwrap().unwrap_err().is_cancelled());
            drop(stop);
        }
        // And a wait that has moved to another waker, task and wait in between.
        let gate = Event::default();
        let go = gate.clone();
        let first = rt.spawn(async move { go.happened().await });
        let never = rt.spawn(pending::<()>());
        let (wait, begun) = waits(Picky::new(async move {
            first.await.unwrap();
            never.await
        }));
        let waiter = rt.spawn(wait);
        begun.wait();
        gate.set();
        waiter.cancel();
        let ended = rt.block_on(waiter);
        assert!(ended.map_or_else(|error| error.is_panic(), |wait| wait.unwrap_err().is_cancelled()));
    });
}

#[test]
fn a_panicking_waker_does_not_stop_other_tasks_from_being_cancelled() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as asked");
        }
    }
    in_both_worlds(20, || {
        let rt = runtime(1);
        let never = rt.spawn(pending::<()>());
        let begun = Event::default();
        let begin = begun.clone();
        let waiter = rt.spawn(async move {
            let mut never = never;
            let result = poll_fn(|_| {
                let waker = Waker::from(Arc::new(Panics));
                let polled = Pin::new(&mut never).poll(&mut Context::from_waker(&waker));
                begin.set();
                polled
            });
            result.await.unwrap_err().is_cancelled()
        });
        begun.wait();
        waiter.cancel();
        assert!(rt.block_on(waiter).unwrap());
        // The same waker, for a join.
        let gate = Event::default();
        let go = gate.clone();
        let mut joined = rt.spawn(async move { go.happened().await });
        let waker = Waker::from(Arc::new(Panics));
        assert!(Pin::new(&mut joined).poll(&mut Context::from_waker(&waker)).is_pending());
        gate.set();
        rt.block_on(joined).unwrap();
        assert_eq!(rt.block_on(rt.spawn(async { 5 })).unwrap(), 5);
    });
}

#[test]
fn abort_drops_the_future_in_its_own_color() {
    /// Checks the color in which it is dropped.
    struct Ask(mpsc::Sender<Color>, Arc<Alone>);
    impl Drop for Ask {
        fn drop(&mut self) {
            self.1.visit(|| self.0.send(Color::current()).unwrap());
        }
    }
    in_both_worlds(20, || {
        let rt = runtime(2);
        let (color, alone) = (rt.handle().color(), Arc::new(Alone::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let busy = color.spawn({
            let (alone, stop) = (alone.clone(), stop.clone());
            async move {
                while !stop.load(Ordering::Relaxed) {
                    alone.visit(|| ());
                    yield_now().await;
                }
            }
        });
        for _ in 0..rounds(100, 20) {
            let (send, receive) = mpsc::channel();
            let ask = Ask(send, alone.clone());
            let (wait, begun) = waits(async move {
                let _kept = ask;
                pending::<()>().await;
            });
            let task = color.spawn(wait);
            begun.wait();
            task.abort();
            assert!(rt.block_on(task).unwrap_err().is_aborted());
            assert_eq!(receive.recv().unwrap(), color);
        }
        stop.store(true, Ordering::Relaxed);
        rt.block_on(busy).unwrap();
    });
}

#[test]
fn a_joiner_may_change_give_up_and_come_back() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let (gate, drops) = (Event::default(), Drops::default());
        let go = gate.clone();
        let guard = drops.guard();
        let mut slow = rt.spawn(async move {
            dapple::shield(go.happened()).await;
            guard
        });
        let mut noop = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut slow).poll(&mut noop).is_pending());
        // Polled by one task, dropped there, then by another, then by a thread.
        for _ in 0..2 {
            let (wait, begun) = waits(slow);
            let holder = rt.spawn(poll_once_then_return(wait));
            begun.wait();
            slow = rt.block_on(holder).unwrap();
        }
        gate.set();
        drop(foreign_block_on(slow).unwrap());
        assert_eq!(drops.count(), 1);
    });
}

async fn poll_once_then_return<T>(mut wait: Waits<JoinHandle<T>>) -> JoinHandle<T> {
    poll_fn(|cx| {
        assert!(Pin::new(&mut wait).poll(cx).is_pending());
        Poll::Ready(())
    })
    .await;
    *Pin::into_inner(wait.future)
}

#[test]
fn joining_races_with_the_end() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let (count, drops) = (Arc::new(AtomicUsize::new(0)), Drops::default());
        let tasks = rounds(3000, 60);
        for i in 0..tasks {
            let (count, guard) = (count.clone(), drops.guard());
            let task = rt.spawn(async move {
                count.fetch_add(1, Ordering::Relaxed);
                guard
            });
            match i % 3 {
                0 => drop(foreign_block_on(task).unwrap()),
                1 => task.detach(),
                _ => {
                    let other = start_thread(move || drop(task));
                    other.join().unwrap();
                }
            }
        }
        crate::common::eventually("all outputs are dropped", || drops.count() == tasks);
        assert_eq!(count.load(Ordering::Relaxed), tasks);
    });
}

#[dapple::test(sim, seeds = 20)]
async fn a_cancelled_wait_is_known_as_such_through_io_errors() {
    let task = dapple::spawn(async {
        dapple::task::current().cancel();
        let (_sender, mut receiver) = dapple::channel::mpsc::bounded::<()>(1);
        let semaphore = dapple::sync::Semaphore::new(0);
        let other = dapple::spawn(std::future::pending::<()>());
        let errors: [std::io::Error; 3] = [
            receiver.recv().await.unwrap_err().into(),
            semaphore.acquire().await.unwrap_err().into(),
            other.await.unwrap_err().into(),
        ];
        errors.iter().all(dapple::is_cancelled)
    });
    assert!(task.await.unwrap());
    let (sender, mut receiver) = dapple::channel::mpsc::bounded::<()>(1);
    drop(sender);
    assert!(!dapple::is_cancelled(&receiver.recv().await.unwrap_err().into()));
}
