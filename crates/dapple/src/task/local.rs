//! Task-locals: a value that a future and all it calls can reach, wherever it is polled.
//!
//! # Invariants
//!
//! * **BOUND**: the values of a thread are a list from the innermost one in its [context](crate::context::ThreadContext)
//!   outwards. Each entry is on the stack of the function that bound it, which removes it before it returns or unwinds.
//!   The list is a part of the context (ONE-CONTEXT), so a nested `block_on`, or a virtual thread on another stack, does not
//!   see it, and leaves nothing in it.

use std::any::TypeId;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::ptr::null;
use std::task::{Context, Poll};

use crate::context::{Fills, OfLocal, with_context};

/// The key of a task-local value, to be kept in a `static`. Use it for a value that belongs to a request, such as its id,
/// and that should not be an argument of each function.
///
/// [`scope`](Local::scope) gives a future its value. All code that runs in a poll of this future sees the value, on
/// whichever worker; so does a destructor, when the future is dropped. Children that are started in a
/// [`finish`](crate::finish) block inside of the future are parts of it, and see the value.
///
/// The value is **not inherited** by work that runs on its own: tasks, callbacks, closures of a color and blocking calls
/// that the future spawns or submits; their drop closures; and futures that a [`block_on`](crate::Runtime::block_on),
/// [`run`](crate::run) or [`Sim::run`](crate::sim::Sim::run) inside of [`scope_sync`](Local::scope_sync) runs. To pass
/// the value on, [get](Local::get) it, and give it to the other future by `scope`.
///
/// # Examples
///
/// ```
/// use dapple::task::Local;
///
/// static REQUEST: Local<u32> = Local::new();
///
/// async fn handle() -> String {
///     REQUEST.with(|id| format!("request {id}"))
/// }
///
/// dapple::run(async {
///     assert_eq!(REQUEST.scope(7, handle()).await, "request 7");
///     assert_eq!(REQUEST.try_with(|id| *id), None);
/// });
/// ```
pub struct Local<T: 'static> {
    /// Its address tells one key from another, so it must not be empty; and being a cell, it keeps
    /// the compiler from making one out of two equal constants.
    _address: UnsafeCell<u8>,
    _value: PhantomData<fn() -> T>,
}

// SAFETY: the cell is never touched.
unsafe impl<T> Sync for Local<T> {}

/// A value of a task-local, as an entry of the list. BOUND
pub(super) struct Bound {
    key: *const (),
    /// The type of the value.
    of: TypeId,
    value: *const (),
    outer: *const Bound,
}

// SAFETY: no other type fills it. ONE-TYPE
unsafe impl Fills<OfLocal> for Bound {}

impl<T: 'static> Local<T> {
    /// Makes a key without a value. Two keys never share a value, also if their types are equal.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a key belongs in a static")]
    pub const fn new() -> Local<T> {
        Local { _address: UnsafeCell::new(0), _value: PhantomData }
    }

    /// Runs `future`, whose code finds `value` under this key. Inside of another `scope` of the same key, the inner value
    /// counts.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::task::Local;
    ///
    /// static REQUEST: Local<u64> = Local::new();
    ///
    /// dapple::run(async {
    ///     let id = REQUEST.scope(7, async {
    ///         dapple::task::yield_now().await;
    ///         REQUEST.get()
    ///     });
    ///     assert_eq!(id.await, 7);
    ///     assert_eq!(REQUEST.try_with(|id| *id), None); // outside of the scope
    /// });
    /// ```
    pub fn scope<F: Future>(&'static self, value: T, future: F) -> Scoped<T, F> {
        Scoped { key: self, value, future: Some(future) }
    }

    /// Calls `f`, whose code finds `value` under this key. As [`scope`](Local::scope), for a function that does not await.
    pub fn scope_sync<R>(&'static self, value: T, f: impl FnOnce() -> R) -> R {
        self.bind(&value, f)
    }

    /// Calls `f` with the value: that of the innermost [`scope`](Local::scope) around the call.
    ///
    /// # Panics
    ///
    /// If there is no value: the call is not inside of a `scope` or [`scope_sync`](Local::scope_sync) of this key.
    pub fn with<R>(&'static self, f: impl FnOnce(&T) -> R) -> R {
        match self.try_with(f) {
            Some(r) => r,
            None => panic!("task-local of type {} read outside of its scope", std::any::type_name::<T>()),
        }
    }

    /// As [`with`](Local::with), and returns `None` if there is no value.
    pub fn try_with<R>(&'static self, f: impl FnOnce(&T) -> R) -> Option<R> {
        let mut bound = with_context(|context| context.local::<Bound>());
        // SAFETY: `bind` keeps every `Bound` for as long as it is in the list. BOUND
        while let Some(Bound { key, of, value, outer }) = unsafe { bound.as_ref() } {
            if *key == std::ptr::from_ref(self).cast() && *of == TypeId::of::<T>() {
                // SAFETY: the value is a `T`, which `bind` keeps borrowed. BOUND
                return Some(f(unsafe { &*value.cast::<T>() }));
            }
            bound = *outer;
        }
        None
    }

    /// Returns a copy of the value: that of the innermost [`scope`](Local::scope) around the call.
    ///
    /// # Panics
    ///
    /// As [`with`](Local::with).
    pub fn get(&'static self) -> T
    where
        T: Clone,
    {
        self.with(T::clone)
    }

    fn bind<R>(&'static self, value: &T, f: impl FnOnce() -> R) -> R {
        let bound = Bound {
            key: std::ptr::from_ref(self).cast(),
            of: TypeId::of::<T>(),
            value: std::ptr::from_ref(value).cast(),
            outer: with_context(|context| context.local()),
        };
        let _restore = Restore(with_context(|context| context.replace_local(&bound)));
        f()
    }
}

/// Restores the list. BOUND
struct Restore(*const Bound);

impl Drop for Restore {
    fn drop(&mut self) {
        with_context(|context| context.replace_local(self.0));
    }
}

/// Drops a future that was to be a task, and has no runtime to be one of: on the spot, and without the task-locals of
/// the code that would have spawned it.
pub(crate) fn drop_unspawned<F>(future: F) {
    let _restore = Restore(with_context(|context| context.replace_local(null())));
    drop(future);
}

impl<T> fmt::Debug for Local<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").finish_non_exhaustive()
    }
}

/// The future of [`Local::scope`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Scoped<T: 'static, F> {
    key: &'static Local<T>,
    value: T,
    future: Option<F>,
}

impl<T: 'static, F: Future> Future for Scoped<T, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is not moved: it is pinned again here, and dropped in place below.
        let this = unsafe { self.get_unchecked_mut() };
        let Scoped { key, value, future } = this;
        let future = future.as_mut().expect("polled before it was dropped");
        // SAFETY: `future` is a part of `self`, which is pinned.
        let future = unsafe { Pin::new_unchecked(future) };
        key.bind(value, || future.poll(cx))
    }
}

impl<T: 'static, F> Drop for Scoped<T, F> {
    fn drop(&mut self) {
        let Scoped { key, value, future } = self;
        key.bind(value, || *future = None);
    }
}
