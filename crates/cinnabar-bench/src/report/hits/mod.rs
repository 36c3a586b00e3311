//! Hit ratios of caches of many sizes: `show` has tables and JSON, `page` curves.

mod page;
mod show;

pub use page::page;
pub use show::{lines, render};

use cinnabar_policy::Writes;
use cinnabar_study::hits::{Contender, Found, Outcome};

/// A trace and what was found.
#[derive(Debug)]
pub struct Simulated {
    /// The trace's path.
    pub trace: String,
    /// What a write does.
    pub writes: Writes,
    /// Requests were given to the engine by sectors.
    pub exact: bool,
    /// Each policy at each size.
    pub found: Found,
}

impl Simulated {
    /// Policies of a run, in order.
    fn contenders(&self) -> Vec<Contender> {
        let mut all = Vec::new();
        for outcome in &self.found.outcomes {
            if !all.contains(&outcome.run.contender) {
                all.push(outcome.run.contender);
            }
        }
        all
    }

    /// Sizes of the caches in blocks, and what each of these contenders did there.
    fn by_size(&self, contenders: &[Contender]) -> Vec<(u32, Vec<Option<&Outcome>>)> {
        let mut sizes: Vec<u32> =
            self.found.outcomes.iter().map(|one| one.run.size_blocks.get()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let row = |size: u32| {
            let is_it =
                |one: &&Outcome, of| one.run.contender == of && one.run.size_blocks.get() == size;
            let of = |of: &Contender| self.found.outcomes.iter().find(|one| is_it(one, *of));
            (size, contenders.iter().map(of).collect())
        };
        sizes.into_iter().map(row).collect()
    }
}
