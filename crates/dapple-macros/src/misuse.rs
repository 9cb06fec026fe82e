//! Misuse that must not compile, each next to a twin that does.
//!
//! `seeds` means nothing without `sim`:
//!
//! ```
//! #[dapple::test(sim, seeds = 10)]
//! async fn promise() {}
//! ```
//! ```compile_fail
//! #[dapple::test(seeds = 10)]
//! async fn promise() {}
//! ```
//!
//! Options come in any order, each once:
//!
//! ```
//! #[dapple::test(seeds = 10, workers = 2, sim,)]
//! async fn promise() {}
//! ```
//! ```compile_fail
//! #[dapple::test(sim, seeds = 10, seeds = 20)]
//! async fn promise() {}
//! ```
//! ```compile_fail
//! #[dapple::test(sim, sim)]
//! async fn promise() {}
//! ```
//!
//! Numbers are from 1 on:
//!
//! ```
//! #[dapple::test(sim, workers = 1, seeds = 1)]
//! async fn promise() {}
//! ```
//! ```compile_fail
//! #[dapple::test(sim, seeds = 0)]
//! async fn promise() {}
//! ```
//! ```compile_fail
//! #[dapple::test(sim, workers = 0)]
//! async fn promise() {}
//! ```
//! ```compile_fail
//! #[dapple::test(sim, seeds = "many")]
//! async fn promise() {}
//! ```
//! ```compile_fail
//! #[dapple::test(sim, seeds)]
//! async fn promise() {}
//! ```
//!
//! There is no other option, and `sim` has no value:
//!
//! ```
//! #[dapple::test(sim)]
//! async fn promise() {}
//! ```
//! ```compile_fail
//! #[dapple::test(simulated)]
//! async fn promise() {}
//! ```
//! ```compile_fail
//! #[dapple::test(sim = 1)]
//! async fn promise() {}
//! ```
//! ```compile_fail
//! #[dapple::test(sim workers = 8)]
//! async fn promise() {}
//! ```
//! ```compile_fail
//! #[dapple::test(, sim)]
//! async fn promise() {}
//! ```
//!
//! `cancel_everywhere` takes `seeds`, `workers` and `waits`; `waits` goes with nothing else:
//!
//! ```
//! #[dapple::test(cancel_everywhere, seeds = 2, waits = 10, workers = 1, allow_errors)]
//! async fn promise() {}
//! ```
//! ```compile_fail
//! #[dapple::test(sim, waits = 10)]
//! async fn promise() {}
//! ```
//! ```compile_fail
//! #[dapple::test(sim, allow_errors)]
//! async fn promise() {}
//! ```
//! ```compile_fail
//! #[dapple::test(cancel_everywhere, sim)]
//! async fn promise() {}
//! ```
//! ```compile_fail
//! #[dapple::test(cancel_everywhere, waits = 0)]
//! async fn promise() {}
//! ```
//! ```compile_fail
//! #[dapple::main(cancel_everywhere)]
//! async fn main() {}
//! ```
//!
//! It goes on an `async fn`:
//!
//! ```
//! #[dapple::test(cancel_everywhere)]
//! async fn promise() -> Result<(), dapple::Cancelled> {
//!     Ok(())
//! }
//! ```
//! ```compile_fail
//! #[dapple::test(cancel_everywhere)]
//! fn promise() {}
//! ```
//!
//! A simulated test may return a `Result`, whose error is a failure, or `()`:
//!
//! ```
//! #[dapple::test(sim)]
//! async fn promise() -> Result<(), std::io::Error> {
//!     Ok(())
//! }
//! ```
//!
//! A `main` is run once, on a real runtime:
//!
//! ```
//! #[dapple::main(workers = 2)]
//! async fn main() {}
//! ```
//! ```compile_fail
//! #[dapple::main(sim)]
//! async fn main() {}
//! ```
//! ```compile_fail
//! #[dapple::main(seeds = 2)]
//! async fn main() {}
//! ```
