//! Whether a request is begun: the only file that knows of limits.
//!
//! A request of HTTP/1 is not a task: it begins in the turn of its connection, and has waited since that turn was
//! asked for. A stream of HTTP/2 is a task, and begins in its own turn. So the tasks of connections and streams are
//! clocked, and so is the task that accepts: a connection was waiting in the kernel's queue for as long as that task
//! was in line.

use std::time::Duration;

use dapple::sched::{Admitted, Limit};

/// How long the least patient request may wait, and for how long all of them may have waited longer than that.
const DELAY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// What asks the limit, if there is one.
pub(crate) struct RequestLimit {
    limit: Option<Limit>,
    /// It is the server's own: nobody asks how many run, and so they are not counted.
    is_own: bool,
}

impl Default for RequestLimit {
    fn default() -> RequestLimit {
        RequestLimit { is_own: true, ..RequestLimit::new(Some(Limit::new().delay(DELAY.0, DELAY.1))) }
    }
}

impl RequestLimit {
    pub(crate) fn new(limit: Option<Limit>) -> RequestLimit {
        RequestLimit { limit, is_own: false }
    }

    /// Spawns the task of a connection, or of a stream of HTTP/2, which knows how long it has waited for its turn.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match self.limit {
            None => dapple::spawn(task).detach(),
            Some(_) => dapple::task::Builder::new().clocked().spawn(task).detach(),
        }
    }

    /// Asks when a request begins, in the task that runs it. Refused: the seconds after which another try may succeed.
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
