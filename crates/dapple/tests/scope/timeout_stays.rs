//! A future that `timeout`, `race` and `JoinHandle::cancel` wait for is not dropped later: the task may be polled for
//! other reasons meanwhile, and a foreign waker may be passed on late.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use dapple::channel::mpsc;
use dapple::sim::Sim;
use dapple::time::{Duration, sleep, timeout};
use dapple::{finish_local, race, shield, spawn_local};
use futures_util::future::join;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Has its task polled again and again, for 100 ms.
async fn ticks() {
    for _ in 0..100 {
        shield(sleep(MS)).await.unwrap();
    }
}

/// A scope whose body, once it is cancelled, starts clean-up that must be done to its end, and ends. `is_clean`: it was.
async fn cleans_up(is_clean: Rc<Cell<bool>>) {
    finish_local(async |scope| {
        assert!(sleep(HOUR).await.is_err());
        scope.start(async {
            shield(sleep(50 * MS)).await.unwrap();
            is_clean.set(true);
        });
    })
    .await;
}

#[test]
fn clean_up_started_in_a_scope_whose_time_is_up_is_done_to_its_end() {
    Sim::new(0).run(async {
        let is_clean = Rc::new(Cell::new(false));
        let (late, ()) = join(timeout(10 * MS, cleans_up(is_clean.clone())), ticks()).await;
        assert_eq!(late.unwrap_err().into_inner(), Some(()));
        assert!(is_clean.get());
    });
}

#[test]
fn clean_up_started_in_a_scope_that_lost_a_race_is_done_to_its_end() {
    Sim::new(0).run(async {
        let is_clean = Rc::new(Cell::new(false));
        let winner = async { sleep(10 * MS).await.unwrap() };
        join(race((cleans_up(is_clean.clone()), winner)), ticks()).await;
        assert!(is_clean.get());
    });
}

#[test]
fn clean_up_started_in_a_scope_of_a_cancelled_task_is_done_to_its_end() {
    Sim::new(0).run(async {
        let is_clean = Rc::new(Cell::new(false));
        let task = spawn_local(cleans_up(is_clean.clone()));
        for _ in 0..20 {
            sleep(MS).await.unwrap();
            task.cancel(); // polls it again
        }
        task.await.unwrap();
        assert!(is_clean.get());
    });
}

/// A waker that is passed on when [`pass_on`] comes by.
#[derive(Default)]
struct Late {
    is_woken: AtomicBool,
    is_to_poll: AtomicBool,
    around: Mutex<Option<Waker>>,
}

impl Wake for Late {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
    }
}

impl Late {
    fn pass_on(&self) {
        if self.is_woken.swap(false, Ordering::SeqCst) {
            self.is_to_poll.store(true, Ordering::SeqCst);
            self.around.lock().unwrap().take().inspect(Waker::wake_by_ref);
        }
    }
}

/// Polls a future only when its waker was passed on.
struct PolledLate<F> {
    future: Pin<Box<F>>,
    late: Arc<Late>,
}

impl<F: Future> Future for PolledLate<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        *self.late.around.lock().unwrap() = Some(cx.waker().clone());
        if !self.late.is_to_poll.swap(false, Ordering::SeqCst) {
            return Poll::Pending;
        }
        let waker = Waker::from(self.late.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

#[test]
fn a_wait_put_off_with_a_waker_that_is_late_returns_cancelled() {
    Sim::new(0).run(async {
        let (sender, mut receiver) = mpsc::unbounded();
        for message in 0..300 {
            sender.send(message).await.unwrap();
        }
        let late = Arc::new(Late::default());
        let takes = async {
            let mut taken = Vec::new();
            dapple::sim::work(20 * MS); // the time is up before the first message is taken
            while let Ok(message) = receiver.recv().await {
                taken.push(message);
            }
            taken
        };
        let polled_late = PolledLate { future: Box::pin(takes), late: late.clone() };
        let passes_on = async {
            for _ in 0..100 {
                shield(sleep(5 * MS)).await.unwrap();
                late.pass_on();
            }
        };
        late.is_to_poll.store(true, Ordering::SeqCst);
        let (result, ()) = join(timeout(10 * MS, polled_late), passes_on).await;
        let mut messages =
            result.unwrap_err().into_inner().expect("it was dropped with messages in its hands");
        while let Ok(message) = receiver.try_recv() {
            messages.push(message);
        }
        assert_eq!(messages, (0..300).collect::<Vec<_>>());
    });
}

#[test]
fn an_elapsed_timeout_is_an_io_error_that_keeps_the_late_result() {
    use dapple::time::Elapsed;
    use std::io;

    async fn in_time(limit: Duration) -> io::Result<&'static str> {
        let late = async {
            let waited = sleep(HOUR).await;
            if waited.is_ok() { "in time" } else { "late" }
        };
        Ok(timeout(limit, late).await?)
    }

    Sim::new(0).run(async {
        assert_eq!(in_time(2 * HOUR).await.unwrap(), "in time");
        let error = in_time(MS).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(!dapple::is_cancelled(&error), "the time was up: no one has cancelled the caller");
        let elapsed = error.downcast::<Elapsed<&str>>().unwrap();
        assert_eq!(elapsed.into_inner(), Some("late"));
    });
}
