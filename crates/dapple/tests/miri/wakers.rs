//! Stored wakers and reports of panics, for Miri (`ci/miri`): foreign wakers whose functions panic, packed into the word of
//! a oneshot and taken out of it again on every path, and hooks that look at the task that panicked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::common::{eventually, foreign_block_on};
use crate::hostile_common::{FUNCTIONS, Hostile};
use dapple::Runtime;
use dapple::channel::oneshot;
use dapple::task::{Builder, Task};

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Option<Poll<F::Output>> {
    catch_unwind(AssertUnwindSafe(|| Pin::new(future).poll(&mut Context::from_waker(waker)))).ok()
}

/// Calls `happens` on a receiver that waits with a hostile waker. Returns the message that the receiver gets. Fails if a
/// waker is left.
fn with_hostile(
    function: &'static str,
    happens: impl FnOnce(oneshot::Sender<Box<u32>>, &mut Option<oneshot::Receiver<Box<u32>>>),
) -> Option<u32> {
    let hostile = Arc::new(Hostile::default());
    let waker = hostile.waker();
    let (sender, mut receiver) = oneshot::channel();
    assert!(matches!(poll(&mut receiver, &waker), Some(Poll::Pending)));
    let mut receiver = Some(receiver);
    hostile.arm(Some(function));
    catch_unwind(AssertUnwindSafe(|| happens(sender, &mut receiver))).expect("no panic of a waker gets out");
    hostile.arm(None);
    let got = receiver.as_mut().and_then(|receiver| foreign_block_on(receiver).ok());
    drop((receiver, waker));
    assert_eq!(Arc::strong_count(&hostile), 1, "no waker is leaked, none is dropped twice");
    got.map(|got| *got)
}

#[test]
fn a_hostile_waker_in_a_oneshot_is_taken_out_on_every_path() {
    for function in FUNCTIONS.into_iter().filter(|function| *function != "clone") {
        let sent = with_hostile(function, |sender, _| sender.send(Box::new(7)).unwrap());
        assert_eq!(sent, Some(7));
        assert_eq!(with_hostile(function, |sender, _| drop(sender)), None);
        let closed = with_hostile(function, |sender, receiver| {
            receiver.as_mut().unwrap().close();
            assert_eq!(*sender.send(Box::new(7)).unwrap_err(), 7);
        });
        assert_eq!(closed, None);
        let dropped = with_hostile(function, |sender, receiver| {
            drop(receiver.take());
            assert!(sender.is_closed());
        });
        assert_eq!(dropped, None);
        // Withdrawn, for another waker.
        let moved = with_hostile(function, |sender, receiver| {
            assert!(matches!(poll(receiver.as_mut().unwrap(), Waker::noop()), Some(Poll::Pending)));
            sender.send(Box::new(7)).unwrap();
        });
        assert_eq!(moved, Some(7));
    }
}

/// Hands over on another thread, while the receiver is polled with one waker after the other.
#[test]
fn hostile_wakers_in_a_oneshot_are_exchanged_beside_a_send() {
    for function in ["wake", "drop"] {
        let (first, second) = (Arc::new(Hostile::default()), Arc::new(Hostile::default()));
        let wakers = [first.waker(), second.waker()];
        let (sender, mut receiver) = oneshot::channel::<Box<u32>>();
        assert!(matches!(poll(&mut receiver, &wakers[0]), Some(Poll::Pending)));
        first.arm(Some(function));
        second.arm(Some(function));
        let sends = std::thread::spawn(move || sender.send(Box::new(7)).unwrap());
        let got = (0..100).find_map(|i| match poll(&mut receiver, &wakers[i % 2])? {
            Poll::Ready(got) => Some(*got.unwrap()),
            Poll::Pending => {
                std::thread::yield_now();
                None
            }
        });
        sends.join().unwrap();
        assert_eq!(got.unwrap_or_else(|| *foreign_block_on(receiver).unwrap()), 7);
        first.arm(None);
        second.arm(None);
        drop(wakers);
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 1));
    }
}

/// The hook looks at everything, keeps the task, and panics itself. With a handle and without, of every kind of task.
#[test]
fn a_hook_that_keeps_the_task_and_panics() {
    let kept: Arc<Mutex<Vec<(Task, String, bool)>>> = Arc::default();
    let keeps = kept.clone();
    let hook = move |report: &dapple::runtime::PanicReport<'_>| {
        assert!(report.payload().downcast_ref::<&str>().is_some());
        keeps.lock().unwrap().push((report.task().clone(), report.message().to_owned(), report.has_handle()));
        std::panic::panic_any(Box::new(1)); // a payload to be dropped, too
    };
    let rt = Runtime::builder().workers(2).on_panic(hook).build().unwrap();
    let color = rt.handle().color();
    rt.block_on(async {
        let handle = Builder::new().name("handle").spawn(async { panic!("one") });
        let handle: Result<(), _> = handle.await;
        assert!(handle.unwrap_err().is_panic());
        let (go, goes) = oneshot::channel::<()>();
        let detached = async {
            let _ = goes.await;
            panic!("two")
        };
        Builder::new().name("detached").color(&color).spawn(detached).detach();
        drop(go); // not before it is detached
        let call: Result<(), _> = dapple::blocking(|| panic!("three")).await;
        assert!(call.unwrap_err().is_panic());
    });
    eventually("all are reported", || kept.lock().unwrap().len() == 3 && rt.metrics().panics == 6);
    rt.block_on(rt.spawn(async {})).unwrap();
    drop((rt, color));
    let mut kept = std::mem::take(&mut *kept.lock().unwrap());
    kept.sort_by(|one, other| one.1.cmp(&other.1));
    let told: Vec<_> = kept.iter().map(|(_, message, has_handle)| (message.as_str(), *has_handle)).collect();
    assert_eq!(told, [("one", true), ("three", true), ("two", false)]);
    assert_eq!(kept[0].0.name(), "handle");
}
