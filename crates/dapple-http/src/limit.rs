//! Whether a request is begun: the only file that knows of limits.
//!
//! A request is not a task: it is asked for in its connection's turn, and has waited since that was put in line. A
//! color knows since when only if it has a limit, so each connection's color has one that bounds nothing.

use std::time::Duration;

use dapple::Color;
use dapple::sched::{Admitted, Limit};

/// How long the least patient request may wait, and for how long all of them may have waited longer than that.
const DELAY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// What asks the limit, if there is one.
pub(crate) struct Gate {
    limit: Option<Limit>,
    /// Bounds nothing.
    unbounded: Limit,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate::new(Some(Limit::new().delay(DELAY.0, DELAY.1)))
    }
}

impl Gate {
    pub(crate) fn new(limit: Option<Limit>) -> Gate {
        Gate { limit, unbounded: Limit::new() }
    }

    /// Spawns a connection, in a color that knows since when it waits, from now on.
    pub(crate) fn spawn(&self, connection: impl Future<Output = ()> + Send + 'static) {
        if self.limit.is_none() {
            return dapple::spawn(connection).detach();
        }
        let color = Color::new();
        color.set_limit(self.unbounded.clone());
        color.spawn(connection).detach();
    }

    /// Asks at the beginning of a request, in its connection's color. If it is refused: in how many seconds it may be
    /// worth another try.
    #[inline]
    pub(crate) fn admit(&self) -> Result<Option<Admitted>, u64> {
        let Some(limit) = &self.limit else { return Ok(None) };
        match limit.admit_now() {
            Ok(admitted) => Ok(Some(admitted)),
            Err(refused) => Err(refused.retry_after().as_millis().div_ceil(1000).max(1) as u64),
        }
    }
}
