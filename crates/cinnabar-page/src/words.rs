//! Words of the status, as they are written there, and as sentences.

use cinnabar_config::settings::VolumeMode;
use cinnabar_config::status::raw::State;
use cinnabar_config::status::report::{VolumeReport, WarmthReport};

/// As in the status.
pub(crate) const fn state(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Serving => "serving",
        State::Degraded => "degraded",
        State::Stopping => "stopping",
        State::Waiting => "waiting",
        State::Standby => "standby",
        State::Failed => "failed",
    }
}

/// A sign beside the word: colour is never the only one.
pub(crate) const fn sign(state: State) -> &'static str {
    match state {
        State::Serving => "\u{2713}",
        State::Standby => "\u{25CB}",
        State::Starting | State::Stopping => "\u{2026}",
        State::Degraded | State::Waiting => "!",
        State::Failed => "\u{2717}",
    }
}

/// Modes, as the control API takes them.
pub(crate) const MODES: [VolumeMode; 4] = [
    VolumeMode::WriteThrough,
    VolumeMode::WriteBack,
    VolumeMode::WriteAround,
    VolumeMode::PassThrough,
];

/// As in the status.
pub(crate) const fn mode(mode: VolumeMode) -> &'static str {
    match mode {
        VolumeMode::WriteThrough => "write-through",
        VolumeMode::WriteBack => "write-back",
        VolumeMode::WriteAround => "write-around",
        VolumeMode::PassThrough => "pass-through",
    }
}

pub(crate) const fn mode_does(mode: VolumeMode) -> &'static str {
    match mode {
        VolumeMode::WriteThrough => {
            "Reads and writes are cached. A write is acknowledged when the back end has it."
        }
        VolumeMode::WriteBack => {
            "A write is acknowledged when the write log has it, and reaches the back end later, in order."
        }
        VolumeMode::WriteAround => "Reads are cached. A write drops what was cached of its blocks.",
        VolumeMode::PassThrough => "Nothing is cached.",
    }
}

/// What became of the blocks of an earlier run.
pub(crate) fn warmth(volume: &VolumeReport) -> String {
    match &volume.warmth {
        WarmthReport::New if !matches!(volume.state, State::Serving | State::Degraded) => {
            "not known until it is served".to_owned()
        }
        // "Nothing is cached yet" would be said of a cache that is full by now.
        WarmthReport::New => "nothing: it was not cached before".to_owned(),
        other => other.to_string(),
    }
}

/// A moment as UTC: `2026-11-27 05:38:00`.
pub(crate) fn moment(ms: u64) -> String {
    let (days, seconds) = (ms / 86_400_000, ms / 1000 % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// A moment as the head of the page shows it.
pub fn clock(ms: u64) -> String {
    moment(ms) + " UTC"
}

/// The date of a day since 1970 (Howard Hinnant's `civil_from_days`).
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::moment;

    #[test]
    fn a_moment_is_a_date_and_a_time() {
        assert_eq!(moment(0), "1970-01-01 00:00:00");
        assert_eq!(moment(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(moment(1_800_000_000_000), "2027-01-15 08:00:00");
    }
}
