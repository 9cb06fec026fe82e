//! How programs are polled: so that all operations block, or as foreign code does it.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use super::generate::Dice;

/// Lets some of its waiters pass, whenever it is opened.
pub(super) struct Gate(Mutex<(Dice, Vec<Arc<Passes>>)>);

/// A waiter at a gate.
struct Passes {
    may: AtomicBool,
    waker: Mutex<Waker>,
}

impl Gate {
    pub(super) fn new(dice: Dice) -> Gate {
        Gate(Mutex::new((dice, Vec::new())))
    }

    pub(super) async fn pass(&self) {
        let mut passes: Option<Arc<Passes>> = None;
        std::future::poll_fn(|cx| match &passes {
            Some(passes) if passes.may.load(Ordering::Acquire) => Poll::Ready(()),
            Some(passes) => {
                passes.waker.lock().expect("nobody panics").clone_from(cx.waker());
                Poll::Pending
            }
            None => {
                let new = Passes { may: AtomicBool::new(false), waker: Mutex::new(cx.waker().clone()) };
                let new = passes.insert(Arc::new(new));
                self.0.lock().expect("nobody panics").1.push(new.clone());
                Poll::Pending
            }
        })
        .await;
    }

    fn open(&self) {
        let mut chosen = Vec::new();
        {
            let (dice, waiting) = &mut *self.0.lock().expect("nobody panics");
            while !waiting.is_empty() && (chosen.is_empty() || dice.below(2) == 0) {
                chosen.push(waiting.swap_remove(dice.below(waiting.len())));
            }
        }
        for passes in chosen {
            passes.may.store(true, Ordering::Release);
            passes.waker.lock().expect("nobody panics").wake_by_ref();
        }
    }

    /// Runs a program, and opens the gate between two polls.
    pub(super) async fn around(gate: Option<&Gate>, program: impl Future<Output = ()>) {
        let mut program = pin!(program);
        std::future::poll_fn(|cx| {
            let polled = program.as_mut().poll(cx);
            if let (Poll::Pending, Some(gate)) = (polled, gate) {
                gate.open();
            }
            polled
        })
        .await;
    }
}

/// Polls a future as `FuturesUnordered` or `join_all` would: only if the waker was used that it was given.
pub(super) async fn foreign<F: Future>(future: F) -> F::Output {
    struct Own {
        is_woken: AtomicBool,
        outer: Mutex<Waker>,
    }
    impl Wake for Own {
        fn wake(self: Arc<Own>) {
            self.is_woken.store(true, Ordering::Release);
            let outer = self.outer.lock().expect("nobody panics").clone();
            outer.wake();
        }
    }
    let own = Arc::new(Own { is_woken: AtomicBool::new(true), outer: Mutex::new(Waker::noop().clone()) });
    let waker = Waker::from(own.clone());
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        own.outer.lock().expect("nobody panics").clone_from(cx.waker());
        match own.is_woken.swap(false, Ordering::AcqRel) {
            true => future.as_mut().poll(&mut Context::from_waker(&waker)),
            false => Poll::Pending,
        }
    })
    .await
}
