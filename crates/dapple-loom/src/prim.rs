//! In place of the runtime's `prim`: loom's atomics, locks and threads by the same names.

pub(crate) use loom::hint::spin_loop;
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use loom::thread::yield_now;

pub(crate) use crate::child_memory::dealloc;

#[path = "../../dapple/src/prim/published.rs"]
mod published;
#[path = "../../dapple/src/prim/spin_lock.rs"]
mod spin_lock;

pub(crate) use published::Published;
pub(crate) use spin_lock::{SpinGuard, SpinLock};

/// Lets constants be so small that a model reaches their ends.
pub(crate) const IS_MODEL: bool = true;

/// A thread-local of the model's threads, written as one of the standard library.
macro_rules! model_local {
    ($visibility:vis static $name:ident: $type:ty = const { $init:expr };) => {
        loom::thread_local! {
            $visibility static $name: $type = $init;
        }
    };
}
pub(crate) use model_local as thread_locals;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

// Both sides of an asymmetric fence, and that for the compiler alone, are whole fences: loom knows no others.

pub(crate) fn push_fence() {
    fence_seq_cst();
}

pub(crate) fn step_fence() {
    fence_seq_cst();
}

pub(crate) fn fence_seq_cst() {
    fence(Ordering::SeqCst);
}

/// A token that threads wait for and any thread hands over. A token that is handed over early is kept.
#[derive(Default)]
pub(crate) struct Parker {
    token: Mutex<bool>,
    given: Condvar,
}

pub(crate) use Parker as SharedParker;

impl Parker {
    pub(crate) fn park(&self, limit: Option<std::time::Duration>) -> bool {
        assert!(limit.is_none(), "a model has no clock");
        let mut token = lock(&self.token);
        while !*token {
            token = self.given.wait(token).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        *token = false;
        true
    }

    pub(crate) fn unpark(&self) {
        *lock(&self.token) = true;
        self.given.notify_one();
    }
}
