//! Values of flags as people write them: sizes, times.
//!
//! Called by the commands' flags, as value parsers: what they say goes behind clap's complaint.

use crate::config::units::parse_size;
use std::time::Duration;

/// A size in bytes: `512MiB`.
pub(super) fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|(message, hint)| format!("{message}; {hint}"))
}

/// A time: `24h`, `90min`, `1.5s`, `30ms`, `100us`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    // "ms" and "us" before the "s" that they end with.
    let units =
        [("ms", 1e-3), ("us", 1e-6), ("min", 60.0), ("s", 1.0), ("h", 3600.0), ("d", 86_400.0)];
    let wrong = || format!("{text:?} is not a time; write it such as 24h, 90min, 1.5s or 30ms");
    let (number, seconds) = units
        .iter()
        .find_map(|(unit, seconds)| Some((text.trim().strip_suffix(unit)?, seconds)))
        .ok_or_else(wrong)?;
    let number = number.trim();
    // `f64` would take "inf", "nan", "+5" and "1e9", too.
    if !number.starts_with(|c: char| c.is_ascii_digit()) || number.contains(['e', 'E']) {
        return Err(wrong());
    }
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_people_write_them() {
        for (text, micros) in [
            ("24h", 86_400_000_000),
            ("90min", 5_400_000_000),
            ("1.5s", 1_500_000),
            (" 30 ms ", 30_000),
            ("7us", 7),
            ("2d", 172_800_000_000),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "5", "h", "-1s", "+1s", "1e3s", "infs", "nans", "1m", "1..5s", "1hour"] {
            let message = duration(text).expect_err(text);
            assert!(message.contains("30ms"), "{message}");
        }
        assert!(duration("99999999999999999999d").is_err());
    }
}
