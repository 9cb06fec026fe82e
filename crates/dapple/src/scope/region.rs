//! A scope without children: what is polled in it can be cancelled by itself, and is dropped if it cannot be told.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;
use std::sync::Arc;
use std::task::{Context, Waker};

use crate::task::cancel::{Item, has_linked, is_current_cancelled};
use crate::task::here::here;
use crate::task::reach::{Deadline, Link, Reach};

/// How often what is in a region may be polled after it was cancelled, if it wakes itself again and again without
/// waiting for anything that could answer. Clean-up that gives way a few times is not cut off.
const PATIENCE: u8 = 128;

/// See the head of the file. Only its owner cancels it, and polls what is in it again then.
pub(super) struct Region {
    reach: Arc<Reach>,
    /// How it learns of a cancel from outside.
    outer: Item,
    /// A race that is decided. LOST in `reach`
    is_lost: bool,
    /// Something in it has said that it is not to be dropped, since the last `begin_pass`. LEFT-ALONE in `cancel`
    stays: bool,
    /// It was polled just now, and did nothing.
    is_quiet: bool,
    patience: u8,
}

/// What becomes of what is in a region that its owner has cancelled and polled after that.
#[derive(PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is waited for.
    Waits,
    /// It is to be polled once more, at once.
    Again,
    /// It waits in nothing that could answer: it is to be dropped. LEFT-ALONE in `cancel`
    Drop,
}

impl Region {
    pub(super) fn new() -> Region {
        Region {
            reach: Reach::new(),
            outer: Item::default(),
            is_lost: false,
            stays: false,
            is_quiet: false,
            patience: PATIENCE,
        }
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

    /// Before all that is in it is polled.
    #[inline]
    pub(super) fn begin_pass(&mut self) {
        self.stays = false;
    }

    /// Calls `poll` inside. What is polled there uses the waker of `cx`. If it panics, that is returned.
    pub(super) fn poll<R>(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Option<&Deadline>,
        poll: impl FnOnce(&mut Context<'_>) -> R,
    ) -> std::thread::Result<R> {
        here(|here| {
            if !self.reach.is_cancelled() && is_current_cancelled() {
                self.reach.cancel();
            }
            let waker: *const Waker = cx.waker();
            let own = here.own.replace(waker);
            let stays = here.stays.get();
            let deadline = deadline.map_or(null(), std::ptr::from_ref);
            let link = Link::of_region(Arc::as_ptr(&self.reach), self.is_lost, deadline);
            let polled = link.around(here, || catch_unwind(AssertUnwindSafe(|| poll(cx))));
            here.own.set(own);
            self.stays |= here.stays.get() != stays;
            polled
        })
    }

    /// After all that is in it was polled, and its owner had cancelled it before that.
    #[cold]
    pub(super) fn verdict(&mut self) -> Verdict {
        if self.stays || has_linked(Arc::as_ptr(&self.reach).addr()) {
            (self.is_quiet, self.patience) = (false, PATIENCE);
            return Verdict::Waits;
        }
        if here(|here| here.is_awake()) && self.patience > 0 {
            (self.is_quiet, self.patience) = (false, self.patience - 1);
            return Verdict::Waits;
        }
        match std::mem::replace(&mut self.is_quiet, true) {
            false => Verdict::Again,
            true => Verdict::Drop,
        }
    }

    /// Before `Pending` is returned.
    pub(super) fn rest(&mut self, cx: &mut Context<'_>) {
        // Who has been told, and has nothing in it that is to be waited for, must not seem to have. LEFT-ALONE
        if self.reach.is_cancelled() && !self.stays {
            self.outer.unlink();
        } else {
            self.outer.link_only(cx.waker());
        }
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
