//! Region: a scope without children. Its owner can cancel the futures in it, and drops them if they cannot
//! see the cancel.

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

/// Most polls of a cancelled region whose futures wake themselves again and again, without a wait that could
/// answer. Clean-up code that yields a few times is not cut off.
const PATIENCE: u8 = 128;

/// A region, described at the head of this file. Only its owner cancels it, and polls its futures again after
/// that.
pub(super) struct Region {
    cancel_scope: Arc<CancelScope>,
    /// Link by which a cancel from outside arrives.
    outer: Item,
    /// It belongs to a race that is decided. LOSER-TAKES-NOTHING in `cancel::frame`
    is_lost: bool,
    /// A future in it has asked, since the last `begin_pass`, not to be dropped. LEFT-ALONE in `cancel::grace`
    stays: bool,
    /// A future in it awaited a child of an enclosing scope, with a foreign waker. ON-ITS-WAY in `children`
    awaits_child: bool,
    /// The last poll did nothing.
    is_quiet: bool,
    patience: u8,
    /// Grace period: runs while nothing happens in a cancelled region that waits are linked to.
    grace: Option<Pin<Box<Shield<Sleep>>>>,
}

/// Decision about the futures of a region after it was cancelled and polled.
#[derive(PartialEq, Eq)]
pub(super) enum RegionVerdict {
    /// Wait for them.
    Waits,
    /// Poll them once more, at once.
    Again,
    /// Drop them: they wait in no future that could answer. LEFT-ALONE in `cancel::grace`
    Drop,
}

impl Region {
    pub(super) fn new() -> Region {
        Region {
            cancel_scope: CancelScope::new(),
            outer: Item::default(),
            is_lost: false,
            stays: false,
            awaits_child: false,
            is_quiet: false,
            patience: PATIENCE,
            grace: None,
        }
    }

    /// Cancels the futures in the region. The caller must poll them after this.
    pub(super) fn cancel(&self) {
        self.cancel_scope.cancel();
    }

    /// Cancels the futures in the region, whose results are not wanted any more. LOSER-TAKES-NOTHING in
    /// `cancel::frame`
    pub(super) fn lose(&mut self) {
        self.is_lost = true;
        self.cancel();
    }

    /// Called before each pass over the futures of the region.
    #[inline]
    pub(super) fn begin_pass(&mut self) {
        self.stays = false;
    }

    /// Calls `poll` inside of the region, with the waker of `cx`. A panic is returned.
    pub(super) fn poll<R>(
        &mut self,
        cx: &mut Context<'_>,
        deadline: Option<&Deadline>,
        poll: impl FnOnce(&mut Context<'_>) -> R,
    ) -> std::thread::Result<R> {
        with_context(|context| {
            if !self.cancel_scope.is_cancelled() && is_current_cancelled() {
                self.cancel_scope.cancel();
            }
            let waker: *const Waker = cx.waker();
            let own = context.replace_own_waker(waker);
            let stays = context.stays();
            let deadline = deadline.map_or(null(), std::ptr::from_ref);
            let frame = CancelFrame::of_region(Arc::as_ptr(&self.cancel_scope), self.is_lost, deadline);
            let polled = frame.around(context, || catch_unwind(AssertUnwindSafe(|| poll(cx))));
            context.replace_own_waker(own);
            self.stays |= context.stays() != stays;
            self.awaits_child |= frame.awaits_child();
            polled
        })
    }

    /// Decides what to do. Called after a pass over the futures of a region that was cancelled before that
    /// pass.
    #[cold]
    pub(super) fn verdict(&mut self, cx: &mut Context<'_>) -> RegionVerdict {
        let linked = registered_at(Arc::as_ptr(&self.cancel_scope).addr());
        if self.stays || linked == Some(Then::Stays) {
            (self.is_quiet, self.patience, self.grace) = (false, PATIENCE, None);
            return RegionVerdict::Waits;
        }
        if with_context(|context| context.is_awake()) && self.patience > 0 {
            (self.is_quiet, self.patience) = (false, self.patience - 1);
            return RegionVerdict::Waits;
        }
        if !std::mem::replace(&mut self.is_quiet, true) {
            return RegionVerdict::Again;
        }
        // The value of a child can still be taken, unless it would be dropped then. ON-ITS-WAY in `children`
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

    /// Called before the owner returns `Pending`.
    pub(super) fn rest(&mut self, cx: &mut Context<'_>) {
        // A cancelled region with nothing that stays must not count as a link to the enclosing scope.
        // LEFT-ALONE
        if self.cancel_scope.is_cancelled() && !self.stays {
            self.outer.unregister();
        } else {
            self.outer.register(cx.waker(), Then::Stays);
        }
    }

    /// Called before the owner returns a result.
    pub(super) fn end(&mut self) {
        self.outer.unregister();
        self.cancel_scope.end();
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.cancel_scope.end();
    }
}
