//! The proof can fail: each deliberate bug of the engine is found by the fault simulation, at the
//! seed given here or, where a change of the engine or of the dice has moved it, at another one of
//! the first 2000. The sound engine passes there.
//!
//! `cargo xtask soak mutants` prints how each search finds each mutant, or one of them with
//! `CINNABAR_MUTANT=NoRecord`.

use crate::faults::SINGLE;
use cinnabar_engine::mutant::{Mutant, Mutants};
use cinnabar_sim::faults::{run_one, search};
use cinnabar_sim::small::scenes::Scene;
use cinnabar_sim::small::{evolve, exhaustive};
use cinnabar_sim::{FaultOptions, Features};
use std::time::{Duration, Instant};

/// Seeds that a search may take.
const SEEDS_MAX: u64 = 2000;

/// Each mutant, and a seed that finds it.
const FOUND_AT: &[(Mutant, u64)] = &[
    (Mutant::NoRecord, 9),
    (Mutant::RecordAfterWrite, 91),
    (Mutant::RecordTooOld, 9),
    (Mutant::RecordRetiredBeforeFlush, 72),
    (Mutant::GenerationNotRaised, 46),
    (Mutant::ProofIgnored, 4),
    (Mutant::ChecksumNotVerified, 15),
    (Mutant::ForgottenNotRecorded, 304),
    (Mutant::FillNotRevalidated, 5),
    (Mutant::TrimNotRecorded, 16),
    (Mutant::FailedWriteCached, 14),
    (Mutant::FailedSyncForgotten, 9),
    (Mutant::SplitAnsweredEarly, 3),
    (Mutant::PassedRunGrows, 412),
    (Mutant::ReplayCutShort, 7),
    (Mutant::HeadsKept, 176),
    (Mutant::EarlyHeaderForgotten, 167),
    (Mutant::FillingCutShort, 3),
    (Mutant::FillingMovesNothing, 12),
    (Mutant::EmptiedNotWiped, 4),
    (Mutant::DurableZeroesNotFlushed, 254),
    (Mutant::LateWaiterKept, 3),
    (Mutant::SilentDeviceAwaited, 3),
    (Mutant::LostVolumeKeepsIndex, 168),
    (Mutant::EdgeNotVerified, 38),
    (Mutant::PartialServedWhole, 2),
    (Mutant::PartialTakenForWhole, 2),
    (Mutant::PartialNotTakenOut, 746),
    (Mutant::FailedPartialKept, 136),
    (Mutant::PartialOutlivesTrim, 346),
    (Mutant::DeadBlocksCounted, 3),
    (Mutant::RegionNotAdded, 0),
    (Mutant::WindowAfterSeal, 17),
    (Mutant::WindowUnbounded, 164),
    (Mutant::WakeForgotten, 3),
    (Mutant::InboxNotLookedAtAgain, 0),
    (Mutant::WakeNotPassedOn, 8),
    (Mutant::LastFlushIgnored, 9),
];

/// The same, but found among seeds without shards and replays.
const FOUND_SINGLE: &[(Mutant, u64)] = &[
    (Mutant::RecordsLostInSecondCrash, 24),
    (Mutant::CheckpointBeforeSegments, 48),
    (Mutant::JournalGapIgnored, 1523),
    (Mutant::SegmentReusedSilently, 258),
    (Mutant::NoRecordWhileLoading, 117),
    (Mutant::RebaseMistaken, 219),
];

/// Mutants that scripted tests find, with the test and why no seed does.
const SCRIPTED: &[(Mutant, &str, &str)] = &[
    (
        Mutant::TornChunkTrusted,
        "sim `torn`",
        "torn pages fail by their data's checksums, too, but where an old copy lies behind",
    ),
    (
        Mutant::IncarnationsRunOut,
        "engine `identity`",
        "an attach fails, and a run may not go on without it",
    ),
    (Mutant::PartsUnbounded, "engine `shards::fairness`", "no run has so many requests"),
    (
        Mutant::PartsOvertaken,
        "engine `shards::fairness`",
        "what overtakes is under way with what it overtakes, so a guest may see either order; only \
         the driver's own invalidations rely on it",
    ),
    (
        Mutant::LateTrimNotRecorded,
        "engine `answers`",
        "few runs have a long trim that is late between two steps, then a write, then a crash",
    ),
    (
        Mutant::SealBeforeDurable,
        "engine `endings`",
        "none of 2,000 seeds: the daemon must die between a seal's answer and the checkpoint that it \
         speaks of, and the volume change elsewhere",
    ),
    (
        Mutant::DiscardedCovered,
        "engine `endings`",
        "no simulated back end is a server that restarts",
    ),
    (
        Mutant::DropNotRecorded,
        "engine `endings`",
        "rare: a dropped volume's checkpoint must still count after a crash; seeds 277 and 1805 of earlier \
         draws found it",
    ),
    (
        Mutant::InvalidatedCovered,
        "engine `endings`",
        "a server must restart beside a write, a flush of it end, and the daemon die, within \
         milliseconds",
    ),
    (
        Mutant::InvalidationRefused,
        "engine `endings`",
        "the same, with as many requests under way as an engine takes",
    ),
    (
        Mutant::LastInvalidationForgotten,
        "engine `endings`",
        "the same, beside a detach; the simulated driver asks for nothing then",
    ),
    (
        Mutant::InvalidationInParts,
        "engine `shards::fairness`",
        "the same, with parts of a long request beside it still to be sent",
    ),
    (
        Mutant::LostLoadKept,
        "engine `load`",
        "a lost device answers nothing from its index; its volumes' indices must run out meanwhile",
    ),
    (
        Mutant::JournalEndTrusted,
        "engine `journal::scan`",
        "a write of the journal seldom goes astray, and must be the last one before a crash",
    ),
    (
        Mutant::PartialOutlivesVolume,
        "sim `partial`",
        "another host must write the very sectors while the volume is away, and another volume not take its \
         index",
    ),
    (
        Mutant::BindingKept,
        "driver `shard`",
        "a heartbeat must come before the attach is answered, of a volume with the name of one that went",
    ),
    (
        Mutant::RefusedVolumeAwaited,
        "driver `shard`",
        "one shard must refuse an attach, and another have I/O of the volume by then",
    ),
    (
        Mutant::IdentityIgnored,
        "driver `change_proof`",
        "what is made in a volume's place is written, so that its change time tells, too",
    ),
    (
        Mutant::BusyVolumeLetGo,
        "driver `volume_life`",
        "the engine lets go of a volume behind its own I/O; only questions of clients to the backend \
         outlast that, and no simulated one asks",
    ),
    (
        Mutant::ProofJoined,
        "driver `pending_proofs`",
        "none of 2,000 seeds: a write must end and its shard ask within another shard's flush, and the \
         backend's host die before the next heartbeat",
    ),
];

/// Mutants that can't be noticed, with the reason.
const EQUIVALENT: &[(Mutant, &str)] = &[
    (
        Mutant::CheckpointOfUnwrittenChunks,
        "a descriptor of a block that is not on flash has the checksum of data that are not there: \
         what is read in its place fails it. Write-back, where the copy is the only one, must not \
         rely on that.",
    ),
    (
        Mutant::SessionIgnored,
        "sequence numbers of each session begin behind all that an earlier one can have used, so that an \
         older session's chunk is not newer than what it would have to follow.",
    ),
    (
        Mutant::FlushOfOneShard,
        "all shards write to one backend, and one flush of that covers what any of them has written; \
         a fault with write-back.",
    ),
];

/// Options that a mutant is looked for with, and the same without it.
fn with(mutant: Mutant) -> (FaultOptions, FaultOptions) {
    let single = FOUND_SINGLE.iter().any(|(found, _)| *found == mutant);
    let features = if single { SINGLE } else { Features::ALL };
    let without = FaultOptions { features, failures_max: 4, ..FaultOptions::default() };
    (FaultOptions { mutants: Mutants::only(mutant), ..without }, without)
}

#[test]
fn each_mutant_is_found_at_its_seed_and_only_the_mutant_is() {
    let mut lost = Vec::new();
    for &(mutant, seed) in FOUND_AT.iter().chain(FOUND_SINGLE) {
        let (with, without) = with(mutant);
        let found = if run_one(seed, &with).is_err() {
            Some(seed)
        } else {
            // What the change has moved is slower to find, and not lost.
            let one = FaultOptions { failures_max: 1, ..with };
            search(0..SEEDS_MAX, &one, |_| {}).failures.first().map(|failed| failed.seed)
        };
        let Some(found) = found else {
            lost.push(mutant);
            continue;
        };
        if found != seed {
            println!("{mutant:?} is found at seed {found} now, not at {seed}");
        }
        if let Err(failed) = run_one(found, &without) {
            panic!("{mutant:?} is found where there is none: {failed}");
        }
    }
    assert!(lost.is_empty(), "not found in {SEEDS_MAX} seeds: {lost:?}");
}

/// Every deliberate bug is in one of the lists above.
#[test]
fn each_mutant_is_accounted_for() {
    for mutant in Mutant::ALL {
        let found = FOUND_AT.iter().chain(FOUND_SINGLE).filter(|(one, _)| one == mutant).count();
        let scripted = SCRIPTED.iter().filter(|(one, ..)| one == mutant).count();
        let equivalent = EQUIVALENT.iter().filter(|(one, _)| one == mutant).count();
        assert_eq!(found + scripted + equivalent, 1, "{mutant:?}");
    }
}

/// How each search finds each mutant, as a table. `CINNABAR_MUTANT_SECONDS` are for the guided
/// search, and as many for each scene of the exhaustive one.
#[test]
#[ignore = "it takes long: cargo xtask soak mutants"]
fn table_of_mutants() {
    let number = |name: &str, usual: u64| {
        std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
    };
    let seconds = Duration::from_secs(number("CINNABAR_MUTANT_SECONDS", 10));
    let seeds = number("CINNABAR_MUTANT_SEEDS", SEEDS_MAX);
    let which = std::env::var("CINNABAR_MUTANT").ok();
    println!("| mutant | seeds | guided | exhaustive | otherwise |");
    println!("|---|---|---|---|---|");
    for &mutant in Mutant::ALL {
        if which.as_ref().is_some_and(|which| *which != format!("{mutant:?}")) {
            continue;
        }
        let scripted = SCRIPTED.iter().find(|(one, ..)| *one == mutant);
        let equivalent = EQUIVALENT.iter().find(|(one, _)| *one == mutant);
        let otherwise = match (scripted, equivalent) {
            (Some((_, test, why)), _) => format!("scripted, {test}: {why}"),
            (_, Some((_, why))) => format!("equivalent: {why}"),
            _ => String::new(),
        };
        let by_seeds = if otherwise.is_empty() { by_seeds(mutant, seeds) } else { String::new() };
        let guided = by_guided_search(mutant, seconds);
        let exhaustive = by_exhaustive_search(mutant, seconds);
        println!("| {mutant:?} | {by_seeds} | {guided} | {exhaustive} | {otherwise} |");
    }
}

/// The first seed that finds it, and what a guest saw.
fn by_seeds(mutant: Mutant, seeds: u64) -> String {
    let (with, without) = with(mutant);
    let summary = search(0..seeds, &with, |_| {});
    let mut failures = summary.failures.iter();
    match failures.find(|failed| run_one(failed.seed, &without).is_ok()) {
        Some(failed) => format!("{}: {:?}", failed.seed, failed.violation.kind),
        None => format!("not in {seeds}"),
    }
}

fn by_guided_search(mutant: Mutant, limit: Duration) -> String {
    let corpus = std::fs::read_dir(crate::small::corpus()).expect("the corpus is in the tree");
    let inputs = corpus.map(|entry| entry.expect("a file").path());
    let mut inputs: Vec<_> = inputs.collect();
    inputs.sort();
    let inputs = inputs.iter().map(|path| std::fs::read(path).expect("a file of the corpus"));
    let start = Instant::now();
    let evolved = evolve::search(inputs, 1, limit, Mutants::only(mutant));
    match evolved.failure {
        Some(_) => format!("{} runs, {:.0} s", evolved.runs, start.elapsed().as_secs_f64()),
        None => "no".to_owned(),
    }
}

fn by_exhaustive_search(mutant: Mutant, limit: Duration) -> String {
    for scene in Scene::ALL {
        if let Err(failure) = exhaustive::search(scene, 99, limit, Mutants::only(mutant)) {
            return format!("{scene:?}, N={}", failure.moves);
        }
    }
    "no".to_owned()
}
