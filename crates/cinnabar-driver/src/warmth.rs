//! What became of a volume's blocks of an earlier run, in the end.
//!
//! A volume can be attached while the index is being loaded. How many of its blocks are believed, or
//! were dropped, is known afterwards, by its counters.

use cinnabar_engine::counters::VolumeCounters;
use cinnabar_engine::volume::Warmth;

/// What the answer to the attach becomes once the index is loaded. To be asked once of each
/// attachment: later the counters tell of what was cached since.
pub(crate) fn settled(warmth: Warmth, counters: &VolumeCounters) -> Warmth {
    let VolumeCounters { cached_blocks: blocks, dropped_blocks: dropped, .. } = *counters;
    match warmth {
        Warmth::New | Warmth::Warm { .. } => warmth,
        Warmth::Dropped { reason, .. } => Warmth::Dropped { blocks: dropped, reason },
        Warmth::Partly { reason, .. } if dropped > 0 => Warmth::Partly { blocks, dropped, reason },
        Warmth::Partly { .. } | Warmth::Loading => Warmth::Warm { blocks },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_engine::volume::DropReason;

    #[test]
    fn counters_tell_once_the_index_is_loaded() {
        let reason = DropReason::NoProof;
        let counters = |cached_blocks, dropped_blocks| VolumeCounters {
            cached_blocks,
            dropped_blocks,
            ..VolumeCounters::default()
        };
        let partly = |blocks, dropped| Warmth::Partly { blocks, dropped, reason };
        assert_eq!(settled(Warmth::New, &counters(9, 0)), Warmth::New);
        assert_eq!(settled(Warmth::Loading, &counters(9, 0)), Warmth::Warm { blocks: 9 });
        assert_eq!(settled(partly(0, 0), &counters(9, 0)), Warmth::Warm { blocks: 9 });
        assert_eq!(settled(partly(0, 0), &counters(9, 4)), partly(9, 4));
        let dropped = |blocks| Warmth::Dropped { blocks, reason };
        assert_eq!(settled(dropped(0), &counters(0, 16)), dropped(16));
    }
}
