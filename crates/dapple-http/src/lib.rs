//! HTTP on Dapple.

pub mod files;
