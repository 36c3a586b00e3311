//! What a device of a mirrored write log says of itself, and what follows from that for it alone.

use super::report::HalfReport;
use cinnabar_backend::Disk;
use cinnabar_writeback::format::superblock::Superblock;
use cinnabar_writeback::mirror::{Mark, MarkState, read_mark};
use cinnabar_writeback::recover::OpenError;

/// Whether a log may be used without another half.
pub(super) fn check_alone(disk: &Disk, log: Superblock) -> Result<(), OpenError> {
    match read_mark(disk, log.uuid)?.map(|mark| mark.state) {
        None | Some(MarkState::Alone) => Ok(()),
        Some(MarkState::Both) => Err(OpenError::HalfMissing),
        Some(MarkState::Filling) => Err(OpenError::Incomplete),
    }
}

/// A device that was given without its other half; `None`: it has none.
pub(super) fn one_half(disk: &Disk, device: &str, log: Superblock) -> Option<HalfReport> {
    let reason = check_alone(disk, log).err().map(|error| error.to_string());
    let mark = read_mark(disk, log.uuid);
    if matches!(mark, Ok(None)) && reason.is_none() {
        return None;
    }
    let next_start = if reason.is_some() { "not_used" } else { "member" };
    let reason = reason.unwrap_or_default();
    let of = half(device, *mark.as_ref().unwrap_or(&None));
    let mark = if mark.is_err() { "damaged" } else { of.mark };
    Some(HalfReport { mark, next_start, reason, ..of })
}

pub(super) fn half(device: &str, mark: Option<Mark>) -> HalfReport {
    let word = match mark.map(|mark| mark.state) {
        None => "none",
        Some(MarkState::Both) => "both",
        Some(MarkState::Alone) => "alone",
        Some(MarkState::Filling) => "filling",
    };
    let mark = mark.unwrap_or(Mark::NEVER);
    HalfReport {
        device: device.to_owned(),
        mark: word,
        generation: mark.generation,
        pair: format!("{:016x}", mark.pair),
        next_start: "not_used",
        reason: String::new(),
        pages_lacking: 0,
    }
}
