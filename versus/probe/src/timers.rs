//! Timers that are given up, and timers that fire.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use dapple::time::sleep;

/// Timers that are entered and dropped before they fire, as those of timeouts are.
pub(crate) async fn dropped(count: usize) {
    for number in 0..count {
        let mut sleep = pin!(sleep(Duration::from_secs(1 + number as u64 % 60)));
        poll_fn(|cx| {
            assert!(sleep.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    }
}

/// Timers that fire, one after the other, while the worker has nothing else to do.
pub(crate) async fn fired(count: usize) {
    for _ in 0..count {
        sleep(Duration::from_millis(1)).await.expect("a runtime that goes on");
    }
}
