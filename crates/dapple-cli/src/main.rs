//! The program `dapple`.

fn main() {}
