//! Writes that are not on the log's device, but in the memory of this host: a daemon that acknowledged
//! them there was killed.

use super::{MemoryReport, failed};
use crate::offline::OfflineError;
use cinnabar_backend::Memory;
use cinnabar_backend::write_memory::{WriteMemory, WriteMemoryError, boot_id};
use cinnabar_writeback::memory::{is_of, note, put_back as put_chunks_back};
use cinnabar_writeback::mutant::Mutants;
use cinnabar_writeback::recover::{Media, OpenError, superblock};
use std::path::{Path, PathBuf};

/// Which memory is looked into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// The one that the log names.
    Noted,
    /// This file: the log names the place where it was.
    At(PathBuf),
    /// The one that the log names, if it can be had: if not, what is only there is given up.
    GivenUp,
}

/// The memory of this boot that holds writes of a log, if there is one.
///
/// # Errors
/// If the device can't be read, or the host does not say its boot.
pub fn noted(media: &impl Media<Memory>) -> Result<Option<note::Note>, OpenError> {
    let note = note::read(media, superblock(media)?.uuid)?;
    let Some(note) = note else { return Ok(None) };
    let boot = boot_id()?;
    Ok(Some(note).filter(|note| boot == note.boot))
}

/// What a check says of it.
pub(super) fn report(media: &impl Media<Memory>) -> Result<Option<MemoryReport>, OpenError> {
    let Some(note) = noted(media)? else { return Ok(None) };
    let uuid = superblock(media)?.uuid;
    let file = WriteMemory::existing(Path::new(&note.path));
    let found = match &file {
        Ok(file) => is_of(file, &note, uuid),
        // A daemon that runs has it.
        Err(error) => matches!(error, WriteMemoryError::InUse(_)),
    };
    Ok(Some(MemoryReport { path: note.path, found }))
}

/// Writes what is in memory only to the log: of all volumes, for it counts no more once the log has been
/// opened.
pub(super) fn put_back(
    media: &impl Media<Memory>,
    bytes: u64,
    device: &str,
    memory: &Remembered,
) -> Result<(), OfflineError> {
    match put_back_found(media, bytes, device, memory) {
        Err(_) if *memory == Remembered::GivenUp => Ok(()),
        done => done,
    }
}

fn put_back_found(
    media: &impl Media<Memory>,
    bytes: u64,
    device: &str,
    memory: &Remembered,
) -> Result<(), OfflineError> {
    let Some(note) = noted(media).map_err(|error| failed(device, error))? else { return Ok(()) };
    let path = match memory {
        Remembered::At(path) => path.clone(),
        Remembered::Noted | Remembered::GivenUp => PathBuf::from(&note.path),
    };
    let missing = |reason: String| {
        let (device, path) = (device.to_owned(), path.display().to_string());
        OfflineError::WriteMemory { device, path, reason }
    };
    let file = WriteMemory::existing(&path).map_err(|error| missing(error.to_string()))?;
    match put_chunks_back(media, bytes, &note, &file, Mutants::default()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(missing("it is of another log or of another start".to_owned())),
        Err(error @ OpenError::MemoryDamaged { .. }) => Err(missing(error.to_string())),
        Err(error) => Err(failed(device, error)),
    }
}
