//! The scheduler of back ends in a simulated world; and the pool of shards under loom, which runs its threads in every order, and lets each see of the others'
//! stores what the processor may show it.
//!
//! `pool.rs` and `pool/questions.rs` here are links to the files of the library: the same code, above
//! loom's locks instead of the standard library's.

#[allow(dead_code, unreachable_pub, unfulfilled_lint_expectations, reason = "the library's own")]
mod pool;

mod qos;
mod sync;

use cinnabar_driver::{health_news, shard};
