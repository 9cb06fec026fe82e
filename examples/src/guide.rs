//! The code blocks of the guide and of the READMEs, as doctests: `cargo test -p examples --doc` compiles and runs them.
//!
//! One module per page. Edition 2024 merges the blocks into few programs, so a page costs little.

macro_rules! pages {
    ($($page:ident $path:literal)*) => {
        $(
            #[doc = include_str!(concat!("../../", $path))]
            mod $page {}
        )*
    };
}

pages! {
    readme "README.md"
    readme_dapple "crates/dapple/README.md"
    readme_http "crates/dapple-http/README.md"
    first_service "docs/guide/src/01-first-service.md"
    colors "docs/guide/src/02-colors.md"
    state "docs/guide/src/03-state.md"
    cancellation "docs/guide/src/04-cancellation.md"
    blocking "docs/guide/src/05-blocking-and-overload.md"
    testing "docs/guide/src/06-testing.md"
    files "docs/guide/src/07-files-processes-signals.md"
    http "docs/guide/src/08-http.md"
    tokio "docs/guide/src/10-coming-from-tokio.md"
    elsewhere "docs/guide/src/11-coming-from-elsewhere.md"
    inside "docs/guide/src/12-how-it-works.md"
}
