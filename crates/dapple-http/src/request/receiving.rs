//! What is known of the bodies that a connection receives, apart from where they end (`framing.rs`): what is wrong with
//! them, and of one that a service has without anything around it, whether it comes. Parts of the watch (`watch.rs`).

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::request::answer::Own;

/// What is to be answered to requests whose bodies were not received as a whole, whatever their services say, by the
/// numbers of the requests: with HTTP/2 there are many at a time.
#[derive(Default)]
pub(crate) struct Faults {
    list: Mutex<Vec<(u64, Own)>>,
    /// There are some: where there are none nothing is locked.
    has_some: AtomicBool,
}

impl Faults {
    fn list(&self) -> MutexGuard<'_, Vec<(u64, Own)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    pub(crate) fn note(&self, number: u64, own: Own) {
        let mut list = self.list();
        list.push((number, own));
        self.has_some.store(true, Relaxed);
    }

    /// The first that there is for a request; the others are forgotten.
    #[inline]
    pub(crate) fn take(&self, number: u64) -> Option<Own> {
        if !self.has_some.load(Relaxed) {
            return None;
        }
        let mut list = self.list();
        let first = list.iter().find(|fault| fault.0 == number).map(|fault| fault.1);
        list.retain(|fault| fault.0 != number);
        self.has_some.store(!list.is_empty(), Relaxed);
        first
    }
}

/// A body of HTTP/1 that a service has as hyper gives it, so that its time is kept by the connection.
#[derive(Default)]
pub(crate) struct Bare {
    /// There is one.
    is_there: AtomicBool,
    /// What was read of it, and whether hyper has asked for more since that was last looked at.
    received: AtomicU64,
    is_asked_for: AtomicBool,
    /// It did not come in time: say so, and end it.
    is_late: AtomicBool,
}

impl Bare {
    pub(crate) fn set_there(&self, is_there: bool) {
        self.is_there.store(is_there, Relaxed);
    }

    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Relaxed)
    }

    /// hyper has asked for more, and got so much.
    pub(crate) fn note_asked_for(&self, count: usize) {
        self.is_asked_for.store(true, Relaxed);
        self.received.store(self.received.load(Relaxed) + count as u64, Relaxed);
    }

    /// Whether hyper has asked for more since this was last called. If it does not, the service has enough.
    pub(crate) fn take_asked_for(&self) -> bool {
        self.is_asked_for.swap(false, Relaxed) && !self.is_late()
    }

    pub(crate) fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    pub(crate) fn set_late(&self) {
        self.is_late.store(true, Relaxed);
    }

    #[inline]
    pub(crate) fn is_late(&self) -> bool {
        self.is_late.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_own_fault_and_the_first_counts() {
        let faults = Faults::default();
        assert!(faults.take(1).is_none());
        faults.note(1, Own::LATE_BODY);
        faults.note(2, Own::TOO_LARGE);
        faults.note(1, Own::TOO_LARGE);
        assert!(faults.take(3).is_none());
        assert_eq!(faults.take(1).unwrap().status, 408);
        assert!(faults.take(1).is_none());
        assert_eq!(faults.take(2).unwrap().status, 413);
        assert!(!faults.has_some.load(Relaxed));
    }
}
