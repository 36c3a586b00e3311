//! Settings that are sizes or parts of the cache, as people write them: `8GiB`, `10%`.

use crate::settings::Share;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_text::units::SIZE_HINT;
pub use cinnabar_text::{parse_size, show_size, write_size};

/// Reads a size as a setting: a small number without a unit is one whose unit was forgotten (`10` for
/// 10 % or 10 GiB), as nothing is set to less than a block.
///
/// # Errors
/// As [`parse_size`].
pub fn parse_setting(text: &str) -> Result<u64, (String, String)> {
    let bytes = parse_size(text)?;
    let bare = text.trim().bytes().all(|byte| byte.is_ascii_digit());
    if bare && (1..BLOCK_BYTES).contains(&bytes) {
        return Err((format!("{:?} has no unit", text.trim()), SIZE_HINT.to_owned()));
    }
    Ok(bytes)
}

/// Reads a part of the cache: a size, or a percentage from 0 to 100.
///
/// # Errors
/// A line that says what is wrong, and one that helps.
pub fn parse_share(text: &str) -> Result<Share, (String, String)> {
    const HINT: &str = "write bytes such as 512MiB, or a percentage from 0% to 100%";
    let Some(number) = text.trim().strip_suffix('%') else {
        let bytes = parse_size(text).map_err(|_| {
            (format!("{text:?} is neither a size nor a percentage"), HINT.to_owned())
        })?;
        // 10 is meant as 10 % by some and as 10 GiB by others, and as 10 bytes by nobody.
        if parse_setting(text).is_err() {
            let bare = text.trim();
            let hint = format!("write \"{bare}%\", or bytes with a unit, such as \"{bare}MiB\"");
            return Err((format!("{bare:?} has no unit"), hint));
        }
        return Ok(Share::Bytes(bytes));
    };
    match number.trim().parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Share::Percent(percent)),
        _ => Err((format!("{text:?} is not a percentage from 0 to 100"), HINT.into())),
    }
}

/// A share as it would be written in a configuration file.
pub fn show_share(share: Share) -> String {
    match share {
        Share::Percent(percent) => format!("{percent}%"),
        Share::Bytes(bytes) => write_size(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_without_a_unit_is_not_taken_for_bytes() {
        assert_eq!(parse_setting("0"), Ok(0));
        assert_eq!(parse_setting("16777216"), Ok(16 << 20));
        assert_eq!(parse_setting("512B"), Ok(512));
        for text in ["16", " 64 ", "4095"] {
            let (message, hint) = parse_setting(text).expect_err(text);
            assert!(message.contains("has no unit") && hint.contains("MiB"), "{message}");
        }
        let (message, hint) = parse_share("10").expect_err("bytes, or percent?");
        assert!(message.contains("has no unit") && hint.contains("\"10%\""), "{message}: {hint}");
    }

    #[test]
    fn shares_are_sizes_or_percentages() {
        assert_eq!(parse_share("10%"), Ok(Share::Percent(10.0)));
        assert_eq!(parse_share("0.5 %"), Ok(Share::Percent(0.5)));
        assert_eq!(parse_share("1GiB"), Ok(Share::Bytes(1 << 30)));
        assert_eq!(parse_share("0"), Ok(Share::Bytes(0)));
        for text in ["101%", "-1%", "NaN%", "inf%", "%", "ten", "50 percent", "10", "4095"] {
            parse_share(text).expect_err(text);
        }
    }

    #[test]
    fn shares_are_shown_as_they_can_be_read() {
        for text in ["10%", "0.5%", "1GiB", "1536MiB", "4097", "7B", "0", "3TiB"] {
            assert_eq!(show_share(parse_share(text).expect(text)), text);
        }
    }
}
