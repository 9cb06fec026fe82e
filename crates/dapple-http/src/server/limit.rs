//! Whether a request is begun: the only file that knows of limits.
//!
//! A request is not a task: it is asked for in its connection's turn, and has waited since that was put in line. So
//! the tasks of connections are clocked, and with them the one that accepts: what it accepts was waiting when it was.
//! With HTTP/2 a request is a task in its connection's color, and a color knows since when it waits only if it has a
//! limit: so that of such a connection has one that bounds nothing.

use std::time::Duration;

use dapple::Color;
use dapple::sched::{Admitted, Limit};

/// How long the least patient request may wait, and for how long all of them may have waited longer than that.
const DELAY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// What asks the limit, if there is one.
pub(crate) struct Gate {
    limit: Option<Limit>,
    /// It is the server's own: nobody asks how many run, and so they are not counted.
    is_own: bool,
    /// Bounds nothing.
    unbounded: Limit,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate { is_own: true, ..Gate::new(Some(Limit::new().delay(DELAY.0, DELAY.1))) }
    }
}

impl Gate {
    pub(crate) fn new(limit: Option<Limit>) -> Gate {
        Gate { limit, is_own: false, unbounded: Limit::new() }
    }

    /// Spawns a connection, which knows since when it waits.
    pub(crate) fn spawn(&self, connection: impl Future<Output = ()> + Send + 'static) {
        match self.limit {
            None => dapple::spawn(connection).detach(),
            Some(_) => dapple::task::Builder::new().clocked().spawn(connection).detach(),
        }
    }

    /// Lets the color of a connection know since when it waits: it speaks HTTP/2.
    pub(crate) fn watch_color(&self) {
        if self.limit.is_some() {
            Color::current().set_limit(self.unbounded.clone());
        }
    }

    /// Asks at the beginning of a request, in its connection's color. If it is refused: in how many seconds it may be
    /// worth another try.
    #[inline]
    pub(crate) fn admit(&self) -> Result<Option<Admitted>, u64> {
        let Some(limit) = &self.limit else { return Ok(None) };
        let admitted =
            if self.is_own { limit.pass_now().map(|()| None) } else { limit.admit_now().map(Some) };
        match admitted {
            Ok(admitted) => Ok(admitted),
            Err(refused) => Err(refused.retry_after().as_millis().div_ceil(1000).max(1) as u64),
        }
    }
}
