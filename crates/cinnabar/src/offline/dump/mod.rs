//! Dumping what is on a device, line by line, as it is: nothing is put together or left out.

mod line;
mod records;

use super::regions::{Region, Regions};
use super::superblocks::{Copy, Superblocks};
use super::{OfflineError, Source, Watch, checkpoints, chunks, journal};
use cinnabar_engine::metadata::checkpoint::Page;
use cinnabar_engine::metadata::superblock::{Superblock, SuperblockError};
pub use line::Line;
use std::ops::ControlFlow;

/// Parts of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Both copies of the superblock
    Superblock,
    /// Heads of both checkpoints, and their damaged pages
    Checkpoint,
    /// Volumes in the checkpoints
    Volumes,
    /// Segments in the checkpoints
    Segments,
    /// Pages and records of the journal
    Journal,
    /// Chunk headers of the log
    Chunks,
}

impl Part {
    /// All of them, in the order of a dump.
    pub const ALL: [Self; 6] = [
        Self::Superblock,
        Self::Checkpoint,
        Self::Volumes,
        Self::Segments,
        Self::Journal,
        Self::Chunks,
    ];
}

/// What to dump.
#[derive(Clone, Debug)]
pub struct DumpOptions {
    /// These parts.
    pub parts: Vec<Part>,
    /// A line for each block in a chunk, too.
    pub entries: bool,
    /// Only this shard's region.
    pub shard: Option<u32>,
}

/// Takes a line; breaks the dump off when nobody wants more.
pub type Emit<'a> = &'a mut dyn FnMut(Line) -> ControlFlow<()>;

/// Dumps the device of path `device`, region by region.
///
/// # Errors
/// When nothing of it can be read as ours, or nothing of a region: the first such one is told, and the
/// others are dumped even so, as are both copies of a superblock that can't be used.
pub fn dump(
    source: &(impl Source + ?Sized),
    device: &str,
    options: &DumpOptions,
    watch: &mut dyn Watch,
    emit: Emit<'_>,
) -> Result<(), OfflineError> {
    let regions = Regions::read(source);
    let mut result = Ok(());
    for region in chosen(&regions, device, options.shard)? {
        if let Some(shard) = region.shard {
            watch.shard(shard, regions.all.len() as u32);
        }
        let mut named = |line: Line| {
            emit(match region.shard {
                Some(shard) => line.of_shard(shard),
                None => line,
            })
        };
        match dump_region(&region.view(source), device, region, options, watch, &mut named) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => break,
            Err(error) => result = result.and(Err(error)),
        }
    }
    result
}

/// The regions to dump.
fn chosen<'a>(
    regions: &'a Regions,
    device: &str,
    shard: Option<u32>,
) -> Result<&'a [Region], OfflineError> {
    let Some(shard) = shard else { return Ok(&regions.all) };
    let shards = regions.all.len();
    let at = shard as usize;
    if at >= shards && shards == 1 && regions.all[0].copies.newest().is_err() {
        // Nobody knows how many there are: let it be told why.
        return Ok(&regions.all);
    }
    let missing = || OfflineError::NoShard { device: device.to_owned(), shard, shards };
    regions.all.get(at..=at).ok_or_else(missing)
}

fn dump_region(
    source: &(impl Source + ?Sized),
    device: &str,
    region: &Region,
    options: &DumpOptions,
    watch: &mut dyn Watch,
    emit: Emit<'_>,
) -> Result<ControlFlow<()>, OfflineError> {
    let copies = &region.copies;
    let superblock = match copies.newest() {
        Ok(superblock) => superblock,
        Err(error) => {
            let device = device.to_owned();
            let told = region.shard.zip(region.fault());
            if told.is_some() || error != SuperblockError::Foreign {
                let _any = superblocks(copies, emit);
            }
            return Err(match told {
                Some((shard, error)) => OfflineError::Region { device, shard, error },
                None => OfflineError::Superblock { device, error },
            });
        }
    };
    for part in Part::ALL.iter().filter(|part| options.parts.contains(part)) {
        let flow = match part {
            Part::Superblock => superblocks(copies, emit),
            Part::Checkpoint | Part::Volumes | Part::Segments => {
                index(source, superblock, *part, watch, emit)
            }
            Part::Journal => ring(source, superblock, watch, emit),
            Part::Chunks => log(source, superblock, options.entries, watch, emit),
        };
        if flow.is_break() {
            return Ok(flow);
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn superblocks(copies: &Superblocks, emit: Emit<'_>) -> ControlFlow<()> {
    let newest = copies.newest().map(|newest| newest.sequence);
    for (page, copy) in copies.copies.iter().enumerate() {
        let line = Line::new("superblock").with("page", page);
        emit(match copy {
            Copy::Good(superblock) => {
                let counts = newest == Ok(superblock.sequence);
                records::superblock(line.with("status", "good"), superblock).with("counts", counts)
            }
            Copy::Stray(superblock) => {
                let line = line.with("status", "stray").with("of_shard", superblock.shard);
                records::superblock(line, superblock).with("counts", false)
            }
            Copy::Blank => line.with("status", "blank"),
            Copy::Unreadable => line.with("status", "unreadable"),
            Copy::Bad(error) => line.with("status", "damaged").with("reason", error.to_string()),
        })?;
    }
    ControlFlow::Continue(())
}

fn index(
    source: &(impl Source + ?Sized),
    superblock: &Superblock,
    part: Part,
    watch: &mut dyn Watch,
    emit: Emit<'_>,
) -> ControlFlow<()> {
    for slot in 0..2 {
        let found = checkpoints::head(source, superblock, slot);
        if part == Part::Checkpoint {
            emit(records::head(slot, &found))?;
        }
        let checkpoints::SlotHead::Good(sequence, head) = found else { continue };
        let mut flow = ControlFlow::Continue(());
        checkpoints::walk(source, superblock, (sequence, head), watch, &mut |found| {
            flow = match (part, found.page) {
                (Part::Checkpoint, None) => emit(records::damaged_page(slot, found.position)),
                (Part::Volumes, Some(Page::Volumes(volumes))) => volumes
                    .iter()
                    .try_for_each(|v| emit(records::volume("volume", v).with("slot", slot))),
                (Part::Segments, Some(Page::Segments(segments))) => {
                    segments.iter().try_for_each(|s| emit(records::segment(slot, s)))
                }
                // Descriptors come last: nothing more for these two.
                (Part::Volumes | Part::Segments, Some(Page::Descriptors(_))) => {
                    return ControlFlow::Break(());
                }
                _ => ControlFlow::Continue(()),
            };
            flow
        });
        flow?;
    }
    ControlFlow::Continue(())
}

fn ring(
    source: &(impl Source + ?Sized),
    superblock: &Superblock,
    watch: &mut dyn Watch,
    emit: Emit<'_>,
) -> ControlFlow<()> {
    let mut flow = ControlFlow::Continue(());
    journal::walk(source, superblock, watch, &mut |place, page, readable| {
        flow = if readable {
            records::journal_page(superblock, place, page, emit)
        } else {
            emit(Line::new("journal").with("place", place).with("status", "unreadable"))
        };
        flow
    });
    flow
}

fn log(
    source: &(impl Source + ?Sized),
    superblock: &Superblock,
    entries: bool,
    watch: &mut dyn Watch,
    emit: Emit<'_>,
) -> ControlFlow<()> {
    let mut segments = chunks::choose(chunks::held(superblock), None);
    // A superblock may speak of more segments than the device has.
    let geometry = &superblock.geometry;
    let has =
        source.blocks().saturating_sub(geometry.log).div_ceil(geometry.segment_slots().into());
    segments.retain(|segment| u64::from(*segment) < has);
    let mut flow = ControlFlow::Continue(());
    chunks::Walker::new(source, superblock, false).walk(&segments, watch, &mut |segment, found| {
        flow = found.iter().try_for_each(|chunk| {
            emit(records::chunk(segment, &chunk.header))?;
            let shown = if entries { &chunk.header.entries[..] } else { &[] };
            (1..).zip(shown).try_for_each(|(offset, entry)| {
                emit(records::entry(chunk.header.slot + offset, entry))
            })
        });
        flow
    });
    flow
}
