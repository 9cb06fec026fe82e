//! The options in the brackets of an attribute.

use proc_macro::{Span, TokenStream, TokenTree};

use crate::MacroError;

#[derive(Default)]
pub(crate) struct AttributeOptions {
    pub(crate) is_simulated: bool,
    /// Runs in simulations, cancelled at each wait.
    pub(crate) cancels: bool,
    /// Any error passes in a run that is disturbed.
    pub(crate) allows_errors: bool,
    pub(crate) workers: Option<u64>,
    pub(crate) seeds: Option<u64>,
    pub(crate) waits: Option<u64>,
}

impl AttributeOptions {
    /// Reads `sim` or `cancel_everywhere`, `workers = N`, `seeds = N` and `waits = N`, in any order, with commas between
    /// them.
    pub(crate) fn read(attribute: &str, options: TokenStream) -> Result<AttributeOptions, MacroError> {
        let tokens: Vec<TokenTree> = options.into_iter().collect();
        let mut read = AttributeOptions::default();
        let (mut seeds_at, mut waits_at) = (None, None);
        let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
        let mut parts: Vec<_> = tokens.split(is_comma).collect();
        // A trailing comma is allowed.
        if parts.last().is_some_and(|last| last.is_empty()) {
            parts.pop();
        }
        for part in parts {
            let span = part.first().map_or(Span::call_site(), TokenTree::span);
            let key = match part {
                [TokenTree::Ident(key), ..] => key.to_string(),
                _ => return Err(usage(attribute, span)),
            };
            let is_twice = match (key.as_str(), &part[1..]) {
                ("sim", []) if attribute == "dapple::main" => {
                    return Err(MacroError::new(
                        "a `main` is not simulated: call `dapple::sim::Sim::new(seed).run(...)` in it",
                        span,
                    ));
                }
                ("sim", []) => std::mem::replace(&mut read.is_simulated, true),
                ("cancel_everywhere", []) if attribute == "dapple::test" => {
                    std::mem::replace(&mut read.cancels, true)
                }
                ("allow_errors", []) if attribute == "dapple::test" => {
                    waits_at = Some(span);
                    std::mem::replace(&mut read.allows_errors, true)
                }
                ("workers", value) => read.workers.replace(number(&key, value, span)?).is_some(),
                ("seeds", value) if attribute == "dapple::test" => {
                    seeds_at = Some(span);
                    read.seeds.replace(number(&key, value, span)?).is_some()
                }
                ("waits", value) if attribute == "dapple::test" => {
                    waits_at = Some(span);
                    read.waits.replace(number(&key, value, span)?).is_some()
                }
                _ => return Err(usage(attribute, span)),
            };
            if is_twice {
                return Err(MacroError::new(format!("`{key}` is there twice"), span));
            }
        }
        if read.cancels && read.is_simulated {
            let both = "`cancel_everywhere` is in simulations anyway: leave `sim` out";
            return Err(MacroError::new(both, Span::call_site()));
        }
        if let Some(span) = waits_at.filter(|_| !read.cancels) {
            let alone = "`waits` and `allow_errors` go with `cancel_everywhere`: #[dapple::test(cancel_everywhere, waits = 5000)]";
            return Err(MacroError::new(alone, span));
        }
        if let Some(span) = seeds_at.filter(|_| !read.is_simulated && !read.cancels) {
            let alone = "`seeds` goes with `sim` or `cancel_everywhere`: #[dapple::test(sim, seeds = 1000)]";
            return Err(MacroError::new(alone, span));
        }
        Ok(read)
    }
}

fn usage(attribute: &str, span: Span) -> MacroError {
    let simulated = match attribute {
        "dapple::test" => {
            ", or #[dapple::test(sim, workers = 8, seeds = 1000)], or #[dapple::test(cancel_everywhere, waits = 5000, seeds = 3, allow_errors)]"
        }
        _ => "",
    };
    MacroError::new(format!("write #[{attribute}] or #[{attribute}(workers = 2)]{simulated}"), span)
}

/// Reads `= N`, where N is at least 1.
fn number(key: &str, value: &[TokenTree], span: Span) -> Result<u64, MacroError> {
    let wrong = |span| MacroError::new(format!("`{key}` is a number, at least 1: `{key} = 8`"), span);
    match value {
        [TokenTree::Punct(equals), TokenTree::Literal(number)] if equals.as_char() == '=' => {
            let count = number.to_string().replace('_', "").parse().ok().filter(|count| *count > 0);
            count.ok_or_else(|| wrong(number.span()))
        }
        _ => Err(wrong(span)),
    }
}
