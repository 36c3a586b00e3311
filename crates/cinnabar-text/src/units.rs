//! Sizes and times as people write them: `8GiB`, `1.5s`.

use bytesize::ByteSize;
use std::time::Duration;

/// What to write instead of something that is no size.
pub const SIZE_HINT: &str = "write a number with a unit such as 512MiB, 8GiB or 10GB";

/// Reads a size in bytes: a plain number, or one with a unit (KiB to TiB are powers of 1024,
/// kB to TB powers of 1000; case doesn't matter).
///
/// # Errors
/// A line that says what is wrong, and one that helps.
pub fn parse_size(text: &str) -> Result<u64, (String, String)> {
    let text = text.trim();
    let wrong = |hint: &str| (format!("{text:?} is not a size"), hint.to_owned());
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').trim_start();
    if text.is_empty() || unit.len() == text.len() {
        return Err(wrong(SIZE_HINT));
    }
    // "8G" means 8 GiB to some and 8 GB to others.
    if !unit.is_empty() && !unit.ends_with(['b', 'B']) {
        return Err(wrong(SIZE_HINT));
    }
    let size: ByteSize = text.parse().map_err(|_| wrong(SIZE_HINT))?;
    if size.0 > i64::MAX.unsigned_abs() {
        return Err((format!("{text:?} is more than any device has"), SIZE_HINT.into()));
    }
    Ok(size.0)
}

/// Reads a time: `24h`, `90min`, `1.5s`, `30ms`, `100us`, `400ns`.
///
/// # Errors
/// A line that says what is wrong, and one that helps.
pub fn parse_duration(text: &str) -> Result<Duration, (String, String)> {
    // "ns", "us" and "ms" before the "s" that they end with.
    let units = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("ms", 1e-3),
        ("min", 60.0),
        ("s", 1.0),
        ("h", 3600.0),
        ("d", 86_400.0),
    ];
    let wrong =
        || (format!("{text:?} is not a time"), "write it such as 24h, 90min, 1.5s or 30ms".into());
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

/// `8.0 GiB`: for people, to two significant digits or more.
pub fn show_size(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

/// A size as it would be written in a configuration file: `1536MiB`, exact.
pub fn write_size(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, log2)| bytes > 0 && bytes.trailing_zeros() >= *log2) {
        Some((unit, log2)) => format!("{}{unit}", bytes >> log2),
        // A setting below a block needs its unit.
        None if (1..4096).contains(&bytes) => format!("{bytes}B"),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("8GiB", 8 << 30),
            ("8 gib", 8 << 30),
            ("1.5MiB", 3 << 19),
            ("10GB", 10_000_000_000),
            (" 512 MiB ", 512 << 20),
            ("7B", 7),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "GiB", "8G", "8X", "-1", "1e3", "8GiBB", "99999999EiB", "1.2.3MiB", "²"] {
            let (message, hint) = parse_size(text).expect_err(text);
            assert!(message.contains(text.trim()) && !hint.is_empty(), "{message}");
        }
    }

    #[test]
    fn times_as_people_write_them() {
        for (text, nanoseconds) in [
            ("24h", 86_400_000_000_000),
            ("90min", 5_400_000_000_000),
            ("1.5s", 1_500_000_000),
            (" 30 ms ", 30_000_000),
            ("7us", 7_000),
            ("32.768us", 32_768),
            ("400ns", 400),
            ("2d", 172_800_000_000_000),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
        for text in ["", "5", "h", "-1s", "+1s", "1e3s", "infs", "nans", "1m", "1..5s", "1hour"] {
            let (message, hint) = parse_duration(text).expect_err(text);
            assert!(message.contains(text) && hint.contains("30ms"), "{message}");
        }
        assert!(parse_duration("99999999999999999999d").is_err());
    }

    #[test]
    fn sizes_are_written_as_they_can_be_read() {
        for text in ["1GiB", "1536MiB", "4097", "7B", "0", "3TiB"] {
            assert_eq!(write_size(parse_size(text).expect(text)), text);
        }
    }
}
