//! The runtime's shared line: what comes from outside, and what does not fit into the rings.
//!
//! Behind a lock; a glance at its length needs none.

use crate::prim::{AtomicUsize, Mutex, Ordering, lock};
use crate::task::Runnable;
use crate::task::queue::Queue;

#[derive(Default)]
pub(crate) struct Injector {
    line: Mutex<Queue>,
    len: AtomicUsize,
}

impl Injector {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    pub(crate) fn push(&self, runnables: impl IntoIterator<Item = Runnable>) {
        let mut line = lock(&self.line);
        runnables.into_iter().for_each(|runnable| line.push(runnable));
        self.len.store(line.len(), Ordering::SeqCst);
    }

    /// Takes the first, and hands up to `more` others to `each`.
    pub(crate) fn pop(&self, more: usize, each: impl FnMut(Runnable)) -> Option<Runnable> {
        if self.len() == 0 {
            return None;
        }
        let mut line = lock(&self.line);
        let first = line.pop();
        std::iter::from_fn(|| line.pop()).take(more).for_each(each);
        self.len.store(line.len(), Ordering::SeqCst);
        first
    }
}
