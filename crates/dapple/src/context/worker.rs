//! The runtime that this thread is in, and the worker that it drives.
//!
//! # Invariants
//!
//! * **SEATED**: the pointers to a worker and to its slab are set while, and only while, this thread drives that worker, which
//!   is one of the runtime's.

use super::ThreadContext;
use super::slot::{Fills, OfRuntime, OfSlab, OfWorker, Slot};

pub(super) struct WorkerPart {
    /// The runtime that this thread works for or has entered.
    runtime: Slot<OfRuntime>,
    /// The worker that this thread drives.
    worker: Slot<OfWorker>,
    /// The worker's store of memory.
    slab: Slot<OfSlab>,
}

impl WorkerPart {
    pub(super) const fn new() -> WorkerPart {
        WorkerPart { runtime: Slot::null(), worker: Slot::null(), slab: Slot::null() }
    }

    pub(super) fn swap(&self, other: &WorkerPart) {
        self.runtime.swap(&other.runtime);
        self.worker.swap(&other.worker);
        self.slab.swap(&other.slab);
    }
}

impl ThreadContext {
    /// The runtime that this thread works for or has entered; null outside.
    #[inline]
    pub(crate) fn runtime<T: Fills<OfRuntime>>(&self) -> *const T {
        self.worker.runtime.get()
    }

    #[inline]
    pub(crate) fn has_runtime(&self) -> bool {
        !self.worker.runtime.is_null()
    }

    /// This thread is in the runtime from now on, without driving a worker of it.
    #[inline]
    pub(crate) fn enter_runtime<T: Fills<OfRuntime>>(&self, runtime: *const T) {
        self.worker.runtime.set(runtime);
    }

    /// This thread is in no runtime from now on.
    pub(crate) fn leave_runtime(&self) {
        self.worker.runtime.clear();
    }

    /// The worker that this thread drives; null if it drives none.
    #[inline]
    pub(crate) fn worker<T: Fills<OfWorker>>(&self) -> *const T {
        self.worker.worker.get()
    }

    #[inline]
    pub(crate) fn has_worker(&self) -> bool {
        !self.worker.worker.is_null()
    }

    /// This thread drives a worker of `runtime` from now on. The caller sets it aside again ([`SetAside`](super::SetAside)).
    pub(crate) fn drive<R, W, S>(&self, runtime: *const R, worker: *const W, slab: *const S)
    where
        R: Fills<OfRuntime>,
        W: Fills<OfWorker>,
        S: Fills<OfSlab>,
    {
        self.worker.runtime.set(runtime);
        self.worker.worker.set(worker);
        self.worker.slab.set(slab);
    }

    /// This thread's store of memory for tasks of `runtime`, if it drives a worker of it. The caller does not keep it, and
    /// calls nothing by which the thread could leave the worker meanwhile.
    #[inline]
    pub(crate) fn slab_of<'a, R: Fills<OfRuntime>, S: Fills<OfSlab>>(
        &self,
        runtime: *const R,
    ) -> Option<&'a S> {
        let slab = if self.runtime() == runtime { self.worker.slab.get::<S>() } else { std::ptr::null() };
        // SAFETY: SEATED; the worker that this thread drives exists, and owns the slab.
        unsafe { slab.as_ref() }
    }
}
