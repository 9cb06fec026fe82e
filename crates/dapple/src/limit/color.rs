//! The limit of a color.

use super::Limit;
use crate::Color;

impl Color {
    /// Bounds what waits in this color, together with whatever else the limit is given to: see [`Limit`]. It goes for
    /// what is spawned, called or submitted here from now on; an earlier limit goes on for what came before. Tasks
    /// with a color of their own have one by [`Builder::limit`](crate::task::Builder::limit). The main color has none.
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
