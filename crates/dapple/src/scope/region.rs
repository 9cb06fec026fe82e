//! A scope without children: what is polled in it can be cancelled by itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Waker};

use crate::task::cancel::{Item, is_current_cancelled};
use crate::task::here::here;
use crate::task::reach::{Link, Reach};

/// See the head of the file. Only its owner cancels it, and polls what is in it again then.
pub(super) struct Region {
    reach: Arc<Reach>,
    /// How it learns of a cancel from outside.
    outer: Item,
    /// A race that is decided. LOST in `reach`
    is_lost: bool,
}

impl Region {
    pub(super) fn new() -> Region {
        Region { reach: Reach::new(), outer: Item::default(), is_lost: false }
    }

    /// Cancels what is in it, which is to be polled after this.
    pub(super) fn cancel(&self) {
        self.reach.cancel();
    }

    /// Cancels what is in it, whose result is not wanted any more. LOST in `reach`
    pub(super) fn lose(&mut self) {
        self.is_lost = true;
        self.cancel();
    }

    /// Calls `poll` inside. What is polled there uses the waker of `cx`. If it panics, that is returned.
    pub(super) fn poll<R>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> R,
    ) -> std::thread::Result<R> {
        here(|here| {
            if !self.reach.is_cancelled() && is_current_cancelled() {
                self.reach.cancel();
            }
            let waker: *const Waker = cx.waker();
            let own = here.own.replace(waker);
            let link = Link::of_region(Arc::as_ptr(&self.reach), self.is_lost);
            let polled = link.around(here, || catch_unwind(AssertUnwindSafe(|| poll(cx))));
            here.own.set(own);
            polled
        })
    }

    /// Before `Pending` is returned.
    pub(super) fn rest(&mut self, cx: &mut Context<'_>) {
        self.outer.link_only(cx.waker());
    }

    /// Before a result is returned.
    pub(super) fn end(&mut self) {
        self.outer.unlink();
        self.reach.end();
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.reach.end();
    }
}
