//! Foreign code that panics or blocks around shared states: wakers, destructors, closures that are never
//! called. A state is left free, and the others go on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::common::{Event, eventually, foreign_block_on, in_both_worlds, runtime, start_thread, watched};
use crate::shared_common::{Bell, Held, poll, settle};
use dapple::shared::when;
use dapple::{Shared, together, together_all};

/// A waker of which one part panics.
struct Jumpy {
    when_woken: bool,
    when_dropped: bool,
}

impl Wake for Jumpy {
    fn wake(self: Arc<Self>) {
        assert!(!self.when_woken, "a waker that panics when it is used");
    }
}

impl Drop for Jumpy {
    fn drop(&mut self) {
        // Twice at a time would end the process.
        assert!(!self.when_dropped || std::thread::panicking(), "a waker that panics when it is dropped");
    }
}

fn poll_with<F: Future + Unpin>(waker: &Waker, future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Polls with a waker of which only the future keeps a clone.
fn poll_jumpy<F: Future + Unpin>(when_woken: bool, when_dropped: bool, future: &mut F) -> Poll<F::Output> {
    let jumpy = Arc::new(Jumpy { when_woken, when_dropped });
    let waker = Waker::from(jumpy);
    assert!(settle(future).is_pending());
    let polled = poll_with(&waker, future);
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(waker)));
    assert!(dropped.is_ok() || polled.is_ready(), "somebody else has it");
    polled
}

/// Whatever comes of it, including a panic.
fn try_to<T>(f: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(f)).ok()
}

#[test]
fn a_panicking_waker_does_not_stop_other_wake_ups() {
    in_both_worlds(5, || {
        let (state, other) = (Shared::new(0), Shared::new(0));
        let held = Held::writing(&state);
        let bell = Bell::default();
        let mut reads: Vec<_> = (0..3).map(|_| state.read(|value| *value)).collect();
        let mut both = together((state.reading(), other.writing()), |(value, _)| *value);
        assert!(bell.settle(&mut reads[0]).is_pending());
        assert!(poll_jumpy(true, false, &mut reads[1]).is_pending());
        assert!(poll_jumpy(true, false, &mut both).is_pending());
        assert!(bell.settle(&mut reads[2]).is_pending());
        held.let_go();
        assert!(bell.has_rung());
        // The waiters behind are woken at once, or by the waiters in front of them.
        for read in &mut reads {
            assert_eq!(settle(read), Poll::Ready(Ok(0)));
        }
        assert_eq!(settle(&mut both), Poll::Ready(Ok(0)));
        assert_eq!(state.try_write(|_| ()), Ok(()));
    });
}

/// The wait with this waker is second in line, is polled without having been woken, and takes the state for which the
/// first was woken.
#[test]
fn a_waker_that_panics_when_it_is_dropped_takes_no_state_with_it() {
    in_both_worlds(5, || {
        for kind in 0..4 {
            let (state, other) = (Shared::new(0), Shared::new(0));
            let held = Held::writing(&state);
            let mut first = state.write(|_| ());
            assert!(settle(&mut first).is_pending());
            let all = [state.writing(), other.writing()];
            let mut second: Pin<Box<dyn Future<Output = _>>> = match kind {
                0 => Box::pin(state.read(|_| ())),
                1 => Box::pin(state.write(|_| ())),
                2 => Box::pin(together((other.writing(), state.writing()), |_| ())),
                _ => Box::pin(together_all(&all, |_| ())),
            };
            assert!(poll_jumpy(false, true, &mut second).is_pending());
            held.let_go();
            let bell = Bell::default();
            let polled = try_to(|| bell.poll(&mut second));
            assert!(!matches!(polled, Some(Poll::Pending)), "it takes what is free");
            drop(second);
            drop(first);
            assert_eq!(state.try_write(|_| ()), Ok(()), "kind {kind}");
            assert_eq!(other.try_write(|_| ()), Ok(()), "kind {kind}");
        }
    });
}

/// In a task, where a foreign waker is also kept for the case that the task is cancelled.
#[test]
fn a_panicking_waker_of_a_cancelled_wait_takes_no_state_with_it() {
    in_both_worlds(5, || {
        let rt = runtime(1);
        for kind in 0..3 {
            let (state, other) = (Shared::new(0), Shared::new(0));
            let held = Held::writing(&state);
            let (in_line, let_go) = (Event::default(), Event::default());
            let task = rt.spawn({
                let (state, other) = (state.clone(), other.clone());
                let (in_line, let_go) = (in_line.clone(), let_go.clone());
                async move {
                    let mut waits: Pin<Box<dyn Future<Output = _> + Send>> = match kind {
                        0 => Box::pin(state.read(|_| ())),
                        1 => Box::pin(state.write(|_| ())),
                        _ => Box::pin(together((other.writing(), state.writing()), |_| ())),
                    };
                    assert!(poll_jumpy(false, true, &mut waits).is_pending());
                    in_line.set();
                    let_go.happened().await;
                    let _ = try_to(|| poll(&mut waits));
                    let _ = try_to(|| drop(waits));
                }
            });
            in_line.wait();
            held.let_go();
            let_go.set();
            rt.block_on(task).unwrap();
            assert_eq!(state.try_write(|_| ()), Ok(()), "kind {kind}");
            assert_eq!(other.try_write(|_| ()), Ok(()), "kind {kind}");
        }
    });
}

/// Panics when it is dropped without having been defused.
struct Fuse<'a>(&'a AtomicBool);

impl Drop for Fuse<'_> {
    fn drop(&mut self) {
        assert!(!self.0.load(Ordering::SeqCst), "a closure that panics when it is dropped");
    }
}

#[test]
fn a_closure_that_panics_when_it_is_dropped_leaves_the_line() {
    in_both_worlds(5, || {
        let (state, other) = (Shared::new(0), Shared::new(0));
        for kind in 0..3 {
            let lit = AtomicBool::new(true);
            let fuse = Fuse(&lit);
            let closure = move |_: &mut i32| drop(fuse);
            let held = Held::writing(&state);
            let bell = Bell::default();
            let mut behind = state.write(|value| *value);
            let dropped = match kind {
                0 => {
                    let mut write = state.write(closure);
                    assert!(settle(&mut write).is_pending());
                    assert!(bell.settle(&mut behind).is_pending());
                    try_to(|| drop(write))
                }
                1 => {
                    let mut both =
                        together((state.writing(), other.writing()), move |(value, _)| closure(value));
                    assert!(settle(&mut both).is_pending());
                    assert!(bell.settle(&mut behind).is_pending());
                    try_to(|| drop(both))
                }
                _ => {
                    let all = [other.writing(), state.writing()];
                    let mut all = together_all(&all, move |all| closure(all[1]));
                    assert!(settle(&mut all).is_pending());
                    assert!(bell.settle(&mut behind).is_pending());
                    try_to(|| drop(all))
                }
            };
            assert!(dropped.is_none(), "it panicked");
            held.let_go();
            assert!(bell.has_rung(), "the first in line now");
            assert_eq!(poll(&mut behind), Poll::Ready(Ok(0)));
            assert_eq!(other.try_write(|_| ()), Ok(()));
        }
    });
}

/// Runs whatever it is given, in the thread that wakes.
struct Runs<F>(F, AtomicUsize);

impl<F: Fn() + Send + Sync + 'static> Wake for Runs<F> {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        (self.0)();
    }
}

/// Deadlock: a holder that leaves several states wakes the waiters of the first one. Their wakers run in the holder's
/// thread and may block on the others, so the holder must have left those too.
#[test]
fn a_blocking_waker_does_not_wait_for_its_caller() {
    watched(|| {
        for swap in [false, true] {
            let (one, two) = (Shared::named("one", 0), Shared::named("two", 0));
            // The state with the lower address is left last, so both orders are tried.
            let (waited_for, blocked_on) =
                if swap { (two.clone(), one.clone()) } else { (one.clone(), two.clone()) };
            let (inside, let_go) = (Event::default(), Event::default());
            let thread = start_thread({
                let (one, two) = (one.clone(), two.clone());
                let (inside, let_go) = (inside.clone(), let_go.clone());
                move || {
                    let both = together((one.writing(), two.writing()), |_| {
                        inside.set();
                        let_go.wait();
                    });
                    foreign_block_on(both)
                }
            });
            inside.wait();
            let blocks = blocked_on.clone();
            let runs = Arc::new(Runs(
                move || blocks.write_blocking(|value| *value += 1).unwrap(),
                AtomicUsize::new(0),
            ));
            let mut waits = waited_for.write(|_| ());
            assert!(poll_with(&Waker::from(runs.clone()), &mut waits).is_pending());
            let_go.set();
            assert_eq!(thread.join().unwrap(), Ok(()));
            assert!(runs.1.load(Ordering::SeqCst) >= 1, "it was woken");
            assert_eq!(poll(&mut waits), Poll::Ready(Ok(())));
            assert_eq!(one.try_write(|_| ()), Ok(()));
            assert_eq!(two.try_write(|_| ()), Ok(()));
        }
    });
}

/// A waker that polls other waits at once, in the thread of a holder that leaves several states.
#[test]
fn a_waker_may_wait_for_states_that_are_being_left() {
    const YES: usize = 1;
    const NO: usize = 2;
    watched(|| {
        // The holder is a `together`, or a `when` whose closure returns `Some` at the first or the second call.
        for (calls, swap) in [0, 1, 2].into_iter().flat_map(|calls| [(calls, false), (calls, true)]) {
            let (one, two) = (Shared::new(0), Shared::new(0));
            let waited_for = if swap { two.clone() } else { one.clone() };
            let (inside, let_go) = (Event::default(), Event::default());
            let thread = start_thread({
                let (one, two) = (one.clone(), two.clone());
                let (inside, let_go) = (inside.clone(), let_go.clone());
                move || {
                    let hold = || {
                        inside.set();
                        let_go.wait();
                    };
                    let both = (one.writing(), two.writing());
                    let mut called = 0;
                    match calls {
                        0 => foreign_block_on(together(both, |_| hold())),
                        _ => foreign_block_on(when(both, |_| {
                            hold();
                            called += 1;
                            (called == calls).then_some(())
                        })),
                    }
                }
            });
            inside.wait();
            let polled = Arc::new(AtomicUsize::new(0));
            let runs = Arc::new(Runs(
                {
                    let (one, two, polled) = (one.clone(), two.clone(), polled.clone());
                    move || {
                        let has_polled = try_to(|| {
                            let _ = poll(&mut one.write(|_| ()));
                            let _ = poll(&mut two.read(|_| ()));
                            let _ = poll(&mut together((one.writing(), two.reading()), |_| ()));
                            let _ = poll(&mut when((one.reading(), two.writing()), |_| None::<()>));
                        });
                        polled.store(if has_polled.is_some() { YES } else { NO }, Ordering::SeqCst);
                    }
                },
                AtomicUsize::new(0),
            ));
            let mut waits = waited_for.write(|_| ());
            assert!(poll_with(&Waker::from(runs.clone()), &mut waits).is_pending());
            let_go.set();
            eventually("the waker is called", || polled.load(Ordering::SeqCst) != 0);
            assert_eq!(polled.load(Ordering::SeqCst), YES, "{calls} {swap}: a poll in the waker panicked");
            assert_eq!(settle(&mut waits), Poll::Ready(Ok(())));
            assert_eq!(thread.join().unwrap(), Ok(()));
            assert_eq!([&one, &two].map(|state| state.try_write(|_| ())), [Ok(()), Ok(())]);
        }
    });
}

/// A waker that polls another wait at once, in the thread of the holder that leaves.
#[test]
fn a_waker_may_use_the_state_that_is_being_left() {
    in_both_worlds(5, || {
        let state = Shared::new(0);
        let held = Held::writing(&state);
        let mut waits = state.write(|value| *value);
        let its = state.clone();
        let runs = Arc::new(Runs(
            move || {
                its.try_write(|value| *value += 1).expect("it is free");
                assert_eq!(poll(&mut its.read(|value| *value)), Poll::Pending, "gives way");
            },
            AtomicUsize::new(0),
        ));
        assert!(poll_with(&Waker::from(runs.clone()), &mut waits).is_pending());
        held.let_go();
        assert_eq!(runs.1.load(Ordering::SeqCst), 1);
        assert_eq!(poll(&mut waits), Poll::Ready(Ok(1)));
    });
}
