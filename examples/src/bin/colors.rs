//! What colors do, seen live. Run it: `cargo run --release -p examples --bin colors`
fn main() {}
