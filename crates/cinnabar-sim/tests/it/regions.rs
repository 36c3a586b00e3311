//! Active regions: seeds in which writes may be in them.

use cinnabar_sim::faults::{FaultOptions, search};

#[test]
fn no_seed_breaks_a_promise_beside_active_regions() {
    let options = FaultOptions { regions: Some(true), ..FaultOptions::default() };
    let summary = search(0..120, &options, |_| {});
    if let Some(failed) = summary.failures.first() {
        panic!("{failed}");
    }
}
