//! Checking the halves of a mirrored write log: which of them count, and what they hold together. What a start
//! would write to them is done in RAM.

use super::check::{Looked, newest, recognise, superblocks};
use super::halves::refused;
use super::look;
use super::marks::half;
use super::overlay::Overlay;
use super::report::{HalfReport, WriteLogReport};
use crate::offline::check::{CheckOptions, Findings};
use crate::offline::{Image, OfflineError, Watch};
use cinnabar_backend::Memory;
use cinnabar_backend::disk::is_blank;
use cinnabar_writeback::Config;
use cinnabar_writeback::format::superblock::Superblock;
use cinnabar_writeback::mirror::{Half, HalfState, Pair, read_mark, start};
use cinnabar_writeback::recover::Media;
use std::path::Path;

/// Checks a write log and its mirror. One that can't be opened is said to be missing.
///
/// # Errors
/// If neither is a write log, or what counts can't be read. Damage is a result, and so are halves that can't
/// be used together.
///
/// # Panics
/// Never: of a device that is a write log there is an image.
pub fn check_mirrored(
    paths: [&Path; 2],
    options: CheckOptions,
    watch: &mut dyn Watch,
) -> Result<WriteLogReport, OfflineError> {
    let images = paths.map(Image::open);
    let copies = images.each_ref().map(|image| recognise(image.as_ref().ok()?));
    let Some((first, of)) = (0..2).find_map(|half| Some((half, copies[half].as_ref()?))) else {
        let [image, _] = images;
        image?;
        return Err(OfflineError::NoWriteLog { device: paths[0].display().to_string() });
    };
    let device = paths[first].display().to_string();
    let newest = newest(&device, of)?;
    let mut findings = Findings::default();
    for copies in copies.iter().flatten() {
        superblocks(copies, newest, &mut findings);
    }
    let all = [0, 1].map(|half: usize| {
        let image = images[half].as_ref();
        look_at(paths[half], image, copies[half].is_some(), newest)
    });
    let [(a, media_a), (b, media_b)] = all;
    let (mut halves, media) = (vec![a, b], [media_a, media_b]);
    let given = media.each_ref().map(|media| {
        let media = media.as_ref()?;
        Some(Half { media, bytes: media.size_bytes() })
    });
    let first = media[first].as_ref().expect("it is a log");
    let has = first.size_bytes();
    let (device, copies) = (device.as_str(), of);
    let missing = halves.iter().map(|half| half.reason.as_str()).find(|why| !why.is_empty());
    match start::<Memory, Overlay<'_>>(given, 0, Config::default().mutants) {
        Err(error) => {
            let refused = Some(refused(device, missing, error).to_string());
            let looked = Looked { device, has, copies, newest, refused, halves, findings };
            let none: &[&Overlay<'_>] = &[];
            looked.report((first, none, None), options, watch)
        }
        Ok(pair) => {
            let all = as_planned(&pair, &mut halves, &media);
            let survey = Some(look(&pair, pair.bytes(), device, watch)?);
            let looked = Looked { device, has, copies, newest, refused: None, halves, findings };
            looked.report((&pair, &all, survey), options, watch)
        }
    }
}

/// What is known of a device by itself, and the device, if it is a write log.
fn look_at<'a>(
    path: &Path,
    image: Result<&'a Image, &OfflineError>,
    is_log: bool,
    log: Superblock,
) -> (HalfReport, Option<Overlay<'a>>) {
    let path = path.display().to_string();
    let disk = match image.map(Image::disk) {
        Ok(disk) => disk,
        Err(error) => return (HalfReport { reason: error.to_string(), ..half(&path, None) }, None),
    };
    if !is_log {
        // What is empty is filled by the next start, if the other one counts.
        let is_empty = is_blank(disk).unwrap_or(false);
        let reason = if is_empty { "it is empty" } else { "there is no write log on it" };
        let half = HalfReport { reason: reason.to_owned(), ..half(&path, None) };
        return (half, is_empty.then(|| Overlay::new(disk)));
    }
    let half = match read_mark(disk, log.uuid) {
        Ok(mark) => half(&path, mark),
        Err(error) => {
            HalfReport { mark: "damaged", reason: error.to_string(), ..half(&path, None) }
        }
    };
    (half, Some(Overlay::new(disk)))
}

/// Notes what a start makes of the halves; gives those that count.
fn as_planned<'a, M: Media<Memory>>(
    pair: &Pair<'_, M>,
    halves: &mut [HalfReport],
    media: &'a [Option<M>],
) -> Vec<&'a M> {
    let pages = pair.levelled().pages;
    let states = pair.states();
    for (number, half) in halves.iter_mut().enumerate() {
        half.pages_lacking = pages[number];
        half.next_start = match states[number] {
            HalfState::Member => "member",
            HalfState::Filling => "filled",
            HalfState::Gone => "not_used",
        };
    }
    let members = media.iter().zip(states).filter(|(_, state)| *state == HalfState::Member);
    members.filter_map(|(media, _)| media.as_ref()).collect()
}
