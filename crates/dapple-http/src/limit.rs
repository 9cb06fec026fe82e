//! Whether a request is begun: the only file that knows of limits.

/// What asks the limit, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Gate {}

/// A request that was let in, until it is dropped.
pub(crate) struct Admitted {}

/// Over the limit.
pub(crate) struct Refused;

impl Gate {
    /// Asks at the beginning of a request, in its connection's color.
    #[expect(clippy::unnecessary_wraps, reason = "there will be limits")]
    pub(crate) fn admit(&self) -> Result<Admitted, Refused> {
        Ok(Admitted {})
    }
}
