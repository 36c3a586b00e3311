//! Checking a write log: what is dirty, what is damaged, what the next start will do.

use super::marks::one_half;
use super::report::{HalfReport, LogVolumeReport, MemoryReport, WriteLogReport};
use super::{failed, look};
use crate::offline::check::{CheckOptions, Findings};
use crate::offline::report::{CopyReport, StartKind, StartReport, hex};
use crate::offline::{Image, OfflineError, Source, Watch};
use cinnabar_backend::Memory;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_writeback::format::chunk::ChunkHeader;
use cinnabar_writeback::format::superblock::{Superblock, SuperblockError};
use cinnabar_writeback::format::{SEGMENT_PAGES, bytes_of};
use cinnabar_writeback::recover::{Found, Media, OpenError, Survey, is_whole};
use std::collections::BTreeSet;

/// The copies of a write log's superblock, if one of them is one.
pub fn recognise(
    source: &(impl Source + ?Sized),
) -> Option<[Result<Superblock, SuperblockError>; 2]> {
    let mut pages = [const { MetaPage::zeroed() }; 2];
    source.read(0, &mut pages);
    let copies = pages.map(|page| Superblock::decode(&page));
    let foreign = Err(SuperblockError::Foreign);
    copies.iter().any(|copy| *copy != foreign).then_some(copies)
}

/// Checks the write log of path `device`, whose superblock has these copies.
///
/// # Errors
/// If the device fails, or the log is one of another version. Damage is a result.
pub fn check(
    image: &Image,
    device: &str,
    copies: &[Result<Superblock, SuperblockError>; 2],
    options: CheckOptions,
    watch: &mut dyn Watch,
) -> Result<WriteLogReport, OfflineError> {
    let newest = newest(device, copies)?;
    let mut findings = Findings::default();
    superblocks(copies, newest, &mut findings);
    let (has, needs) = (image.blocks() * BLOCK_BYTES, bytes_of(newest.segments));
    let survey = if has < needs {
        findings.add(format!("the device has {has} bytes, its superblock speaks of {needs}"));
        None
    } else {
        Some(look(image.disk(), has, device, watch)?)
    };
    let halves: Vec<_> = one_half(image.disk(), device, newest).into_iter().collect();
    let refused = halves.first().map(|half| half.reason.clone()).filter(|why| !why.is_empty());
    let looked = Looked { device, has, copies, newest, refused, halves, findings };
    looked.report((image.disk(), &[image.disk()], survey), options, watch)
}

/// What was looked at: a device, or two as one.
pub(super) struct Looked<'a> {
    pub(super) device: &'a str,
    /// Bytes of it.
    pub(super) has: u64,
    pub(super) copies: &'a [Result<Superblock, SuperblockError>; 2],
    pub(super) newest: Superblock,
    /// Why the next start can't use it.
    pub(super) refused: Option<String>,
    pub(super) halves: Vec<HalfReport>,
    pub(super) findings: Findings,
}

impl Looked<'_> {
    /// The report, with what is found wrong on the way. `all`: the devices that count, which are `media`
    /// together.
    pub(super) fn report(
        self,
        (media, all, survey): (&impl Media<Memory>, &[&impl Media<Memory>], Option<Survey>),
        options: CheckOptions,
        watch: &mut dyn Watch,
    ) -> Result<WriteLogReport, OfflineError> {
        let Self { device, has, copies, newest, refused, halves, .. } = self;
        let mut findings = self.findings;
        let found = survey.as_ref().map_or(&[][..], |survey| &survey.volumes);
        let unreadable = survey.as_ref().map_or(&[][..], |survey| &survey.unreadable);
        for place in unreadable {
            findings.add(format!("place {place} of the directory: both records are damaged"));
        }
        for slot in survey.as_ref().map_or(&[][..], |survey| &survey.bad) {
            let offset = cinnabar_writeback::format::offset_of(*slot);
            findings.add(format!("the page at byte {offset} can't be read"));
        }
        for found in found {
            if let Some(damage) = found.damage {
                findings.add(format!("volume {:?}: {damage}", found.record.name));
            }
        }
        if options.all
            && let Some(survey) = &survey
        {
            verify(all, device, survey, watch, &mut findings)?;
        }
        let volumes: Vec<LogVolumeReport> = found.iter().map(volume).collect();
        let memory = match super::memory::report(media) {
            Ok(memory) => memory,
            Err(OpenError::Note) => {
                findings.add(OpenError::Note.to_string());
                None
            }
            Err(error) => return Err(failed(device, error)),
        };
        let opens = survey.is_some() && unreadable.is_empty() && refused.is_none();
        Ok(WriteLogReport {
            device: device.to_owned(),
            kind: "write_log",
            size_bytes: has,
            damaged: !findings.lines.is_empty(),
            next_start: next_start((opens, refused.as_deref()), &volumes, memory.as_ref()),
            findings: findings.lines,
            more_findings: findings.more,
            superblocks: copies.iter().map(copy).collect(),
            uuid: hex(&newest.uuid),
            segments: newest.segments,
            segment_bytes: u64::from(SEGMENT_PAGES) * BLOCK_BYTES,
            segments_used: segments_used(found),
            data_checked: options.all && survey.is_some(),
            volumes,
            memory,
            halves,
        })
    }
}

pub(super) fn superblocks(
    copies: &[Result<Superblock, SuperblockError>; 2],
    newest: Superblock,
    findings: &mut Findings,
) {
    for (page, copy) in copies.iter().enumerate() {
        match copy {
            Err(error) => findings.add(format!("superblock copy {page}: {error}")),
            Ok(copy) if *copy != newest => {
                findings.add(format!("superblock copy {page}: it is another log's"));
            }
            Ok(_) => {}
        }
    }
}

/// The superblock that counts: the first copy, if it is one.
pub(super) fn newest(
    device: &str,
    copies: &[Result<Superblock, SuperblockError>; 2],
) -> Result<Superblock, OfflineError> {
    let [first, second] = copies;
    let newest = first.or_else(|error| second.map_err(|_| error));
    newest.map_err(|error| failed(device, error.into()))
}

/// Reads the data of every chunk that counts.
fn verify(
    halves: &[&impl Media<Memory>],
    device: &str,
    survey: &Survey,
    watch: &mut dyn Watch,
    findings: &mut Findings,
) -> Result<(), OfflineError> {
    let of = survey.volumes.iter().map(|found| found.chunks.len() as u64).sum();
    let mut done = 0;
    for found in &survey.volumes {
        for header in &found.chunks {
            watch.at("chunks verified", done, of);
            done += 1;
            // A page that one half lacks is read from the other one.
            let each = halves.iter().map(|half| is_whole(*half, &found.record, header));
            let each: Vec<_> = each.collect();
            let whole = each.iter().any(|whole| matches!(whole, Ok(true)));
            let failure = each.into_iter().find_map(Result::err).filter(|_| halves.len() == 1);
            if let Some(error) = failure {
                return Err(failed(device, error));
            }
            if !whole {
                let (name, number) = (&found.record.name, header.number);
                findings.add(format!("volume {name:?}: the data of chunk {number} are damaged"));
            }
        }
    }
    Ok(())
}

fn volume(found: &Found) -> LogVolumeReport {
    let record = &found.record;
    let pages: u64 = found.chunks.iter().map(|header| u64::from(1 + header.data_pages())).sum();
    let epochs: BTreeSet<u64> = found.chunks.iter().map(|header| header.epoch).collect();
    LogVolumeReport {
        place: record.volume,
        name: record.name.clone(),
        incarnation: format!("{:016x}", record.incarnation),
        size_bytes: record.size_bytes,
        dirty_bytes: pages * BLOCK_BYTES,
        dirty_chunks: found.chunks.len() as u64,
        void_chunks: found.behind.len() as u64,
        retired_chunk: record.retired,
        last_chunk: found.last,
        retired_epoch: record.retired_epoch,
        group: record.group.clone(),
        epoch: found.epoch,
        dirty_epochs: epochs.len() as u64,
        damaged: found.damage.is_some(),
        damage: found.damage.map(|damage| damage.to_string()),
    }
}

/// Segments that can't be used for other chunks: of a damaged volume also those that do not count.
fn segments_used(found: &[Found]) -> u32 {
    let segment = |header: &ChunkHeader| header.slot / SEGMENT_PAGES;
    let mut used = BTreeSet::new();
    for found in found {
        used.extend(found.chunks.iter().map(segment));
        if found.damage.is_some() {
            used.extend(found.behind.iter().map(segment));
        }
    }
    used.len() as u32
}

fn copy(copy: &Result<Superblock, SuperblockError>) -> CopyReport {
    let (status, reason) = match copy {
        Ok(_) => ("good", String::new()),
        Err(error) => ("damaged", error.to_string()),
    };
    CopyReport { status, reason, sequence: None }
}

fn next_start(
    (opens, refused): (bool, Option<&str>),
    volumes: &[LogVolumeReport],
    memory: Option<&MemoryReport>,
) -> StartReport {
    let dirty = volumes.iter().filter(|volume| volume.dirty_chunks > 0 && !volume.damaged);
    let dirty: Vec<&str> = dirty.map(|volume| volume.name.as_str()).collect();
    let damaged = volumes.iter().filter(|volume| volume.damaged);
    let damaged: Vec<&str> = damaged.map(|volume| volume.name.as_str()).collect();
    if !opens {
        let text = "the write log can't be opened; volumes in write-back mode are not served, and \
                    nothing on it is changed";
        let why = refused.map_or_else(String::new, |why| format!(": {why}"));
        return StartReport { kind: StartKind::Refuse, text: format!("{text}{why}") };
    }
    let mut parts = Vec::new();
    if let Some(memory) = memory {
        let path = &memory.path;
        let there = if memory.found { "" } else { ", which is not there: it would refuse the log" };
        parts.push(format!("newer writes are taken from the write memory {path}{there}"));
    }
    if !dirty.is_empty() {
        parts
            .push(format!("what is dirty of {} is kept and brought to the back end", list(&dirty)));
    }
    if !damaged.is_empty() {
        parts.push(format!("{} is not served, and nothing of it is dropped", list(&damaged)));
    }
    if parts.is_empty() {
        let text = "nothing is dirty: every back end has all its writes".to_owned();
        return StartReport { kind: StartKind::Cold, text };
    }
    StartReport { kind: StartKind::Recover, text: parts.join("; ") }
}

/// Names for people: all of a few, else how many.
fn list(names: &[&str]) -> String {
    if names.len() > 4 {
        return format!("{} volumes", names.len());
    }
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    quoted.join(", ")
}
