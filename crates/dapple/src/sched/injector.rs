//! The shared queue of a runtime: runnables from outside, and those that do not fit into run queues.
//!
//! Runnables from outside are pushed to an inbox, without a lock: workers that take tasks do not hold up a thread
//! that wakes many. A worker that takes from the inbox takes all of it, and puts the runnables that it cannot keep
//! into the queue behind the lock.

use crate::prim::{AtomicUsize, Mutex, Ordering, lock};
use crate::task::Runnable;
use crate::task::header::Header;
use crate::task::inbox::Inbox;
use crate::task::queue::RunnableQueue;

pub(crate) struct Injector {
    /// Always in the owned state, without one owner: each `pull` takes a list of its own.
    inbox: Inbox<Header>,
    queue: Mutex<RunnableQueue>,
    /// Length of the queue behind the lock, readable without it.
    len: AtomicUsize,
}

impl Default for Injector {
    fn default() -> Injector {
        Injector { inbox: Inbox::new_owned(), queue: Mutex::default(), len: AtomicUsize::new(0) }
    }
}

impl Injector {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.inbox.is_empty() && self.len.load(Ordering::SeqCst) == 0
    }

    /// Length of the queue behind the lock.
    pub(crate) fn queue_len(&self) -> usize {
        self.len.load(Ordering::SeqCst)
    }

    /// Pushes a runnable from outside.
    pub(crate) fn push_one(&self, runnable: Runnable) {
        // SAFETY: the right to run it keeps it alive, and its link belongs to the caller. LINK-OWNED
        unsafe { self.inbox.push(runnable.into_ptr()) };
    }

    pub(crate) fn push(&self, runnables: impl IntoIterator<Item = Runnable>) {
        let mut queue = lock(&self.queue);
        runnables.into_iter().for_each(|runnable| queue.push(runnable));
        self.len.store(queue.len(), Ordering::SeqCst);
    }

    /// Takes the first runnable, and passes others to `each`: `share(len)` of the queue behind the lock, or up to
    /// `most` of the inbox if that queue is empty.
    pub(crate) fn pop(
        &self,
        share: impl FnOnce(usize) -> usize,
        most: usize,
        each: impl FnMut(Runnable),
    ) -> Option<Runnable> {
        if self.is_empty() {
            return None;
        }
        let mut came_in = self.take_inbox();
        if self.queue_len() == 0 {
            let first = came_in.pop();
            std::iter::from_fn(|| came_in.pop()).take(most).for_each(each);
            if came_in.len() > 0 {
                self.push(std::iter::from_fn(|| came_in.pop()));
            }
            return first;
        }
        let mut queue = lock(&self.queue);
        std::iter::from_fn(|| came_in.pop()).for_each(|runnable| queue.push(runnable));
        let first = queue.pop();
        let share = share(queue.len());
        std::iter::from_fn(|| queue.pop()).take(share).for_each(each);
        self.len.store(queue.len(), Ordering::SeqCst);
        first
    }

    /// Takes one runnable.
    pub(crate) fn pop_one(&self) -> Option<Runnable> {
        self.pop(|_| 0, 0, |_| {})
    }

    /// Takes all runnables of the inbox, the oldest first.
    fn take_inbox(&self) -> RunnableQueue {
        let mut queue = RunnableQueue::default();
        let mut next = if self.inbox.is_empty() { None } else { self.inbox.pull().map(|list| list.first) };
        while let Some(node) = next {
            // SAFETY: the inbox owned the right to run it, and gave it to the caller.
            let runnable = unsafe { Runnable::new(node) };
            next = std::ptr::NonNull::new(runnable.header().next_link());
            queue.push(runnable);
        }
        queue
    }
}
