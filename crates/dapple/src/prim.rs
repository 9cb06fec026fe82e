//! Primitives of all protocols: atomics, fences, locks and parking.
//!
//! This is the only file that names `std::sync::atomic`, except `world::plain`, the base of the simulation.
//! The crate `dapple-loom` has a `prim` of its own, with loom's types by the same names, so that loom checks the
//! protocols in every interleaving. Under `--cfg dapple_steps` atomics and locks yield to the simulation before each step
//! (`steps`).
//!
//! # Asymmetric fences
//!
//! [`light_fence`] and [`heavy_fence`] together order a store before a load on *both* sides.
//!
//! * **STORE-THEN-LOAD**: of two threads that each store, fence, and load what the other stored,
//!   at least one sees the other's store.
//!
//! The light side is on the hot path, and costs nothing where the kernel offers `membarrier`; the heavy side
//! pays for both with a system call. Where the kernel refuses `membarrier`, both sides are ordinary
//! sequentially consistent fences.

pub(crate) use std::alloc::dealloc;
pub(crate) use std::hint::spin_loop;
#[cfg(not(dapple_steps))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, atomic::Ordering};
pub(crate) use std::thread::yield_now;
pub(crate) use std::thread_local as thread_locals;
#[cfg(dapple_steps)]
pub(crate) use steps::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

use crate::world::Sleeper;

mod published;
#[expect(unsafe_code, reason = "the lock says who may touch what is inside")]
mod spin_lock;
#[cfg(dapple_steps)]
mod steps;

pub(crate) use published::Published;
pub(crate) use spin_lock::{SpinGuard, SpinLock};

/// Whether this is compiled for models, where constants are so small that a model reaches their ends.
pub(crate) const IS_MODEL: bool = false;

/// As below. A virtual thread that finds the lock taken lets other virtual threads run, since one of them may
/// hold the lock.
#[cfg(dapple_steps)]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    crate::world::step();
    while crate::world::is_simulated() {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => crate::world::let_others(),
        }
    }
    crate::world::plain::lock(mutex)
}

/// Locks, and ignores poisoning: critical sections of this crate run no user code.
#[cfg(not(dapple_steps))]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Aborts the process if dropped, since code unwound that must not. On success, forget it.
pub(crate) struct AbortOnUnwind(pub(crate) &'static str);

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        eprintln!("dapple: {}; this is a bug in dapple", self.0);
        std::process::abort();
    }
}

pub(crate) use fences::{heavy_fence, light_fence};

/// Fence of a worker after a push: for the compiler only; see `sched::idle`.
#[inline]
pub(crate) fn push_fence() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Fence between a sequentially consistent operation and sequentially consistent loads after it. The hardware
/// needs none; loom (in `dapple-loom`) and Miri treat such loads as weaker than they are.
#[inline]
pub(crate) fn step_fence() {
    #[cfg(miri)]
    fence_seq_cst();
}

/// A sequentially consistent fence, for code off the hot path.
pub(crate) fn fence_seq_cst() {
    std::sync::atomic::fence(Ordering::SeqCst);
}

mod fences {
    use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

    const UNKNOWN: u8 = 0;
    const MEMBARRIER: u8 = 1;
    const PLAIN: u8 = 2;

    /// Whether `membarrier` is available. Set by [`init`] before the first worker starts.
    static KIND: AtomicU8 = AtomicU8::new(UNKNOWN);

    /// Fence of the hot side: free where the heavy side can fence for both.
    #[inline]
    pub(crate) fn light_fence() {
        if KIND.load(Ordering::Relaxed) == MEMBARRIER {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// Fence of the rare side: makes every other thread of the process fence too.
    pub(crate) fn heavy_fence() {
        fence(Ordering::SeqCst);
        if KIND.load(Ordering::Relaxed) == MEMBARRIER && !membarrier(MEMBARRIER_PRIVATE_EXPEDITED) {
            // Registered, yet refused: no thread may rely on it from here on. A task that is being spawned at
            // this moment may miss a cancel; the shutdown drops it when its time is up.
            KIND.store(PLAIN, Ordering::Relaxed);
        }
    }

    const MEMBARRIER_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    /// Asks the kernel for `membarrier`, once per process.
    pub(crate) fn init() {
        if KIND.load(Ordering::Acquire) == UNKNOWN {
            let kind = if membarrier(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED) { MEMBARRIER } else { PLAIN };
            KIND.store(kind, Ordering::Release);
        }
    }

    #[cfg(miri)]
    fn membarrier(_command: libc::c_int) -> bool {
        false
    }

    #[cfg(not(miri))]
    #[expect(unsafe_code, reason = "a system call that takes two integers")]
    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: membarrier reads no memory of this process, and only affects ordering.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

pub(crate) use fences::init as init_fences;

/// Wakes a thread that waits, or will wait: a [`Parker`], or the driver that the thread sleeps in.
pub(crate) trait Unpark: Send + Sync {
    fn unpark(&self);
}

impl Unpark for Parker {
    fn unpark(&self) {
        Parker::unpark(self);
    }
}

/// A token that one thread waits for and any thread hands over. A token that is handed over early is kept.
#[derive(Default)]
pub(crate) struct Parker {
    token: AtomicBool,
    /// Thread that waits, known from its first wait on. It is always the same one.
    sleeper: std::sync::OnceLock<Sleeper>,
}

/// As a [`Parker`], for different threads that wait one after the other. It costs more, so it is for code off
/// the hot path.
#[derive(Default)]
pub(crate) struct SharedParker {
    token: AtomicBool,
    /// Thread that waits, while it does.
    sleeper: Mutex<Option<std::sync::Arc<Sleeper>>>,
}

impl SharedParker {
    /// As [`Parker::park`].
    pub(crate) fn park(&self, limit: Option<std::time::Duration>) -> bool {
        let sleeper = std::sync::Arc::new(Sleeper::current());
        *lock(&self.sleeper) = Some(sleeper.clone());
        let mut given = self.token.swap(false, Ordering::SeqCst);
        while !given {
            sleeper.rest(limit);
            given = self.token.swap(false, Ordering::SeqCst);
            if limit.is_some() {
                break;
            }
        }
        *lock(&self.sleeper) = None;
        given
    }

    /// Hands the token over.
    pub(crate) fn unpark(&self) {
        self.token.store(true, Ordering::SeqCst);
        // Under the lock, so that this thread sees the waiter, or the waiter sees the token.
        let sleeper = lock(&self.sleeper).clone();
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }
}

impl Parker {
    /// Waits for the token and takes it. `false` if `limit` passed, or another event woke the thread, first.
    pub(crate) fn park(&self, limit: Option<std::time::Duration>) -> bool {
        let sleeper = self.sleeper.get_or_init(Sleeper::current);
        debug_assert!(sleeper.is_here());
        fence_seq_cst(); // this thread sees the token, or `unpark` sees the thread
        // A user's own `unpark` wakes this thread as well, and a user's own `park` may consume the wake-up:
        // hence the token.
        while !self.token.swap(false, Ordering::SeqCst) {
            sleeper.rest(limit);
            if limit.is_some() {
                return self.token.swap(false, Ordering::SeqCst);
            }
        }
        true
    }

    /// Hands the token over.
    pub(crate) fn unpark(&self) {
        self.token.store(true, Ordering::SeqCst);
        fence_seq_cst(); // this thread sees the waiter, or the waiter sees the token
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.wake();
        }
    }
}
