//! How a function becomes a handler: which of its arguments are states is found by the compiler.
//!
//! For each number of arguments, and each choice of those that are states, there is one implementation of axum's
//! `Handler`; only one fits a given function. The function's own type is asked for twice: once with the arguments as
//! they are written, from which their types are inferred, and once for every lifetime that it may be called with.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use dapple::Cancelled;
use http::StatusCode;

use super::StateArgument;

/// A function as a handler; see [`stateful`](super::stateful()).
#[derive(Clone, Copy)]
pub struct Stateful<F>(F);

impl<F> Stateful<F> {
    pub(super) fn new(function: F) -> Stateful<F> {
        Stateful(function)
    }
}

impl<F> fmt::Debug for Stateful<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stateful({})", std::any::type_name::<F>())
    }
}

/// Marks an argument that is taken from the request.
#[doc(hidden)]
#[allow(missing_debug_implementations, reason = "there is none of it")]
pub struct Extracted<T>(PhantomData<fn() -> T>);

/// Marks an argument that is a state.
#[doc(hidden)]
#[allow(missing_debug_implementations, reason = "there is none of it")]
pub struct Held<T>(PhantomData<fn() -> T>);

/// The function's response, or 503 if the wait for the states was cancelled.
fn respond<R: IntoResponse>(result: Result<R, Cancelled>) -> Response {
    match result {
        Ok(response) => response.into_response(),
        // The client is gone, or the server is shutting down.
        Err(Cancelled) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// One implementation: first all arguments, then those that are extracted but for the last, the last, and the
/// states.
macro_rules! handler {
    ([$($mark:ident $all:ident)*] [] [] [$($held:ident)*]) => {
        handler!([] () [$($mark $all)*] [] [] [$($held)*]);
    };
    ([$($mark:ident $all:ident)*] [$($parts:ident)*] [$last:ident] [$($held:ident)*]) => {
        handler!([M] M [$($mark $all)*] [$($parts)*] [$last] [$($held)*]);
    };
    // The same with axum's mark of the last extractor, if there is one.
    ([$($m:ident)?] $by:ty [$($mark:ident $all:ident)*] [$($parts:ident)*] [$($last:ident)?] [$($held:ident)*]) => {
        #[diagnostic::do_not_recommend]
        #[allow(non_snake_case, unused_mut, unused_variables, reason = "where there is none of a kind")]
        impl<F, R, S, $($m,)? $($all),*> Handler<($by, R, $($mark<$all>),*), S> for Stateful<F>
        where
            F: Clone + Send + Sync + 'static,
            F: Fn($($all),*) -> R,
            F: for<'g> Fn($(given!($mark 'g $all S)),*) -> R,
            R: IntoResponse + Send,
            S: Send + Sync + 'static,
            $($parts: FromRequestParts<S> + Send + 'static,)*
            $($last: FromRequest<S, $by> + Send + 'static,)?
            $($held: StateArgument<S> + 'static,)*
        {
            type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

            fn call(self, request: Request, state: S) -> Self::Future {
                let function = self.0;
                Box::pin(async move {
                    let (mut parts, body) = request.into_parts();
                    $(
                        let $parts = match $parts::from_request_parts(&mut parts, &state).await {
                            Ok(value) => value,
                            Err(rejection) => return rejection.into_response(),
                        };
                    )*
                    $(
                        let request = Request::from_parts(parts, body);
                        let $last = match $last::from_request(request, &state).await {
                            Ok(value) => value,
                            Err(rejection) => return rejection.into_response(),
                        };
                    )?
                    $(let $held = <$held as StateArgument<S>>::find(&state);)*
                    drop(state);
                    hold!(function [$($all)*] [$($held)*] S)
                })
            }
        }
    };
}

/// The type of an argument when the function is called.
macro_rules! given {
    (Extracted $lifetime:lifetime $argument:ident $state:ident) => { $argument };
    (Held $lifetime:lifetime $argument:ident $state:ident) => {
        <$argument as StateArgument<$state>>::Given<$lifetime>
    };
}

/// Calls the function with the states that it needs.
macro_rules! hold {
    ($function:ident [$($all:ident)*] [] $state:ident) => {
        $function($($all),*).into_response()
    };
    ($function:ident [$($all:ident)*] [$held:ident] $state:ident) => {
        respond(<$held as StateArgument<$state>>::alone(&$held, |$held| $function($($all),*)).await)
    };
    ($function:ident [$($all:ident)*] [$($held:ident)*] $state:ident) => {
        respond(
            dapple::together(
                ($(<$held as StateArgument<$state>>::ask(&$held),)*),
                |($($held,)*)| {
                    $(let $held = <$held as StateArgument<$state>>::give($held);)*
                    $function($($all),*)
                },
            )
            .await,
        )
    };
}

/// All choices of states among the given arguments.
macro_rules! handlers {
    // (extracted so far: all but the last, the last) (held) (all) (still to be chosen)
    ([$($parts:ident)*] [$($last:ident)?] [$($held:ident)*] [$($all:tt)*] []) => {
        handler!([$($all)*] [$($parts)*] [$($last)?] [$($held)*]);
    };
    ([$($parts:ident)*] [$($last:ident)?] [$($held:ident)*] [$($all:tt)*] [$next:ident $($rest:ident)*]) => {
        handlers!([$($parts)* $($last)?] [$next] [$($held)*] [$($all)* Extracted $next] [$($rest)*]);
        handlers!([$($parts)*] [$($last)?] [$($held)* $next] [$($all)* Held $next] [$($rest)*]);
    };
}

handlers!([] [] [] [] []);
handlers!([] [] [] [] [A]);
handlers!([] [] [] [] [A B]);
handlers!([] [] [] [] [A B C]);
handlers!([] [] [] [] [A B C D]);
handlers!([] [] [] [] [A B C D E]);
handlers!([] [] [] [] [A B C D E G]);
