//! The attributes `#[dapple::main]` and `#[dapple::test]`.
//!
//! Both take an `async fn` without arguments, drop the `async`, and wrap its body in a call that
//! runs it. A body that runs more than once, in simulations, stays an `async fn` inside of the
//! function that calls it. A look at the tokens is enough for that, so no parser is needed.

#[cfg(doctest)]
mod misuse;
mod options;

use options::AttributeOptions;
use proc_macro::{Delimiter, Group, Span, TokenStream, TokenTree};

/// Runs an `async fn main` on a runtime, as `dapple::run` does. Use it on the `main` of a program; for other settings
/// build a `dapple::Runtime`.
///
/// The body runs in the main color, on the thread of `main`, and need not be `Send`. Its output is that of `main`: an `Err`
/// is printed, and the program ends with status 1. When the body returns, all tasks are cancelled, get a second to end by
/// themselves, and are then dropped. If the runtime cannot be started, `main` panics.
///
/// `#[dapple::main(workers = 2)]` sets the number of workers; without it there is one for each processor that the program
/// may use.
///
/// ```
/// #[dapple::main]
/// async fn main() {
///     assert_eq!(dapple::spawn(async { 1 }).await.unwrap(), 1);
/// }
/// ```
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand("dapple::main", options, item).unwrap_or_else(MacroError::into_tokens)
}

/// Runs an `async fn` as a test on a runtime of its own.
///
/// `#[dapple::test(workers = 2)]` sets the number of workers.
///
/// # In a simulation
///
/// `#[dapple::test(sim)]` runs the body in simulations instead (`dapple::sim`): on virtual workers, in
/// virtual time, once for each of the seeds 0 to 99, each in a simulation of its own. The test fails at the
/// first seed that fails: if the body panics or returns an `Err`, if nothing can run (a deadlock), or if
/// it does not end. The seed is printed, with a command line that runs it again.
///
/// ```
/// use dapple::time::{Duration, Instant, sleep};
///
/// #[dapple::test(sim)]
/// async fn an_hour_passes_at_once() {
///     let begun = Instant::now();
///     sleep(Duration::from_secs(3600)).await.unwrap();
///     assert!(begun.elapsed() >= Duration::from_secs(3600));
/// }
///
/// #[dapple::test(sim, workers = 8, seeds = 1_000)]
/// async fn a_thousand_runs_on_eight_workers() -> Result<(), dapple::JoinError> {
///     let task = dapple::spawn(async { 1 });
///     assert_eq!(task.await?, 1);
///     Ok(())
/// }
/// ```
///
/// # Cancelled everywhere
///
/// `#[dapple::test(cancel_everywhere)]` runs the body in simulations, too: once for each of its waits and each way to
/// disturb it there (cancelled, dropped, delayed), as `dapple::sim::cancel_everywhere` does. The body may use `?`:
/// an error that reports its cancellation passes. A body that returns early does not reach assertions at its end, so
/// register its invariants at the beginning, by `dapple::sim::check_after`.
///
/// ```
/// use dapple::sync::Mutex;
/// use std::sync::Arc;
///
/// #[dapple::test(cancel_everywhere)]
/// async fn a_transfer_is_whole_or_has_not_happened() -> Result<(), dapple::Cancelled> {
///     let accounts = Arc::new(Mutex::new((100, 0)));
///     let after = accounts.clone();
///     dapple::sim::check_after(async move {
///         let (from, to) = *after.lock().await.unwrap();
///         assert_eq!(from + to, 100);
///     });
///     let mut accounts = accounts.lock().await?;
///     accounts.0 -= 30;
///     accounts.1 += 30; // with an await between the two lines, this test would fail
///     Ok(())
/// }
/// ```
///
/// # Options and environment
///
/// | option | meaning | without it |
/// |---|---|---|
/// | `sim` | runs it in simulations | runs it once, on a runtime |
/// | `cancel_everywhere` | runs it in simulations, cancelled at each wait | |
/// | `workers = 8` | the number of workers | 4 in a simulation, else one for each core |
/// | `seeds = 1000` | the number of seeds | 100 with `sim`, 1 with `cancel_everywhere` |
/// | `allow_errors` | any error passes where the body is disturbed, with `cancel_everywhere` | only cancellations pass |
/// | `waits = 5000` | the number of waits for each seed, with `cancel_everywhere` | 1000, evenly drawn |
///
/// | environment variable | meaning |
/// |---|---|
/// | `DAPPLE_SEED=17` | runs this seed alone |
/// | `DAPPLE_CANCEL=3:late` | runs this wait and mode alone, with `cancel_everywhere` |
/// | `DAPPLE_SEEDS=5000` | sets the number of seeds with `sim`, in place of the test's own number: for a nightly run |
/// | `DAPPLE_TRACE=FILE` | writes the trace of the failed run to a file; `-` is stderr |
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    let function = expand("dapple::test", options, item);
    let attribute: TokenStream = "#[::core::prelude::v1::test]".parse().expect("a constant");
    function.map_or_else(MacroError::into_tokens, |function| attribute.into_iter().chain(function).collect())
}

struct MacroError {
    message: String,
    span: Span,
}

impl MacroError {
    fn new(message: impl Into<String>, span: Span) -> MacroError {
        MacroError { message: message.into(), span }
    }

    fn into_tokens(self) -> TokenStream {
        let code = format!("::core::compile_error!({:?});", self.message);
        let tokens: TokenStream = code.parse().expect("a macro call");
        tokens
            .into_iter()
            .map(|mut token| {
                token.set_span(self.span);
                token
            })
            .collect()
    }
}

fn expand(attribute: &str, options: TokenStream, item: TokenStream) -> Result<TokenStream, MacroError> {
    let options = AttributeOptions::read(attribute, options)?;
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let is =
        |token: &TokenTree, word: &str| matches!(token, TokenTree::Ident(ident) if ident.to_string() == word);
    let Some(fn_at) = tokens.iter().position(|token| is(token, "fn")) else {
        return Err(MacroError::new(format!("#[{attribute}] goes on an `async fn`"), Span::call_site()));
    };
    let name_span = tokens.get(fn_at + 1).map_or(Span::call_site(), TokenTree::span);
    let Some(async_at) = tokens[..fn_at].iter().position(|token| is(token, "async")) else {
        return Err(MacroError::new(
            format!("#[{attribute}] goes on an `async fn`: write `async` before `fn`"),
            name_span,
        ));
    };
    let arguments = tokens[fn_at..].iter().find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => Some(group),
        _ => None,
    });
    if arguments.is_some_and(|arguments| !arguments.stream().is_empty()) {
        return Err(MacroError::new(format!("a function with #[{attribute}] takes no arguments"), name_span));
    }
    let Some(TokenTree::Group(body)) = tokens.pop() else {
        return Err(MacroError::new(format!("#[{attribute}] needs a function with a body"), name_span));
    };
    if options.is_simulated || options.cancels {
        let original = tokens[async_at..].iter().cloned().chain([TokenTree::Group(body.clone())]).collect();
        if options.cancels {
            // The output of the body is checked after each run; the test itself returns nothing.
            let is_arguments = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis);
            let arguments_at =
                tokens[fn_at..].iter().position(is_arguments).map_or(tokens.len(), |at| fn_at + at + 1);
            tokens.truncate(arguments_at);
        }
        tokens.push(simulate(&options, &tokens[fn_at + 1].to_string(), original, body.span()));
    } else {
        let workers = code_of(options.workers);
        let call = format!("{{ ::dapple::__private::run({workers}, async move) }}");
        tokens.push(insert_body(call.parse().expect("a block"), &body));
    }
    tokens.remove(async_at);
    Ok(tokens.into_iter().collect())
}

/// The body of a function that runs `original`, the `async fn` called `name`, in simulations.
fn simulate(options: &AttributeOptions, name: &str, original: TokenStream, span: Span) -> TokenTree {
    let path = format!("::core::concat!(::core::module_path!(), \"::\", ::core::stringify!({name}))");
    let (workers, seeds, waits) = (code_of(options.workers), code_of(options.seeds), code_of(options.waits));
    let call = match options.cancels {
        false => format!("::dapple::__private::simulate({path}, {workers}, {seeds}, {name})"),
        true => format!(
            "::dapple::__private::cancel_everywhere({path}, {workers}, {seeds}, {waits}, {}, {name})",
            options.allows_errors
        ),
    };
    let call: TokenStream = call.parse().expect("a call");
    let mut block = Group::new(Delimiter::Brace, original.into_iter().chain(call).collect());
    block.set_span(span);
    TokenTree::Group(block)
}

/// The code of an `Option` with a number.
fn code_of(number: Option<u64>) -> String {
    number.map_or("::core::option::Option::None".to_owned(), |number| {
        format!("::core::option::Option::Some({number})")
    })
}

/// Appends `body` after the last token of the innermost group.
fn insert_body(block: TokenStream, body: &Group) -> TokenTree {
    let mut tokens: Vec<TokenTree> = block.into_iter().collect();
    let Some(TokenTree::Group(last)) = tokens.last() else { unreachable!("it ends in a group") };
    let mut inner: Vec<TokenTree> = last.stream().into_iter().collect();
    match inner.last() {
        Some(TokenTree::Group(_)) => {
            let nested = inner.pop().expect("just seen");
            inner.push(insert_body(nested.into(), body));
        }
        _ => inner.push(TokenTree::Group(body.clone())),
    }
    let mut group = Group::new(last.delimiter(), inner.into_iter().collect());
    group.set_span(body.span());
    tokens.pop();
    tokens.push(TokenTree::Group(group));
    match tokens.len() {
        1 => tokens.remove(0),
        _ => TokenTree::Group(Group::new(Delimiter::None, tokens.into_iter().collect())),
    }
}
