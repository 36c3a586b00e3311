//! The log: are the chunks there that the checkpoint knows, and their data what they were?

use super::{CheckOptions, Findings, Index, SEGMENTS_SAMPLED};
use crate::offline::chunks::{Found, Walker, choose, has_data, held};
use crate::offline::report::LogReport;
use crate::offline::{Source, Watch};
use cinnabar_engine::metadata::journal::Record;
use cinnabar_engine::metadata::superblock::{DeviceState, Superblock};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Walks the log, or a sample of its segments. `known` is what the next start believes of it.
pub(super) fn check(
    source: &(impl Source + ?Sized),
    superblock: &Superblock,
    known: (Option<&Index>, &[Record]),
    options: CheckOptions,
    watch: &mut dyn Watch,
    findings: &mut Findings,
) -> LogReport {
    // All shards together.
    let sample = (SEGMENTS_SAMPLED / superblock.geometry.shards).max(1);
    let expected = expected(known);
    // Where an older copy of the superblock has to do, a start believes some behind that.
    let believed = expected.keys().next_back().map_or(0, |last| last + 1);
    let there = held(superblock).max(believed.min(superblock.geometry.segments));
    let segments = choose(there, (!options.all).then_some(sample));
    let may_be_torn = matches!(superblock.state, DeviceState::InUse { .. });
    let mut report = LogReport {
        segments: there.into(),
        segments_checked: segments.len() as u64,
        data_checked: options.all,
        ..LogReport::default()
    };
    Walker::new(source, superblock, options.all).walk(&segments, watch, &mut |segment, chunks| {
        report.segments_used += u64::from(!chunks.is_empty());
        let durable = expected.get(&segment).copied().unwrap_or(0);
        for chunk in chunks {
            // What the checkpoint speaks of was durable before it; of what was written since, a crash
            // may have kept the header and lost some of the data.
            count(&mut report, chunk, may_be_torn && chunk.header.sequence > durable);
        }
        let newest = chunks.last().map_or(0, |chunk| chunk.header.sequence);
        if expected.get(&segment).is_some_and(|last| newest < *last) {
            report.damaged_segments += 1;
            findings.add(format!(
                "segment {segment}: chunk {} is not found; its header may be damaged",
                expected[&segment]
            ));
        }
        ControlFlow::Continue(())
    });
    if report.wrong_blocks > 0 && known.0.is_some() {
        findings.add(format!(
            "log: {} blocks don't have their checksum, and will be read from the back end",
            report.wrong_blocks
        ));
    }
    report
}

/// The newest chunk of each segment that the checkpoint knows, unless the segment was given up
/// since: then it may be in the middle of being written again.
fn expected((index, records): (Option<&Index>, &[Record])) -> BTreeMap<u32, u64> {
    let segments = index.map_or(&[][..], |index| &index.segments);
    let used = segments.iter().filter(|record| record.used > 0);
    let mut expected: BTreeMap<u32, u64> =
        used.map(|record| (record.segment, record.last)).collect();
    for record in records {
        if let Record::SegmentInvalidation { segment, version } = record
            && expected.get(segment).is_some_and(|last| version >= last)
        {
            expected.remove(segment);
        }
    }
    expected
}

fn count(report: &mut LogReport, chunk: &Found, may_be_torn: bool) {
    report.chunks += 1;
    let blocks = chunk.header.entries.iter().filter(|entry| has_data(entry.kind));
    report.blocks += blocks.count() as u64;
    let wrong = if may_be_torn { &mut report.torn_blocks } else { &mut report.wrong_blocks };
    *wrong += chunk.wrong.len() as u64;
}
