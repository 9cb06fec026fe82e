//! Limit of a color.

use super::Limit;
use crate::Color;

impl Color {
    /// Bounds the work that waits in this color, together with all other work of the limit: see [`Limit`].
    ///
    /// It applies to tasks and closures that are spawned, called or submitted here from now on; an earlier
    /// limit still applies to earlier ones. A task with a color of its own gets a limit by
    /// [`Builder::limit`](crate::task::Builder::limit). The main color has none.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::{Color, limit::Limit};
    ///
    /// dapple::run(async {
    ///     let color = Color::new();
    ///     color.set_limit(Limit::new().depth(10));
    ///     let calls: Vec<_> = (0..50).map(|i| color.call(move || i)).collect();
    ///     let mut refused = 0;
    ///     for call in calls {
    ///         refused += usize::from(call.await.is_err_and(|error| error.is_refused()));
    ///     }
    ///     assert!(refused <= 40); // fewer, if a worker was quick enough
    /// });
    /// ```
    pub fn set_limit(&self, limit: Limit) {
        self.lane().set_limit(limit.into_gate());
    }
}
