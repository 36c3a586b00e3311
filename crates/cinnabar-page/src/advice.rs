//! Which volume deserves more cache: what the next GiB would bring, by the newest plan.

use crate::data::Data;

/// What the next GiB would bring to a volume.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Worth {
    pub(crate) volume: String,
    /// What it would add to the part of the reads that hit, from 0 to 1.
    pub(crate) hits: f64,
    /// Blocks a second that would hit then, at the rate of the range.
    pub(crate) blocks: f64,
}

/// Less than this is as good as nothing, in blocks a second.
const BLOCKS_MIN: f64 = 0.5;

/// Of all volumes of the newest plan, those that gain most first.
pub(crate) fn worth(data: &Data) -> Vec<Worth> {
    let Some(plan) = data.plan() else { return Vec::new() };
    let one = |share: &cinnabar_manager::report::ShareReport| {
        let window = data.window_of(&share.volume);
        let reads = window.a_second(window.read_blocks as f64).unwrap_or(0.0);
        let hits = share.next_gib_hits;
        Worth { volume: share.volume.clone(), hits, blocks: hits * reads }
    };
    let mut all: Vec<Worth> = plan.volumes.iter().map(one).collect();
    all.sort_by(|a, b| b.blocks.total_cmp(&a.blocks).then_with(|| a.volume.cmp(&b.volume)));
    all
}

/// The one that deserves more, if there is one.
pub(crate) fn best(data: &Data) -> Option<Worth> {
    worth(data).into_iter().next().filter(|worth| worth.blocks >= BLOCKS_MIN)
}
