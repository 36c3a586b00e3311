//! The policies and analyses against models too simple to be wrong, over thousands of small traces.

mod divide;
mod dominance;
mod naive;
mod replacement;
mod reuse;
mod sampled;
mod sizing;
mod small_traces;
mod steady;
mod window;
