//! Handlers that declare the states they touch by their arguments, as in Node.Scala, for an axum `Router`.
//!
//! A handler is a plain function. Beside axum's extractors it may take [`Read`] and [`Write`] of states that live in
//! a [`Shared`], as many as it needs. It is called once all of these states are available together, and has them until
//! it returns. So other handlers see all of its changes or none, and there is no lock to forget or to take in the wrong
//! order:
//!
//! * handlers without a state run in parallel with all others;
//! * handlers that read a state run in parallel with others that read it;
//! * a handler that writes a state has it alone.
//!
//! No annotation is needed: the types of the arguments declare the access. The compiler also checks that the states
//! exist: each is taken from the router's state by axum's [`FromRef`], and a router without it does not compile.
//!
//! # Blocking and waiting
//!
//! The function may block or compute for a long time: other connections go on, except handlers that need the same states.
//! It cannot await. For a handler that awaits, or that computes for long without its states, write an ordinary `async`
//! handler of axum with `State<Shared<T>>`, which takes the state only where it needs it. Both kinds can share their
//! states.
//!
//! # Examples
//!
//! ```
//! use axum::{Router, extract::FromRef, routing::get};
//! use dapple::Shared;
//! use dapple_http::state::{Query, Read, Write, stateful};
//! use std::collections::HashMap;
//!
//! type Cache = HashMap<u32, String>;
//! #[derive(Default)]
//! struct Count(u64);
//!
//! fn hits(n: Query<u32>, cache: Read<Cache>, mut count: Write<Count>) -> String {
//!     count.0 += 1;
//!     format!("{} for the {}th", cache.get(&n.0).map_or("nothing", String::as_str), count.0)
//! }
//!
//! #[derive(Clone)]
//! struct App {
//!     cache: Shared<Cache>,
//!     count: Shared<Count>,
//! }
//!
//! impl FromRef<App> for Shared<Cache> {
//!     fn from_ref(app: &App) -> Shared<Cache> {
//!         app.cache.clone()
//!     }
//! }
//!
//! impl FromRef<App> for Shared<Count> {
//!     fn from_ref(app: &App) -> Shared<Count> {
//!         app.count.clone()
//!     }
//! }
//!
//! let app = App { cache: Shared::new(Cache::from([(1, "one".into())])), count: Shared::new(Count::default()) };
//! let router: Router = Router::new().route("/hits", get(stateful(hits))).with_state(app);
//! ```
//!
//! A state that the router does not have:
//!
//! ```compile_fail
//! use axum::{Router, routing::get};
//! use dapple_http::state::{Read, stateful};
//!
//! fn first(words: Read<Vec<String>>) -> String {
//!     words[0].clone()
//! }
//!
//! let router: Router = Router::new().route("/", get(stateful(first))).with_state(());
//! ```
//!
//! The same with it:
//!
//! ```
//! use axum::{Router, routing::get};
//! use dapple_http::state::{Read, stateful};
//!
//! fn first(words: Read<Vec<String>>) -> String {
//!     words[0].clone()
//! }
//!
//! let words = dapple::Shared::new(vec!["word".to_owned()]);
//! let router: Router = Router::new().route("/", get(stateful(first))).with_state(words);
//! ```

mod handler;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;

use axum::extract::{FromRef, FromRequestParts};
use dapple::{Shared, shared::Access};
use http::StatusCode;
use http::request::Parts;

pub use handler::Stateful;

/// Makes a handler for axum's routers of a function whose arguments are extractors, [`Read`]s and [`Write`]s, in any
/// order, six at the most. Of the extractors the last may be one that takes the body.
///
/// The function returns anything that axum can make a response of. The returned value cannot borrow from the states: if
/// its type is `impl IntoResponse`, write `impl IntoResponse + use<>`. See the [module](self) for examples.
///
/// # Panics
///
/// When it is called, if one state is named twice: read and written, or written twice.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use dapple_http::state::stateful;
///
/// fn hello() -> &'static str {
///     "hello\n"
/// }
///
/// let router: Router = Router::new().route("/", get(stateful(hello)));
/// ```
pub fn stateful<F>(function: F) -> Stateful<F> {
    Stateful::new(function)
}

/// Argument of a [`stateful`] handler: a state to read. Handlers that only read a state run in parallel.
///
/// # Examples
///
/// ```
/// use axum::extract::FromRef;
/// use axum::{Router, routing::get};
/// use dapple::Shared;
/// use dapple_http::state::{Read, stateful};
///
/// struct Seats(Vec<bool>);
///
/// /// Runs in parallel with others that only read.
/// fn left(seats: Read<Seats>) -> String {
///     format!("{} left\n", seats.0.iter().filter(|sold| !**sold).count())
/// }
///
/// #[derive(Clone)]
/// struct App(Shared<Seats>);
///
/// impl FromRef<App> for Shared<Seats> {
///     fn from_ref(app: &App) -> Shared<Seats> {
///         app.0.clone()
///     }
/// }
///
/// let app = App(Shared::new(Seats(vec![false; 100])));
/// let router: Router = Router::new().route("/seats", get(stateful(left))).with_state(app);
/// ```
pub struct Read<'a, T>(&'a T);

impl<T> Deref for Read<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Read<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Argument of a [`stateful`] handler: a state to write. No other handler reads or writes it meanwhile.
///
/// # Examples
///
/// ```
/// use axum::extract::{FromRef, Path};
/// use axum::{Router, routing::post};
/// use dapple::Shared;
/// use dapple_http::state::{Write, stateful};
///
/// struct Till(u64);
///
/// /// Runs alone with the till.
/// fn pay(amount: Path<u64>, mut till: Write<Till>) -> String {
///     till.0 += *amount;
///     format!("{}\n", till.0)
/// }
///
/// #[derive(Clone)]
/// struct App(Shared<Till>);
///
/// impl FromRef<App> for Shared<Till> {
///     fn from_ref(app: &App) -> Shared<Till> {
///         app.0.clone()
///     }
/// }
///
/// let router: Router = Router::new().route("/pay/{amount}", post(stateful(pay))).with_state(App(Shared::new(Till(0))));
/// ```
pub struct Write<'a, T>(&'a mut T);

impl<T> Deref for Write<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T> DerefMut for Write<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Write<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Argument of a [`stateful`] handler that is a state: [`Read`] or [`Write`]. `S` is the state of the router, which
/// must have the [`Shared`] by axum's `FromRef`. A program uses it only as a bound.
///
/// # Examples
///
/// ```
/// use axum::extract::FromRef;
/// use dapple::Shared;
/// use dapple_http::state::{Read, StateArgument};
///
/// /// A function that takes the place of the state from the router's, for any argument.
/// fn find<A: StateArgument<App>>(app: &App) -> Shared<A::Value> {
///     A::find(app)
/// }
///
/// #[derive(Clone)]
/// struct App(Shared<u64>);
///
/// impl FromRef<App> for Shared<u64> {
///     fn from_ref(app: &App) -> Shared<u64> {
///         app.0.clone()
///     }
/// }
///
/// let app = App(Shared::named("till", 7));
/// assert_eq!(find::<Read<'static, u64>>(&app).name(), Some("till"));
/// ```
pub trait StateArgument<S>: 'static {
    /// Type of the state's value.
    type Value: Send + 'static;

    /// Request for access to the state.
    type Access<'a>: Access<Value = Self::Value> + Send
    where
        Self: 'a;

    /// Argument that the function gets, for as long as it runs.
    type Given<'g>
    where
        Self: 'g;

    /// Takes this argument's state out of the router's state, by axum's `FromRef`. Called by [`stateful`].
    fn find(state: &S) -> Shared<Self::Value>;

    /// Returns the request for access. Called by [`stateful`].
    fn ask(shared: &Shared<Self::Value>) -> Self::Access<'_>;

    /// Makes the argument of the function from the access. Called by [`stateful`].
    fn give<'a, 'g>(guard: <Self::Access<'a> as Access>::Guard<'g>) -> Self::Given<'g>;

    /// Waits for access to this state, and calls `f` with it. [`stateful`] calls it for a function with one state. Returns
    /// `Cancelled` if the wait was cancelled; then `f` has not run.
    fn alone<R: Send>(
        shared: &Shared<Self::Value>,
        f: impl FnOnce(Self::Given<'_>) -> R + Send,
    ) -> impl Future<Output = Result<R, dapple::Cancelled>> + Send;
}

impl<S, T> StateArgument<S> for Read<'static, T>
where
    Shared<T>: FromRef<S>,
    T: Send + Sync + 'static,
{
    type Value = T;
    type Access<'a>
        = dapple::shared::Reading<'a, T>
    where
        Self: 'a;
    type Given<'g>
        = Read<'g, T>
    where
        Self: 'g;

    fn find(state: &S) -> Shared<T> {
        Shared::from_ref(state)
    }

    fn ask(shared: &Shared<T>) -> dapple::shared::Reading<'_, T> {
        shared.reading()
    }

    fn give<'a, 'g>(
        guard: <<Self as StateArgument<S>>::Access<'a> as Access>::Guard<'g>,
    ) -> <Self as StateArgument<S>>::Given<'g> {
        Read(guard)
    }

    fn alone<R: Send>(
        shared: &Shared<T>,
        f: impl FnOnce(Read<'_, T>) -> R + Send,
    ) -> impl Future<Output = Result<R, dapple::Cancelled>> + Send {
        shared.read(|value| f(Read(value)))
    }
}

impl<S, T> StateArgument<S> for Write<'static, T>
where
    Shared<T>: FromRef<S>,
    T: Send + 'static,
{
    type Value = T;
    type Access<'a>
        = dapple::shared::Writing<'a, T>
    where
        Self: 'a;
    type Given<'g>
        = Write<'g, T>
    where
        Self: 'g;

    fn find(state: &S) -> Shared<T> {
        Shared::from_ref(state)
    }

    fn ask(shared: &Shared<T>) -> dapple::shared::Writing<'_, T> {
        shared.writing()
    }

    fn give<'a, 'g>(
        guard: <<Self as StateArgument<S>>::Access<'a> as Access>::Guard<'g>,
    ) -> <Self as StateArgument<S>>::Given<'g> {
        Write(guard)
    }

    fn alone<R: Send>(
        shared: &Shared<T>,
        f: impl FnOnce(Write<'_, T>) -> R + Send,
    ) -> impl Future<Output = Result<R, dapple::Cancelled>> + Send {
        shared.write(|value| f(Write(value)))
    }
}

/// Extractor of axum for the one argument of a query, whatever its name: `35` of `/fibonacci?n=35`. For several
/// arguments use axum's own `Query`, which takes a struct.
///
/// If the argument is missing, there are several, or it cannot be parsed, the client gets a 400 with the reason, and
/// the handler does not run.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use dapple_http::state::{Query, stateful};
///
/// fn square(number: Query<u64>) -> String {
///     format!("{}\n", *number * *number) // of `/square?n=7`
/// }
///
/// let router: Router = Router::new().route("/square", get(stateful(square)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<T>(pub T);

impl<T> Deref for Query<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<S, T> FromRequestParts<S> for Query<T>
where
    S: Send + Sync,
    T: FromStr<Err: fmt::Display>,
{
    type Rejection = (StatusCode, String);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Query<T>, (StatusCode, String)> {
        let query = parts.uri.query().unwrap_or("");
        let refuse = |why: String| Err((StatusCode::BAD_REQUEST, why));
        let mut arguments = form_urlencoded::parse(query.as_bytes());
        let (Some((name, value)), None) = (arguments.next(), arguments.next()) else {
            return refuse("the query should have one argument, as in ?n=1\n".to_owned());
        };
        match value.parse() {
            Ok(value) => Ok(Query(value)),
            Err(why) => refuse(format!("the argument {name} of the query is not as it should be: {why}\n")),
        }
    }
}
