//! Wakers of other executors that poll, or block, in the thread that wakes: a poll finds its way, and none waits for a state
//! that this thread is still to leave.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use dapple::shared::when;
use dapple::{Shared, together};

use crate::common::{Event, foreign_block_on, start_thread, watched};

/// A task of an executor that polls where it is woken, unless it is being polled.
struct OnTheSpot(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl OnTheSpot {
    fn begin(wait: impl Future<Output = ()> + Send + 'static) -> Arc<OnTheSpot> {
        let task = Arc::new(OnTheSpot(Mutex::new(Some(Box::pin(wait)))));
        task.clone().wake();
        task
    }

    fn is_done(&self) -> bool {
        self.0.try_lock().is_ok_and(|wait| wait.is_none())
    }
}

impl Wake for OnTheSpot {
    fn wake(self: Arc<Self>) {
        let Ok(mut wait) = self.0.try_lock() else { return };
        let waker = Waker::from(self.clone());
        if wait.as_mut().is_some_and(|wait| wait.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()) {
            *wait = None;
        }
    }
}

/// How many of some tasks are done.
fn done(tasks: &[Arc<OnTheSpot>]) -> usize {
    tasks.iter().filter(|task| task.is_done()).count()
}

/// Tasks that wait for a state to be 1.
fn readers(count: usize, state: &Shared<u32>) -> Vec<Arc<OnTheSpot>> {
    let begin = |_| {
        let state = state.clone();
        OnTheSpot::begin(async move {
            when(state.reading(), |state| (*state == 1).then_some(())).await.unwrap();
        })
    };
    (0..count).map(begin).collect()
}

/// Tasks that wait for a state to be 1, and count in another one.
fn writers(count: usize, state: &Shared<u32>, sum: &Shared<usize>) -> Vec<Arc<OnTheSpot>> {
    let begin = |_| {
        let (state, sum) = (state.clone(), sum.clone());
        OnTheSpot::begin(async move {
            let waits =
                when((state.writing(), sum.writing()), |(state, sum)| (*state == 1).then(|| *sum += 1));
            waits.await.unwrap();
        })
    };
    (0..count).map(begin).collect()
}

#[test]
fn watchers_that_are_woken_by_one_that_leaves_several_states_may_poll_at_once() {
    watched(|| {
        let (one, two, sum) = (Shared::new(0), Shared::new(0), Shared::new(0));
        let tasks = [readers(2, &one), writers(2, &one, &sum)].concat();
        foreign_block_on(together((one.writing(), two.writing()), |(one, _)| *one = 1)).unwrap();
        assert_eq!(done(&tasks), 4);
    });
}

#[test]
fn more_watchers_than_are_woken_at_a_time_may_poll_at_once() {
    watched(|| {
        let (one, two, sum) = (Shared::new(0), Shared::new(0), Shared::new(0));
        let tasks = [readers(40, &one), writers(4, &one, &sum)].concat();
        let write = when((one.writing(), two.writing()), |(one, _)| {
            *one = 1;
            Some(())
        });
        foreign_block_on(write).unwrap();
        assert_eq!((done(&tasks), sum.try_read(|sum| *sum)), (44, Ok(4)));
    });
}

#[test]
fn watchers_that_pass_a_wake_up_on_may_poll_at_once() {
    watched(|| {
        let (state, sum) = (Shared::new(0), Shared::new(0));
        let tasks = writers(4, &state, &sum);
        foreign_block_on(state.write(|state| *state = 1)).unwrap();
        assert_eq!((done(&tasks), sum.try_read(|sum| *sum)), (4, Ok(4)));
    });
}

#[test]
fn a_waiter_in_line_for_one_of_several_states_may_poll_at_once() {
    watched(|| {
        for at in 0..2 {
            let states = [Shared::new(0), Shared::new(0)];
            let (inside, let_go) = (Event::default(), Event::default());
            let holder = start_thread({
                let (states, inside, let_go) = (states.clone(), inside.clone(), let_go.clone());
                move || {
                    foreign_block_on(together((states[0].writing(), states[1].writing()), |_| {
                        inside.set();
                        let_go.wait();
                    }))
                }
            });
            inside.wait();
            let state = states[at].clone();
            let task = OnTheSpot::begin(async move { state.write(|state| *state = 7).await.unwrap() });
            let_go.set();
            assert_eq!(holder.join().unwrap(), Ok(()));
            assert!(task.is_done());
            assert_eq!(states[at].try_read(|state| *state), Ok(7));
        }
    });
}

/// Calls a function where it is woken.
struct Runs<F>(F, AtomicUsize);

impl<F: Fn() + Send + Sync> Wake for Runs<F> {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, SeqCst);
        (self.0)();
    }
}

/// Deadlock: a thread outside of runtimes sets no alarm, and wakes all watchers. It has left the state before that.
#[test]
fn a_blocking_waker_of_a_watcher_does_not_wait_for_its_writer() {
    watched(|| {
        let (state, sum) = (Shared::new(0), Shared::new(0));
        let blocks = state.clone();
        let runs = Arc::new(Runs(move || blocks.write_blocking(|_| ()).unwrap(), AtomicUsize::new(0)));
        let waker = Waker::from(runs.clone());
        let begin = |_| {
            let waits =
                when((state.writing(), sum.writing()), |(state, sum)| (*state == 1).then(|| *sum += 1));
            let mut waits = Box::pin(waits);
            assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            waits
        };
        let mut tasks: Vec<_> = (0..3).map(begin).collect();
        state.try_write(|state| *state = 1).unwrap();
        assert_eq!(runs.1.load(SeqCst), 3);
        for task in &mut tasks {
            assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        }
    });
}
