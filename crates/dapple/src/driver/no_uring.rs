//! In place of `uring` in a build without the feature `fs`: no type here has a value, so a driver never has a ring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::task::guarded::GuardedWaker;
use failures::Failures;

pub(crate) enum Uring {}

impl Uring {
    pub(crate) fn new(_failures: Arc<Failures>) -> io::Result<Uring> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn is_in_use(&self) -> bool {
        match *self {}
    }

    pub(crate) fn submit(&self) -> bool {
        match *self {}
    }

    pub(crate) fn has_completions(&self) -> bool {
        match *self {}
    }

    pub(crate) fn take_in(&self, _wakers: &mut Vec<GuardedWaker>, _landed: &mut Landed) {
        match *self {}
    }
}

impl AsFd for Uring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match *self {}
    }
}

/// No operation was begun, so none lands.
#[derive(Default)]
pub(crate) struct Landed;

impl Landed {
    pub(crate) fn settle(&mut self, ring: &Uring) {
        match *ring {}
    }

    pub(crate) fn is_empty(&self) -> bool {
        true
    }
}

pub(crate) mod backend {
    use std::io;
    use std::sync::Arc;

    use super::failures::Failures;

    /// There is nothing to choose from.
    #[derive(Clone, Copy, Debug, Default)]
    pub(crate) struct Files;

    #[derive(Debug, Default)]
    pub(crate) struct Choice {
        pub(crate) failures: Arc<Failures>,
    }

    impl Choice {
        pub(crate) fn new(_wanted: Files) -> io::Result<Choice> {
            Ok(Choice::default())
        }
    }
}

pub(crate) mod close {
    use std::sync::Arc;

    pub(crate) fn close_all(rings: Vec<Arc<super::Uring>>) {
        debug_assert!(rings.is_empty());
    }
}

pub(crate) mod failures {
    /// No write was promised, so none fails.
    #[derive(Debug, Default)]
    pub(crate) struct Failures;

    impl Failures {
        pub(crate) fn count(&self) -> u64 {
            0
        }
    }
}
