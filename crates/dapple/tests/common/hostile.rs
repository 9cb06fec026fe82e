//! A waker whose functions panic, one of them at a time, and that counts its calls.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use crate::common::foreign_block_on;

/// Which of its functions panics, and how often each was called.
#[derive(Default)]
pub(crate) struct Hostile {
    panics_in: Mutex<Option<&'static str>>,
    calls: Mutex<BTreeMap<&'static str, usize>>,
    looks: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

impl Hostile {
    fn called(&self, function: &'static str) {
        *self.calls.lock().unwrap().entry(function).or_default() += 1;
        if let Ok(mut look) = self.looks.try_lock() // not while it looks
            && let Some(look) = &mut *look
        {
            look();
        }
        let panics = *self.panics_in.lock().unwrap() == Some(function);
        assert!(!panics, "hostile: {function}");
    }

    pub(crate) fn waker(self: &Arc<Hostile>) -> Waker {
        // SAFETY: the functions keep the contract of `RawWaker`: the data is a counted reference.
        unsafe { Waker::from_raw(RawWaker::new(Arc::into_raw(self.clone()).cast(), &VTABLE)) }
    }

    /// Calls `look` in each of its functions.
    pub(crate) fn at_each_call(&self, look: impl FnMut() + Send + 'static) {
        *self.looks.lock().unwrap() = Some(Box::new(look));
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.lock().unwrap().values().sum()
    }

    pub(crate) fn arm(&self, function: Option<&'static str>) {
        *self.panics_in.lock().unwrap() = function;
    }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        behind(data).called("clone");
        // SAFETY: the waker that is cloned has a reference.
        unsafe { Arc::increment_strong_count(data.cast::<Hostile>()) };
        RawWaker::new(data, &VTABLE)
    },
    |data| {
        // SAFETY: the waker gives its reference away.
        let hostile = unsafe { Arc::from_raw(data.cast::<Hostile>()) };
        hostile.called("wake");
    },
    |data| behind(data).called("wake_by_ref"),
    |data| {
        // SAFETY: as above.
        let hostile = unsafe { Arc::from_raw(data.cast::<Hostile>()) };
        hostile.called("drop");
    },
);

fn behind<'a>(data: *const ()) -> &'a Hostile {
    // SAFETY: the waker that is used has a reference.
    unsafe { &*data.cast::<Hostile>() }
}

pub(crate) const FUNCTIONS: [&str; 4] = ["clone", "wake", "wake_by_ref", "drop"];

/// One waiter with a hostile waker that panics once it waits. Then it happens, and it is polled again with an honest
/// waker: what it waited for is there.
pub(crate) fn is_not_lost<F: Future<Output = T> + ?Sized, T>(
    name: &str,
    function: &'static str,
    mut future: Pin<Box<F>>,
    happen: impl FnOnce(),
) -> T {
    let hostile = Arc::new(Hostile::default());
    let waker = hostile.waker();
    if function == "clone" {
        hostile.arm(Some(function));
    }
    let polled =
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()));
    assert!(!polled.unwrap_or(false), "{name}: it has not happened yet");
    hostile.arm(Some(function));
    let happened = catch_unwind(AssertUnwindSafe(happen));
    assert!(happened.is_ok(), "{name}, {function}: who makes it happen is not harmed");
    hostile.arm(None);
    let output = foreign_block_on(future.as_mut());
    drop(future);
    drop(waker);
    // The runtime may still be about to drop its own: it is counted, and not used any more.
    for _ in 0..1000 {
        if Arc::strong_count(&hostile) == 1 {
            return output;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{name}, {function}: a waker is leaked");
}
