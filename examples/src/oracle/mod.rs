//! The oracle: compares the outcomes that the rules of scopes allow a program with the outcome of a run.
//!
//! The rules are those of "AC: Composable Asynchronous IO for Native Languages" (Harris, Abadi, Isaacs,
//! McIlroy, 2011), section 3, Figure 5.
//!
//! ```text
//! language   the paper's core language, and how it is printed
//! rules      the rules, each by its name
//! explore    all outcomes that they allow
//! run        the same programs on Dapple: on real workers, or simulated
//! polling    how they are polled: so that all operations block, or as foreign code does it
//! generate   programs at random, by seed, and smaller ones that fail in the same way
//! check      whether what happened is allowed
//! elision    programs without `async`, and without `cancel`: the properties stated in the paper
//! ```

pub mod check;
pub mod elision;
pub mod explore;
pub mod generate;
pub mod language;
mod polling;
pub mod rules;
pub mod run;
