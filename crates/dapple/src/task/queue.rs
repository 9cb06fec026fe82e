//! A queue of runnables, linked through their headers: first in, first out, without allocation.

use std::ptr::{NonNull, null_mut};

use super::header::{Header, Runnable};

/// Owns the rights to run what is in it (RUN-ONCE), and their links (LINK-OWNED).
pub(crate) struct RunnableQueue {
    first: *mut Header,
    last: *mut Header,
    len: usize,
}

// SAFETY: rights to run pass between threads; see `Runnable`.
unsafe impl Send for RunnableQueue {}

impl Default for RunnableQueue {
    fn default() -> RunnableQueue {
        RunnableQueue { first: null_mut(), last: null_mut(), len: 0 }
    }
}

impl RunnableQueue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, runnable: Runnable) {
        runnable.header().set_link(null_mut());
        let node = runnable.into_ptr().as_ptr();
        match NonNull::new(self.last) {
            None => self.first = node,
            // SAFETY: what is in the queue is owned by it, so it exists.
            Some(last) => unsafe { last.as_ref() }.set_link(node),
        }
        self.last = node;
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<Runnable> {
        let node = NonNull::new(self.first)?;
        // SAFETY: the queue owns the right to run it, and gives it away here.
        let runnable = unsafe { Runnable::new(node) };
        self.first = runnable.header().next_link();
        if self.first.is_null() {
            self.last = null_mut();
        }
        self.len -= 1;
        Some(runnable)
    }
}
