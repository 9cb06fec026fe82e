//! A scope without children: what is polled in it can be cancelled by itself, and is dropped if it cannot be told.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::null;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::shield::{Shield, shield};
use crate::cancel::check::is_current_cancelled;
use crate::cancel::frame::{self, CancelFrame, Deadline};
use crate::cancel::grace::GRACE;
use crate::cancel::item::{Item, Then, registered_at};
use crate::cancel::scope::CancelScope;
use crate::context::with_context;
use crate::time::{Sleep, sleep};

/// How often what is in a region may be polled after it was cancelled, if it wakes itself again and again without
/// waiting for anything that could answer. Clean-up that gives way a few times is not cut off.
const PATIENCE: u8 = 128;

/// See the head of the file. Only its owner cancels it, and polls what is in it again then.
pub(super) struct Region {
    reach: Arc<CancelScope>,
    /// How it learns of a cancel from outside.
    outer: Item,
    /// A race that is decided. LOSER-TAKES-NOTHING in `cancel::frame`
    is_lost: bool,
    /// Something in it has said that it is not to be dropped, since the last `begin_pass`. LEFT-ALONE in `cancel`
    stays: bool,
    /// A child of a scope around it was awaited in it, by a foreign waker. ON-ITS-WAY in `children`
    awaits_child: bool,
    /// It was polled just now, and did nothing.
    is_quiet: bool,
    patience: u8,
    /// Runs while nothing happens in a region that was cancelled and that waits are linked to.
    grace: Option<Pin<Box<Shield<Sleep>>>>,
}

/// What becomes of what is in a region that its owner has cancelled and polled after that.
#[derive(PartialEq, Eq)]
pub(super) enum RegionVerdict {
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
            reach: CancelScope::new(),
            outer: Item::default(),
            is_lost: false,
            stays: false,
            awaits_child: false,
            is_quiet: false,
            patience: PATIENCE,
            grace: None,
        }
    }

    /// Cancels what is in it, which is to be polled after this.
    pub(super) fn cancel(&self) {
        self.reach.cancel();
    }

    /// Cancels what is in it, whose result is not wanted any more. LOSER-TAKES-NOTHING in `cancel::frame`
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
        with_context(|here| {
            if !self.reach.is_cancelled() && is_current_cancelled() {
                self.reach.cancel();
            }
            let waker: *const Waker = cx.waker();
            let own = here.replace_own_waker(waker);
            let stays = here.stays();
            let deadline = deadline.map_or(null(), std::ptr::from_ref);
            let link = CancelFrame::of_region(Arc::as_ptr(&self.reach), self.is_lost, deadline);
            let polled = link.around(here, || catch_unwind(AssertUnwindSafe(|| poll(cx))));
            here.replace_own_waker(own);
            self.stays |= here.stays() != stays;
            self.awaits_child |= link.awaits_child();
            polled
        })
    }

    /// After all that is in it was polled, and its owner had cancelled it before that.
    #[cold]
    pub(super) fn verdict(&mut self, cx: &mut Context<'_>) -> RegionVerdict {
        let linked = registered_at(Arc::as_ptr(&self.reach).addr());
        if self.stays || linked == Some(Then::Stays) {
            (self.is_quiet, self.patience, self.grace) = (false, PATIENCE, None);
            return RegionVerdict::Waits;
        }
        if with_context(|here| here.is_awake()) && self.patience > 0 {
            (self.is_quiet, self.patience) = (false, self.patience - 1);
            return RegionVerdict::Waits;
        }
        if !std::mem::replace(&mut self.is_quiet, true) {
            return RegionVerdict::Again;
        }
        // The value of a child could still be taken, unless it would be dropped. ON-ITS-WAY in `children`
        let is_on_its_way = || self.awaits_child && !self.is_lost && with_context(frame::has_on_their_way);
        if linked.is_none() && !is_on_its_way() {
            return RegionVerdict::Drop;
        }
        let grace = self.grace.get_or_insert_with(|| Box::pin(shield(sleep(GRACE))));
        match grace.as_mut().poll(cx) {
            Poll::Pending => RegionVerdict::Waits,
            Poll::Ready(_) => RegionVerdict::Drop,
        }
    }

    /// Before `Pending` is returned.
    pub(super) fn rest(&mut self, cx: &mut Context<'_>) {
        // A cancelled region in which nothing stays must not count as linked to what is around it. LEFT-ALONE
        if self.reach.is_cancelled() && !self.stays {
            self.outer.unregister();
        } else {
            self.outer.register(cx.waker(), Then::Stays);
        }
    }

    /// Before a result is returned.
    pub(super) fn end(&mut self) {
        self.outer.unregister();
        self.reach.end();
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.reach.end();
    }
}
