//! The comparison of allocators: its models against brute force and the engine itself, its sizes
//! against what was asked for, and input that can't be compared.

mod bad;
mod engine;
mod engine_model;
mod mixture;
mod papers;
mod whole;
