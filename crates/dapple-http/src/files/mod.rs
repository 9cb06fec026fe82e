//! A folder as a service: [`files`].
//!
//! # Inside
//!
//! ```text
//! request ─ path ──────────── store ─────────── page ─ answer ─ body
//!           decoded, checked  │ known: no        form,   conditions, ranges
//!                             │ system call      headers
//!                             └ single_flight: one looks ─ root: openat2, beneath ─ dapple::fs
//! ```
//!
//! docs/design/files_service.md has the decisions and their reasons.

mod answer;
mod body;
mod buffers;
mod clock;
mod conditional;
mod encoding;
mod kind;
mod listing;
mod pace;
mod page;
mod path;
mod range;
mod root;
mod service;
mod settings;
mod single_flight;
mod stats;
mod store;

pub use body::FileBody;
pub use service::{Answer, FileService, files};
pub use settings::{FileFailure, InvalidRule};
pub use stats::FileStats;
