//! Handlers that hold up their worker: they compute, or sleep, and are written as if that did not matter.

use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, StatusCode, header};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::server::{Handler, Reply};
use crate::contest::Failure;
use crate::spin;

/// The paths of the two kinds of requests.
pub(crate) const LIGHT: &str = "/light";
pub(crate) const HEAVY: &str = "/heavy";

/// The work of a heavy request.
#[derive(Clone, Copy)]
pub(crate) enum Burden {
    /// Compute for this number of steps. All sides have the same number: the process that starts them has timed the
    /// steps.
    Compute(u64),
    Sleep(Duration),
}

impl Burden {
    /// Parses the argument of a server's process: `compute-STEPS` or `sleep-MILLISECONDS`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let parsed = match text.split_once('-') {
            Some(("compute", steps)) => steps.parse().map(Self::Compute).ok(),
            Some(("sleep", millis)) => millis.parse().map(|m| Self::Sleep(Duration::from_millis(m))).ok(),
            _ => None,
        };
        parsed.ok_or_else(|| format!("not what a heavy request does: {text:?}"))
    }

    /// The argument for a server's process, which [`Burden::parse`] reads.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Compute(steps) => format!("compute-{steps}"),
            Self::Sleep(time) => format!("sleep-{}", time.as_millis()),
        }
    }

    /// Holds up this thread.
    fn bear(self) {
        match self {
            Self::Compute(steps) => drop(black_box(spin::work(black_box(steps), 1))),
            Self::Sleep(time) => thread::sleep(time),
        }
    }
}

fn hello() -> Reply {
    Reply::new(Full::new(Bytes::from_static(b"Hello, World!")))
}

fn is_heavy(request: &Request<Incoming>) -> bool {
    request.uri().path() == HEAVY
}

/// In the handler itself.
pub(crate) struct Naive(pub(crate) Burden);

impl Handler for Naive {
    async fn answer(&'static self, request: Request<Incoming>) -> Reply {
        if is_heavy(&request) {
            self.0.bear();
        }
        hello()
    }
}

/// On tokio's pool for blocking calls, as its documentation advises for either burden.
pub(crate) struct Aside(pub(crate) Burden);

impl Handler for Aside {
    async fn answer(&'static self, request: Request<Incoming>) -> Reply {
        if is_heavy(&request) {
            spawn_blocking(|| self.0.bear()).await.expect("a burden that ends");
        }
        hello()
    }
}

/// The same, but no more than some at a time: what is beyond that is refused at once.
pub(crate) struct Bounded {
    burden: Burden,
    permits: Arc<Semaphore>,
}

impl Bounded {
    pub(crate) fn new(burden: Burden, most: usize) -> Self {
        Self { burden, permits: Arc::new(Semaphore::new(most)) }
    }
}

impl Handler for Bounded {
    async fn answer(&'static self, request: Request<Incoming>) -> Reply {
        let Ok(permit) = self.permits.clone().try_acquire_owned() else { return refusal() };
        if is_heavy(&request) {
            spawn_blocking(|| self.burden.bear()).await.expect("a burden that ends");
        }
        drop(permit);
        hello()
    }
}

fn refusal() -> Reply {
    let mut reply = Reply::new(Full::default());
    *reply.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    reply.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burden_is_read_as_it_was_written() {
        for text in ["compute-123", "sleep-50"] {
            assert_eq!(Burden::parse(text).unwrap().text(), text);
        }
        assert!(Burden::parse("dance-3").is_err());
    }
}
