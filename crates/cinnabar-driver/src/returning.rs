//! A volume that others have written since it was let go of, and of which it is known what they have changed:
//! its other blocks are believed.
//!
//! The seal of a clean end may name a snapshot of the back end in its proof: what the device holds of the
//! volume is what the snapshot holds. That stays true whatever others write to the back end, for as long as the proof is
//! recorded. So it is used once: with the next attach the device has another proof, and for a volume that
//! comes back none, until what has changed is durably dropped
//! ([`VolumeLife::attach_returned`](crate::VolumeLife::attach_returned)).

use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan};
use cinnabar_engine::volume::{ProofToken, Recorded};

/// Ranges that are dropped one by one; with more, neighbours are joined over what is between them.
pub const RANGES_MAX: usize = 2048;

/// The snapshot for which all that the device holds of a volume stands; `left` is the back end's word on a
/// recorded proof. `None`: a shard has a proof of another attachment, which a crash in the middle of an attach
/// leaves, or was written since.
pub fn left_by_all(
    recorded: &[Recorded],
    left: impl Fn(&ProofToken) -> Option<u64>,
) -> Option<u64> {
    let (first, others) = recorded.split_first()?;
    let proof = first.proof.as_ref()?;
    let same = |one: &Recorded| one.proof.as_ref() == Some(proof) && !one.written;
    if first.written || !others.iter().all(same) {
        return None;
    }
    left(proof)
}

/// Whole blocks of a volume of this size that cover these ranges, in order, apart, and at most
/// [`RANGES_MAX`]: the widest gaps stay between them.
pub fn covering(ranges: &[ByteSpan], size_bytes: u64) -> Vec<ByteSpan> {
    let mut all = joined(ranges, size_bytes);
    if all.len() > RANGES_MAX {
        let mut gaps: Vec<(u64, usize)> =
            (1..all.len()).map(|at| (all[at].0 - all[at - 1].1, at)).collect();
        // In front of each that stays apart, but the first one.
        let (widest, _, _) = gaps.select_nth_unstable_by(RANGES_MAX - 1, |a, b| b.cmp(a));
        let mut starts: Vec<usize> = widest.iter().map(|(_, at)| *at).collect();
        starts.push(0);
        starts.sort_unstable();
        let ends = starts.iter().skip(1).copied().chain([all.len()]);
        all = starts.iter().zip(ends).map(|(&from, to)| (all[from].0, all[to - 1].1)).collect();
    }
    all.into_iter().map(|(start, end)| ByteSpan::new(start, end - start)).collect()
}

/// Start and end of each, in order and apart.
fn joined(ranges: &[ByteSpan], size_bytes: u64) -> Vec<(u64, u64)> {
    let ends = |range: &ByteSpan| {
        let start = range.offset / BLOCK_BYTES * BLOCK_BYTES;
        let end = range.offset.saturating_add(range.len);
        (start, end.checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX).min(size_bytes))
    };
    let mut all: Vec<(u64, u64)> = ranges.iter().map(ends).filter(|(a, b)| a < b).collect();
    all.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in all {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(proof: Option<u8>, written: bool) -> Recorded {
        Recorded { proof: proof.map(|byte| ProofToken([byte; 64])), written }
    }

    #[test]
    fn a_snapshot_counts_only_if_all_shards_stand_for_it() {
        let left = |proof: &ProofToken| (proof.0[0] < 9).then_some(u64::from(proof.0[0]));
        let all = |records: &[Recorded]| left_by_all(records, left);
        assert_eq!(all(&[record(Some(7), false), record(Some(7), false)]), Some(7));
        assert_eq!(all(&[]), None);
        assert_eq!(all(&[record(Some(9), false)]), None, "it names none");
        for other in [
            // Attached since, by a daemon that crashed before all shards knew.
            record(Some(8), false),
            record(Some(7), true),
            record(None, true),
            record(None, false),
        ] {
            assert_eq!(all(&[record(Some(7), false), other.clone()]), None, "{other:?}");
            assert_eq!(all(&[other.clone(), record(Some(7), false)]), None, "{other:?}");
        }
    }

    #[test]
    fn what_has_changed_is_covered_by_whole_blocks() {
        let span = ByteSpan::new;
        let size = 100 * 4096 - 512;
        let found = covering(&[span(40_000, 10), span(1, 1), span(4096, 4096), span(9, 0)], size);
        assert_eq!(found, [span(0, 8192), span(36_864, 4096)]);
        let end = covering(&[span(size - 1, 1), span(size, 4096), span(u64::MAX - 1, 1)], size);
        assert_eq!(end, [span(99 * 4096, 4096 - 512)]);
        assert_eq!(covering(&[span(0, u64::MAX)], size), [span(0, size)]);
        assert!(covering(&[], size).is_empty());
    }

    #[test]
    fn many_ranges_become_fewer_that_cover_them_and_the_widest_gaps_stay() {
        // Pairs close together, far from the next ones, and one gap that is wider still.
        let pairs = 1500;
        let range = |n: u64| {
            let far = if n / 2 < pairs / 2 { 0 } else { 1 << 34 };
            ByteSpan::new(far + n / 2 * (1 << 20) + n % 2 * 8192, 4096)
        };
        let ranges: Vec<_> = (0..2 * pairs).map(range).collect();
        let size = 1 << 40;
        let found = covering(&ranges, size);
        assert_eq!(found.len(), RANGES_MAX);
        let covers = |range: &ByteSpan| {
            found.iter().any(|one| one.offset <= range.offset && range.end() <= one.end())
        };
        assert!(ranges.iter().all(covers));
        assert!(found.is_sorted_by(|a, b| a.end() < b.offset));
        // A pair with what is between its two has 12 KiB.
        let bytes = found.iter().map(|range| range.len).sum::<u64>();
        assert!(bytes <= pairs * 12_288, "{bytes}");
        let few = covering(&ranges[..RANGES_MAX], size);
        assert_eq!(few, ranges[..RANGES_MAX], "as many stay apart");
    }
}
