//! HTTP on Dapple.
