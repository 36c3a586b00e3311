//! Valid pages of a cache device, and files of histories, as their encoders write them.

use cinnabar_config::history::{History, encode};
use cinnabar_fuzz::{metadata, served};

/// Some time, a multiple of every step, and what lies between two looks.
const START_MS: u64 = 1_800_000_000_000;
const STEP_MS: u64 = 10_000;

/// Inputs of the target `metadata`: each structure beside itself and beside the next one, unchanged and with a place of
/// the example changed.
pub(crate) fn pages() -> Vec<Vec<u8>> {
    let pages = metadata::examples();
    let input = |number: usize, edits: &[u8], beside: usize| {
        let numbers = [&(number as u64).to_le_bytes()[..], &[0; 4], edits].concat();
        [&numbers[..], &pages[number].0, &pages[beside].0].concat()
    };
    let unchanged = (0..pages.len()).map(|number| input(number, &[0], number));
    let changed = (0..pages.len()).map(|number| input(number, &[1, 9, 0, 1], (number + 1) % 5));
    unchanged.chain(changed).collect()
}

/// Inputs of the target `history`: an empty one, and what two volumes did in some minutes; with their own heads, and
/// with heads that the target makes right.
pub(crate) fn histories() -> Vec<Vec<u8>> {
    let mut history = History::default();
    let mut inputs = vec![[vec![0], encode(&history)].concat()];
    let mut status = served::status();
    for look in 0..40 {
        for volume in &mut status.volumes {
            volume.counters.reads += 300 * look;
            volume.counters.read_hits += 200 * look;
        }
        history.look(START_MS + look * STEP_MS, &status);
    }
    history.close(START_MS + 40 * STEP_MS);
    inputs.extend([0, 1].map(|is_whole| [vec![is_whole], encode(&history)].concat()));
    inputs
}
