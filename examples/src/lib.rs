//! Code that the examples share with their tests; and the guide's code blocks, as doctests.

#[cfg(doctest)]
mod guide;
pub mod oracle;
