//! Programs without `async`, and without `cancel`.

use std::sync::Arc;

use super::language::{Command, Flag, Pool, Shared};

/// *ae(C)*: the same without `async`. A command that does not block behaves in the same way.
#[must_use]
pub fn without_async(command: &Shared) -> Shared {
    if let Command::Async(c) = &**command {
        return without_async(c);
    }
    let parts = command.parts().into_iter().map(without_async).collect();
    Arc::new(command.with_parts(parts))
}

/// *ce(C)*: the same without `cancel`. A command that cannot be cancelled behaves in the same way.
///
/// Whether a pool was cancelled makes no difference then: all of them are `CNCL`, as the paper has it.
#[must_use]
pub fn without_cancel(command: &Shared) -> Shared {
    let parts = command.parts().into_iter().map(without_cancel).collect();
    Arc::new(match command.with_parts(parts) {
        Command::Cancel => Command::Skip,
        Command::Pool(pool) => Command::Pool(Pool { flag: Flag::Cancelled, ..pool }),
        other => other,
    })
}
