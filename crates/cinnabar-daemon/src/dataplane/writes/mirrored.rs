//! A mirrored write log at the start: each half is opened with a bound of its own, so that neither keeps the
//! other one from being used, and the log is recovered on what they have together.

use super::Halves;
use super::halves::LogHalf;
use super::open::{OpenFailed, Opened, log_config, random, silent};
use crate::dataplane::patience::in_time;
use cinnabar_backend::disk::{
    BoundedMedia, DiskError, DiskErrorKind, LogHalves, OpenOptions, WriteLogDisk, format_if_empty,
    open_halves, open_write_log,
};
use cinnabar_backend::{Disk, Memory};
use cinnabar_config::messages::WriteLogConfig;
use cinnabar_writeback::format::superblock::Superblock;
use cinnabar_writeback::mirror::{self, Half, HalfState, MarkState, Mirror, read_mark};
use cinnabar_writeback::mutant::Mutants;
use cinnabar_writeback::recover::OpenError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Opens and locks both devices.
pub(super) fn open_both(
    paths: [&Path; 2],
    size_bytes: Option<u64>,
    options: &OpenOptions,
    bound: Duration,
) -> LogHalves {
    open_halves(size_bytes, |half, size_bytes| {
        // One that hangs is given up, the other one is not.
        let progress = options.progress.part();
        let open = OpenOptions { progress: progress.clone(), ..options.clone() };
        let path = paths[half].to_owned();
        let work = move || open_write_log(&path, size_bytes, &open);
        in_time(&progress, bound, options, work)
            .unwrap_or_else(|| Err(silent(paths[half], bound, options)))
    })
}

/// Whether a log may be used without another half.
///
/// # Errors
/// If it has one that may hold newer writes, or is not complete.
pub(super) fn check_alone(disk: &Disk, log: Superblock) -> Result<(), OpenError> {
    match read_mark(disk, log.uuid)?.map(|mark| mark.state) {
        None | Some(MarkState::Alone) => Ok(()),
        Some(MarkState::Both) => Err(OpenError::HalfMissing),
        Some(MarkState::Filling) => Err(OpenError::Incomplete),
    }
}

/// The two devices as messages call them.
struct Names {
    paths: [PathBuf; 2],
    /// Why they could not be opened.
    whys: [Option<String>; 2],
    /// Those that are write logs.
    are_logs: [bool; 2],
}

impl Names {
    fn of(found: &LogHalves) -> Self {
        let path = |half: &Result<WriteLogDisk, DiskError>| match half {
            Ok(found) => found.disk.path().to_owned(),
            Err(error) => error.path.clone(),
        };
        let why = |half: &Result<_, DiskError>| Some(half.as_ref().err()?.kind.to_string());
        let is_log = |half: &Result<WriteLogDisk, DiskError>| {
            half.as_ref().is_ok_and(|found| found.superblock.is_some())
        };
        let found = found.each_ref();
        Self { paths: found.map(path), whys: found.map(why), are_logs: found.map(is_log) }
    }

    /// The log can't be used.
    fn refused(&self, error: &OpenError) -> OpenFailed {
        let shown = self.paths.each_ref().map(|path| path.display());
        let missing = (0..2).find(|half| self.whys[*half].is_some());
        let why = missing.map_or_else(String::new, |half| {
            let why = self.whys[half].as_deref().unwrap_or_default();
            format!("; {}: {why}", shown[half])
        });
        let hint = match (error, missing) {
            (OpenError::HalfMissing, Some(half)) if !self.are_logs[1 - half] => format!(
                " (hint: {} is empty; bring {} back, or, for a new log, have both there)",
                shown[1 - half],
                shown[half]
            ),
            (OpenError::Copies, _) => {
                " (hint: name two devices; a copy is to be emptied, and is then filled from the \
                 other one)"
                    .to_owned()
            }
            (OpenError::HalfMissing, Some(half)) => format!(
                " (hint: bring {} back; if it is lost for good: `cinnabar cache mirror {} --alone`)",
                shown[half],
                shown[1 - half]
            ),
            (OpenError::HalfMissing, None) => {
                " (hint: bring the other half back; if it is lost for \
                good: `cinnabar cache mirror DEVICE --alone` of the one that counts)"
                    .to_owned()
            }
            (OpenError::Mark, _) => {
                " (hint: if the other half is known to be whole: `cinnabar cache mirror DEVICE --alone` \
                 of that one, and empty the one with the damage)"
                    .to_owned()
            }
            (OpenError::Incomplete, _) => {
                " (hint: bring the other half back; this one lacks older writes)".to_owned()
            }
            (OpenError::Split, _) => {
                " (hint: empty the one whose newest writes are to be given up; \
                `cinnabar cache check` says what is on each)"
                    .to_owned()
            }
            (OpenError::MirrorSmaller { .. }, _) => {
                " (hint: the mirror needs at least the log's size)".to_owned()
            }
            _ => String::new(),
        };
        let [log, mirror] = shown;
        OpenFailed::Missing(format!("write log {log}, mirror {mirror}: {error}{why}{hint}"))
    }
}

/// Neither could be opened.
fn none_there(errors: [&DiskError; 2]) -> OpenFailed {
    match errors.map(OpenFailed::of) {
        [OpenFailed::Fatal(error), OpenFailed::Fatal(_)] => OpenFailed::Fatal(error),
        _ => OpenFailed::Missing(format!("write log {}; mirror {}", errors[0], errors[1])),
    }
}

/// Recovers the log on the devices that could be opened.
pub(super) fn begin(
    settings: &WriteLogConfig,
    found: LogHalves,
    bound: Duration,
) -> Result<Opened, OpenFailed> {
    let cancelled = |error: &&DiskError| error.kind == DiskErrorKind::Cancelled;
    if let Some(error) = found.iter().filter_map(|half| half.as_ref().err()).find(cancelled) {
        return Err(OpenFailed::of(error));
    }
    if let [Err(error), Err(other)] = &found {
        return Err(none_there([error, other]));
    }
    let names = Names::of(&found);
    let failed = |error: OpenError| names.refused(&error);
    if let [Ok(first), Ok(_)] = &found {
        let made = format_if_empty::<Memory>(&found, &first.disk, random()?).map_err(failed)?;
        if let Some(bytes) = made {
            let device = first.disk.path().display();
            tracing::info!(%device, bytes, "a new write log was made");
        }
    }
    let halves = found.map(|half| Some(Arc::new(half.ok()?.disk)));
    let bounded = |half: &Option<Arc<Disk>>| {
        half.as_ref().map(|disk| BoundedMedia::new(Arc::clone(disk), bound)).transpose()
    };
    let [a, b] = halves.each_ref().map(bounded);
    let media =
        [a.map_err(|error| failed(error.into()))?, b.map_err(|error| failed(error.into()))?];
    let given = [0, 1].map(|half: usize| {
        let bytes = halves[half].as_ref()?.size_bytes();
        Some(Half { media: media[half].as_ref()?, bytes })
    });
    let pair = u64::from_le_bytes(random()?);
    let pair = mirror::start::<Memory, _>(given, pair, Mutants::default()).map_err(failed)?;
    let pages = pair.levelled().pages;
    if pages != [0; 2] {
        tracing::info!(?pages, "the halves of the write log have been made alike");
    }
    let (mut log, memory) =
        super::memory::open(settings, (&pair, pair.bytes()), log_config(settings))?;
    let mirror = pair.finish(&mut log).map_err(failed)?;
    let troubles = media.each_ref().map(|media| media.as_ref().and_then(BoundedMedia::trouble));
    Ok(Opened {
        halves: Halves::two(go_on(names, halves, troubles, &mirror), mirror, bound),
        log,
        memory,
    })
}

/// The halves as they go on.
fn go_on(
    names: Names,
    disks: [Option<Arc<Disk>>; 2],
    troubles: [Option<String>; 2],
    mirror: &Mirror<Memory>,
) -> Vec<LogHalf> {
    let states = mirror.states();
    let all = names.paths.into_iter().zip(disks).zip(names.whys.into_iter().zip(troubles));
    all.zip(states)
        .enumerate()
        .map(|(n, (((path, disk), (why, trouble)), state))| {
            let said = || match mirror.missing(n) {
                // The device's own words say more.
                Some(OpenError::Io(error)) => trouble.unwrap_or_else(|| error.to_string()),
                Some(error) => error.to_string(),
                None => "it can't be used as a half of this log".to_owned(),
            };
            let is_gone = state == HalfState::Gone;
            let why = if is_gone { why.unwrap_or_else(said) } else { String::new() };
            LogHalf { path, disk, why }
        })
        .collect()
}
