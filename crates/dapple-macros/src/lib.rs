//! The attributes `#[dapple::main]` and `#[dapple::test]`.
//!
//! Both take an `async fn` without arguments, drop the `async`, and wrap its body in a call that
//! runs it. That needs no more than a look at the tokens, so no parser is pulled in.

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

/// Runs an `async fn main` on a runtime, as `dapple::run` does.
///
/// `#[dapple::main(workers = 2)]` sets the number of workers.
///
/// ```
/// #[dapple::main]
/// async fn main() {
///     assert_eq!(dapple::spawn(async { 1 }).await.unwrap(), 1);
/// }
/// ```
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand("dapple::main", options, item).unwrap_or_else(Error::into_tokens)
}

/// Runs an `async fn` as a test on a runtime of its own.
///
/// `#[dapple::test(workers = 2)]` sets the number of workers.
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    let function = expand("dapple::test", options, item);
    let attribute: TokenStream = "#[::core::prelude::v1::test]".parse().expect("a constant");
    function.map_or_else(Error::into_tokens, |function| attribute.into_iter().chain(function).collect())
}

struct Error {
    message: String,
    span: Span,
}

impl Error {
    fn new(message: impl Into<String>, span: Span) -> Error {
        Error { message: message.into(), span }
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

fn expand(attribute: &str, options: TokenStream, item: TokenStream) -> Result<TokenStream, Error> {
    let workers = parse_options(attribute, options)?;
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let is =
        |token: &TokenTree, word: &str| matches!(token, TokenTree::Ident(ident) if ident.to_string() == word);
    let Some(fn_at) = tokens.iter().position(|token| is(token, "fn")) else {
        return Err(Error::new(format!("#[{attribute}] goes on an `async fn`"), Span::call_site()));
    };
    let name_span = tokens.get(fn_at + 1).map_or(Span::call_site(), TokenTree::span);
    let Some(async_at) = tokens[..fn_at].iter().position(|token| is(token, "async")) else {
        return Err(Error::new(
            format!("#[{attribute}] goes on an `async fn`: write `async` before `fn`"),
            name_span,
        ));
    };
    let arguments = tokens[fn_at..].iter().find_map(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => Some(group),
        _ => None,
    });
    if arguments.is_some_and(|arguments| !arguments.stream().is_empty()) {
        return Err(Error::new(format!("a function with #[{attribute}] takes no arguments"), name_span));
    }
    let Some(TokenTree::Group(body)) = tokens.pop() else {
        return Err(Error::new(format!("#[{attribute}] needs a function with a body"), name_span));
    };
    let call = format!("{{ ::dapple::__private::run({workers}, async move) }}");
    tokens.push(insert_body(call.parse().expect("a block"), &body));
    tokens.remove(async_at);
    Ok(tokens.into_iter().collect())
}

/// Puts `body` behind the last token of the innermost group.
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

/// Reads `workers = N`; the code of an `Option<usize>` comes out.
fn parse_options(attribute: &str, options: TokenStream) -> Result<String, Error> {
    let tokens: Vec<TokenTree> = options.into_iter().collect();
    let usage = |span| Error::new(format!("write #[{attribute}] or #[{attribute}(workers = 2)]"), span);
    match tokens.as_slice() {
        [] => Ok("::core::option::Option::None".to_owned()),
        [TokenTree::Ident(key), TokenTree::Punct(equals), TokenTree::Literal(workers)]
            if is_workers(key) && equals.as_char() == '=' =>
        {
            let count = workers.to_string().parse::<usize>().ok().filter(|count| *count > 0);
            let wrong = || Error::new("`workers` is a number, at least 1", workers.span());
            count.map(|count| format!("::core::option::Option::Some({count})")).ok_or_else(wrong)
        }
        [first, ..] => Err(usage(first.span())),
    }
}

fn is_workers(key: &Ident) -> bool {
    key.to_string() == "workers"
}
