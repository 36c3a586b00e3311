//! The write log over a simulated SSD, above a simulated back end: crashes, power cuts, servers that
//! restart, and an oracle that looks at the back end after each of its effects.

mod crash;
mod cuts;
mod directed;
mod disk;
mod disks;
mod edges;
mod evolve;
mod group;
mod guest;
mod guided;
mod halves;
mod host;
mod joint;
mod leaving;
mod look;
mod memory;
mod memory_file;
mod mirror;
mod oracle;
mod paced;
mod rig;
mod rng;
mod settings;
mod ssd;
mod world;

use cinnabar_writeback::mutant::{Mutant, Mutants};
use settings::{Counts, Settings};
use world::World;

fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("CINNABAR_SEEDS") else { return 0..300 };
    let (from, to) = range.split_once("..").expect("CINNABAR_SEEDS=FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

/// Seeds that showed something once, most of them without a write group.
const KEPT: &[u64] =
    &[766, 6203, 6724, 11377, 14372, 20524, 27637, 28133, 35009, 36474, 44614, 50215];

#[test]
fn no_seed_shows_an_image_that_a_disk_could_not_hold() {
    let mut counts = Counts::default();
    let (seeds, mut wrong) = (seeds(), Vec::new());
    let count = seeds.end - seeds.start;
    let kept = KEPT.iter().flat_map(|seed| [(*seed, false), (*seed, true)]);
    for (seed, grouped) in kept.chain(seeds.map(|seed| (seed, true))) {
        let run = || {
            let settings = Settings::drawn(seed).mirrored(seed);
            let settings = if grouped { settings.grouped(seed) } else { settings };
            let mut world = World::new(seed, &settings);
            world.run().map(|()| world.counts)
        };
        match std::panic::catch_unwind(run) {
            Ok(Ok(of)) => counts.add(&of),
            Ok(Err(what)) => wrong.push(format!("seed {seed}: {what}")),
            Err(_) => wrong.push(format!("seed {seed}: an assert failed")),
        }
        if wrong.len() == 8 {
            break;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{counts:?}");
    if count >= 200 {
        counts.check();
    }
}

/// Runs a seed as it is run for a deliberate bug; whether anything was wrong. Asserts of the write log
/// count.
fn is_wrong(seed: u64, mutant: Mutant, mutants: Mutants) -> bool {
    let mut settings = Settings::drawn(seed);
    if mutant as usize >= Mutant::MarkNotAwaited as usize {
        settings = settings.mirrored(seed);
    }
    if (Mutant::BarrierOfOne as usize..=Mutant::GroupForgotten as usize)
        .contains(&(mutant as usize))
    {
        settings = settings.grouped(seed);
    }
    settings.mutants = mutants;
    if mutant == Mutant::SessionIgnored {
        // Rare: two crashes close to each other.
        (settings.crash, settings.rot, settings.ssd_fails) = (0.03, 0.0, 0.0);
    }
    let run = move || World::new(seed, &settings).run().is_err();
    std::panic::catch_unwind(run).unwrap_or(true)
}

fn is_found(seed: u64, mutant: Mutant) -> bool {
    is_wrong(seed, mutant, Mutants::only(mutant))
}

/// A test that can run with a deliberate bug.
type Test = fn(Mutants);

/// Bugs that show where a page of the log's device rots, or two rare things meet: the test that finds
/// each.
const FOUND_BY: &[(Mutant, Test)] = &[
    (Mutant::ReserveTaken, edges::living_volumes_go_on),
    (
        Mutant::RemovedOnce,
        directed::what_was_discarded_does_not_come_back_with_one_page_of_the_directory,
    ),
    (Mutant::FlushCoversNext, directed::a_flush_does_not_cover_the_next_volume_of_a_place),
    (Mutant::HeadersNotSought, directed::a_rotten_header_loses_nothing_in_silence),
    (Mutant::SessionNotMissed, directed::a_lost_record_of_a_session_loses_nothing_in_silence),
    (Mutant::RecordTooEarly, directed::an_epoch_is_not_recorded_by_a_record_that_is_older),
    (Mutant::SizeTooEarly, directed::a_volume_that_grows_is_served_meanwhile),
    (Mutant::CopyBelieved, halves::a_copy_of_a_half_is_refused),
    (Mutant::ReadAgainFromSame, halves::a_half_that_reads_badly_keeps_its_place),
    (
        Mutant::DirectoryNotLevelled,
        halves::what_was_discarded_does_not_come_back_with_the_other_half,
    ),
    (Mutant::PutBackNotLevelled, halves::level::what_a_chunk_leads_to_is_on_both_halves),
    (Mutant::ChainFollowed, halves::level::what_nothing_leads_to_on_its_half_is_found_at_once),
    (Mutant::OpeningsGoBack, halves::level::a_start_is_newer_than_what_it_does_not_see),
];

/// The first seed that finds each bug. After a change of the simulation they are found again with
/// `CINNABAR_SEARCH=1`, or one of them with its name.
const FOUND_AT: &[(Mutant, u64)] = &[
    (Mutant::FuaKeepsEpoch, 0),
    (Mutant::FlushKeepsEpoch, 0),
    (Mutant::EpochsCoalesced, 2),
    (Mutant::EpochsMerged, 0),
    (Mutant::NoFlushBetweenEpochs, 0),
    (Mutant::RecordNotAwaited, 1),
    (Mutant::UndurableDestaged, 1),
    (Mutant::RestartNotRepeated, 5),
    (Mutant::RangesFirst, 9),
    (Mutant::WindowUnordered, 5),
    (Mutant::DestageUnverified, 18),
    (Mutant::ReadUnverified, 27),
    (Mutant::FlushBeforeCompletion, 1),
    (Mutant::AckBeforeChunk, 3),
    (Mutant::AckOutOfOrder, 12),
    (Mutant::FlushUndurable, 3),
    (Mutant::FuaAlone, 3),
    (Mutant::PacedUnordered, 5),
    (Mutant::PaceStalls, 6),
    (Mutant::TornChunkBelieved, 0),
    (Mutant::GapNotRecorded, 6),
    (Mutant::SessionNotFlushed, 28),
    (Mutant::SessionIgnored, 137),
    (Mutant::SegmentFreedEarly, 1),
    (Mutant::ReadUnpinned, 27),
    (Mutant::OlderVersionDropped, 0),
    (Mutant::RangeKeepsBlocks, 0),
    (Mutant::WriteKeepsRange, 17),
    (Mutant::RoomNotTold, 37),
    (Mutant::GapNotAwaited, 466),
    (Mutant::BarrierOfOne, 0),
    (Mutant::GroupNotAwaited, 1),
    (Mutant::GroupRecordNotAwaited, 3),
    (Mutant::AbsentNotAwaited, 6),
    (Mutant::GroupForgotten, 0),
    (Mutant::AckBeforePublish, 1),
    (Mutant::OldMemoryBelieved, 9),
    (Mutant::ReplacedInPlace, 26),
    (Mutant::MemoryNotCleared, 26),
    (Mutant::MemoryClearedEarly, 1),
    (Mutant::ReplacedAcrossEpochs, 64),
    (Mutant::ReplacedAcrossRange, 119),
    (Mutant::AckWithoutMemory, 248),
    (Mutant::NoteKept, 98),
    (Mutant::MarkNotAwaited, 556),
    (Mutant::OneHalfAnswers, 3),
    (Mutant::ChunksNotLevelled, 27),
    (Mutant::GenerationIgnored, 28),
    (Mutant::HalfBelieved, 20),
    (Mutant::FillingBelieved, 92),
    (Mutant::FilledTooEarly, 94),
];

#[test]
fn each_deliberate_bug_is_found() {
    std::panic::set_hook(Box::new(|_| {}));
    if let Ok(name) = std::env::var("CINNABAR_SEARCH") {
        let by_test = |mutant: &Mutant| FOUND_BY.iter().any(|(of, _)| of == mutant);
        let wanted = |mutant: &Mutant| name == "1" || format!("{mutant:?}") == name;
        for mutant in Mutant::ALL.iter().filter(|m| !by_test(m) && wanted(m)) {
            let found = (0..4_000).find(|seed| is_found(*seed, *mutant));
            println!("    (Mutant::{mutant:?}, {found:?}),");
        }
        return;
    }
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        let mutants = Mutants::only(*mutant);
        if let Some((_, test)) = FOUND_BY.iter().find(|(of, _)| of == mutant) {
            let test = *test;
            if std::panic::catch_unwind(move || test(mutants)).is_ok() {
                missed.push(format!("{mutant:?} was not found by its test"));
            }
            continue;
        }
        match FOUND_AT.iter().find(|(of, _)| of == mutant) {
            None => missed.push(format!("no seed is known for {mutant:?}")),
            Some((_, seed)) if !is_found(*seed, *mutant) => {
                missed.push(format!("{mutant:?} was not found at seed {seed}"));
            }
            Some((_, seed)) if is_wrong(*seed, *mutant, Mutants::default()) => {
                missed.push(format!("seed {seed} is wrong without {mutant:?}, too"));
            }
            Some(_) => {}
        }
    }
    // The hook above is silent.
    println!("{missed:?}");
    assert!(missed.is_empty(), "{missed:?}");
}
