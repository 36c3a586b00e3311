//! A trace through a policy.
//!
//! For callers that have all accesses in memory; those that read them from a trace feed a
//! [`Simulation`], once for each policy and size.

use crate::access::Access;
use crate::counts::{Counts, Writes};
use crate::replacement::{Future, Policy};
use crate::simulation::Simulation;
use std::num::NonZeroU32;

/// Runs `accesses` through a cache of `capacity` blocks, empty at first.
///
/// # Panics
/// If Belady is asked about more than [`Future::ACCESSES_MAX`] accesses.
pub fn simulate(
    policy: Policy,
    capacity: NonZeroU32,
    writes: Writes,
    accesses: &[Access],
) -> Counts {
    if let Some(mut simulation) = Simulation::new(policy, capacity, writes) {
        simulation.feed(accesses);
        return simulation.finish();
    }
    let future = Future::new(accesses, writes).expect("positions have 32 bits");
    let mut simulation = Simulation::foreseeing(capacity, writes, &future);
    simulation.feed(accesses);
    simulation.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_write_are_read_as_they_are_written() {
        for writes in Writes::ALL {
            assert_eq!(writes.to_string().parse(), Ok(writes));
        }
        let error = "never".parse::<Writes>().expect_err("there is none");
        for writes in Writes::ALL {
            assert!(error.to_string().contains(writes.name()), "{error}");
        }
    }
}
