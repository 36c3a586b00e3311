//! Many caches on one trace: the same as one by one, whichever thread does the work; and what is
//! refused.

use crate::golden_policies::accesses;
use crate::traces::{fixture, shared_trace};
use cinnabar_engine::Endurance;
use cinnabar_policy::{Policy, Writes, simulate};
use cinnabar_study::hits::{
    Contender, EngineError, Found, Grain, HitsError, Options, Outcome, Progress, Reasons, Run, run,
    survey,
};
use cinnabar_trace::{Op, Record, Settings, TraceError};
use std::num::{NonZeroU32, NonZeroUsize};

fn options(contenders: &[Contender], sizes: &[u32], writes: Writes, jobs: usize) -> Options {
    let runs = contenders.iter().flat_map(|contender| {
        sizes.iter().map(|size| Run {
            contender: *contender,
            size_blocks: NonZeroU32::new(*size).expect("a size"),
        })
    });
    let jobs = NonZeroUsize::new(jobs).expect("a thread at least");
    Options {
        runs: runs.collect(),
        writes,
        endurance: Endurance::default(),
        admission: None,
        grain: Grain::Blocks,
        jobs,
    }
}

fn found(trace: &[Record], options: &Options) -> Result<Found, HitsError> {
    run(trace.iter().copied().map(Ok), options, &mut |_| {})
}

fn policies() -> Vec<Contender> {
    Policy::ALL.into_iter().map(Contender::Policy).collect()
}

fn record(volume: u32, op: Op, block: u64, blocks: u64) -> Record {
    Record { ts_us: 0, volume, op, offset_bytes: block * 4096, length_bytes: blocks * 4096 }
}

/// The trace has more references than three portions have.
#[test]
fn policies_count_as_they_do_alone() {
    let trace = fixture();
    let accesses = accesses(&trace);
    for writes in Writes::ALL {
        let options = options(&policies(), &[900, 20_000], writes, 3);
        let found = found(&trace, &options).expect("a sound trace");
        assert_eq!(found.outcomes.len(), options.runs.len());
        for (outcome, run) in found.outcomes.iter().zip(&options.runs) {
            assert_eq!(outcome.run, *run, "in the order asked for");
            let Contender::Policy(policy) = run.contender else { panic!("only policies") };
            let alone = simulate(policy, run.size_blocks, writes, &accesses);
            assert_eq!(outcome.counts, alone, "{policy}, {writes}, {} blocks", run.size_blocks);
            assert_eq!(outcome.capacity_blocks, u64::from(run.size_blocks.get()));
        }
    }
}

#[test]
fn any_number_of_threads_counts_the_same() {
    let trace = fixture();
    let all: Vec<Contender> = Contender::all().collect();
    let outcomes = |jobs| -> Vec<Outcome> {
        let options = options(&all, &[5_000, 30_000], Writes::Through, jobs);
        found(&trace, &options).expect("a sound trace").outcomes
    };
    let one = outcomes(1);
    assert_eq!(one, outcomes(2));
    assert_eq!(one, outcomes(40));
}

#[test]
fn the_engine_has_whole_segments_and_counts_every_block() {
    let trace = fixture();
    for writes in [Writes::AsReads, Writes::Through, Writes::Around] {
        let options = options(&[Contender::Engine], &[30_000], writes, 1);
        let found = found(&trace, &options).expect("a sound trace");
        let (survey, outcome) = (found.survey, found.outcomes[0]);
        assert_eq!(outcome.capacity_blocks, 30_000 / 255 * 255);
        assert_eq!((survey.references, outcome.counts.references), (781_757, 781_757));
        let reads =
            if writes == Writes::AsReads { survey.references } else { survey.read_references };
        assert_eq!(outcome.counts.read_references, reads, "{writes}");
        assert!(outcome.counts.misses >= u64::from(survey.blocks), "each is missed once at least");
        assert!(outcome.counts.read_misses < reads && outcome.counts.flash_writes > 30_000);
        assert_eq!(outcome.counts.backend_writes, survey.references - reads, "{writes}");
    }
}

/// Of golden counts in the tree: the engine misses less than LRU and CLOCK, and writes less flash.
#[test]
fn the_engine_beats_lru_on_the_trace_in_the_tree() {
    let options = options(&[Contender::Engine], &[32_768], Writes::AsReads, 1);
    let counts = found(&fixture(), &options).expect("a sound trace").outcomes[0].counts;
    assert!(counts.misses < 613_692 && counts.flash_writes < 613_692, "{counts:?}");
}

/// Read misses, and what became of incomplete blocks, by whole blocks and by sectors.
fn by_grain(trace: &[Record], size: u32) -> [(u64, Reasons); 2] {
    [Grain::Blocks, Grain::Sectors].map(|grain| {
        let options = options(&[Contender::Engine], &[size], Writes::Through, 1);
        let found = found(trace, &Options { grain, ..options }).expect("a sound trace");
        let outcome = found.outcomes[0];
        (outcome.counts.read_misses, outcome.reasons.expect("the engine reports them"))
    })
}

/// A guest whose partition begins with sector 63 writes files from end to end, then reads them.
#[test]
fn what_is_written_in_parts_is_found_as_if_it_were_written_by_whole_blocks() {
    let request = |op| {
        move |n: u64| {
            let offset_bytes = 63 * 512 + (n / 20 * 1000 + n % 20 * 8) * 4096;
            Record { ts_us: 0, volume: 0, op, offset_bytes, length_bytes: 8 * 4096 }
        }
    };
    let trace: Vec<Record> =
        (0..400).map(request(Op::Write)).chain((0..400).map(request(Op::Read))).collect();
    let [(whole, _), (exact, reasons)] = by_grain(&trace, 10_000);
    // The two ends of each of twenty files.
    assert_eq!((whole, exact, reasons.completed_partial), (0, 0, 400 - 20));
    let longer = |record: &Record| Record {
        offset_bytes: record.offset_bytes - 512,
        length_bytes: 8 * 4096 + 1024,
        ..*record
    };
    let longer: Vec<Record> = trace
        .iter()
        .map(|record| if record.op == Op::Read { longer(record) } else { *record })
        .collect();
    let [(whole, _), (exact, _)] = by_grain(&longer, 10_000);
    assert_eq!((whole, exact), (0, 20 * 2), "what was never written has to be read");
}

/// The bar: by sectors at most 1.03 times the misses by whole blocks.
#[test]
fn a_misaligned_guest_costs_few_misses() {
    let Some(trace) = shared_trace("cp_vscsi.canon.csv.zst") else { return };
    // A quarter of the footprint, half of it, and more than all.
    for size in [67_303, 134_605, 336_513] {
        let [(whole, _), (exact, reasons)] = by_grain(&trace, size);
        println!("{size} blocks: {exact} misses by sectors, {whole} by blocks; {reasons:?}");
        assert!(exact as f64 <= 1.03 * whole as f64, "{size} blocks: {exact} for {whole}");
        assert!(reasons.completed_partial > 10_000);
    }
}

#[test]
fn volumes_as_large_as_a_trace_can_have_are_cached() {
    let last = Record::END_BYTES_MAX / 4096 - 1;
    let part = (1 << 36) - 4;
    let both = [record(9, Op::Read, last, 1), record(9, Op::Read, part, 8)];
    let trace: Vec<Record> = (0..50).flat_map(|_| both).collect();
    let options = options(&[Contender::Engine], &[5_000], Writes::Through, 1);
    let outcome = found(&trace, &options).expect("a sound trace").outcomes[0];
    assert_eq!((outcome.counts.references, outcome.counts.misses), (450, 9));
}

#[test]
fn a_survey_tells_what_a_run_does() {
    let trace = fixture();
    let mut told = 0;
    let alone = survey(trace.iter().copied().map(Ok), |_| told += 1).expect("a sound trace");
    let options = options(&[Contender::Policy(Policy::Lru)], &[100], Writes::AsReads, 1);
    assert_eq!(found(&trace, &options).expect("a sound trace").survey, alone);
    assert_eq!((alone.requests, alone.blocks, alone.volumes), (100_000, 236_575, 4));
    assert!(told >= 3, "there are some portions");
}

#[test]
fn how_far_it_is_is_told() {
    let trace = fixture();
    let contenders = [Contender::Policy(Policy::Belady)];
    let options = options(&contenders, &[100, 200], Writes::AsReads, 2);
    let mut last = None;
    let records = trace.iter().copied().map(Ok);
    run(records, &options, &mut |progress| last = Some(progress)).expect("a sound trace");
    let Some(Progress::Foreseeing { done, of }) = last else { panic!("{last:?}") };
    assert!(done <= of && of == 2 * 781_757);
}

#[test]
fn what_can_not_be_simulated_is_refused() {
    let lru = options(&[Contender::Policy(Policy::Lru)], &[10], Writes::AsReads, 2);
    let flushes = [record(0, Op::Flush, 0, 0), record(0, Op::Read, 3, 0)];
    assert!(matches!(found(&[], &lru), Err(HitsError::Empty(0))));
    assert!(matches!(found(&flushes, &lru), Err(HitsError::Empty(2))));
    assert!(matches!(survey(flushes.map(Ok).into_iter(), |_| ()), Err(HitsError::Empty(2))));
    let longest = Record::LENGTH_BYTES_MAX / 4096;
    let large = [record(0, Op::Read, 5, longest)];
    assert_eq!(found(&large, &lru).expect("the longest").survey.references, longest);

    let engine = |size, writes| {
        let options = options(&[Contender::Engine], &[size], writes, 1);
        match found(&large, &options) {
            Err(HitsError::Engine(error)) => Some(error),
            Ok(_) => None,
            Err(other) => panic!("{other}"),
        }
    };
    assert!(matches!(engine(4_589, Writes::AsReads), Some(EngineError::Small { min: 4_590, .. })));
    assert_eq!(engine(4_590, Writes::AsReads), None);
    assert!(matches!(engine(1 << 30, Writes::AsReads), Some(EngineError::Large { .. })));
    assert_eq!(engine(8_192, Writes::Back), Some(EngineError::WriteBack));
}

/// Many caches, many threads: the error is returned, and no thread waits without end.
#[test]
fn an_error_ends_it() {
    let all: Vec<Contender> = Contender::all().collect();
    let options = options(&all, &[5_000], Writes::AsReads, 4);
    let volumes: Vec<Record> = (0..4_096).map(|volume| record(volume, Op::Read, 1, 1)).collect();
    let refused = found(&volumes, &options);
    assert!(matches!(refused, Err(HitsError::Engine(EngineError::Volumes))), "{refused:?}");
    found(&volumes[..4_095], &options).expect("as many as it knows");
    let text = "1,0,R,0,4096\n".repeat(300_000) + "1,0,R,0\n";
    let records = cinnabar_trace::read(Box::new(std::io::Cursor::new(text)), Settings::default());
    let refused = run(records.expect("it is a trace"), &options, &mut |_| {});
    let Err(HitsError::Trace(TraceError::Line { line, .. })) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(line, 300_001);
}
