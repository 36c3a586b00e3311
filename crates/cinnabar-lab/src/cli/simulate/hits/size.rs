//! Sizes of a cache as people write them: blocks, bytes with a unit, or a part of the footprint.

use crate::cli::parse;
use cinnabar_policy::Access;
use std::num::NonZeroU32;

const BLOCK_BYTES: u64 = 4096;
const BLOCKS_MAX: u64 = Access::BLOCKS_MAX as u64;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Size {
    /// In blocks of 4 KiB.
    Blocks(NonZeroU32),
    /// Of the different blocks in the trace; above 0, at most 100.
    Percent(f64),
}

impl Size {
    /// Does it depend on the trace?
    pub(super) fn is_part(&self) -> bool {
        matches!(self, Self::Percent(_))
    }

    /// In blocks, rounded up, for a trace of so many different ones.
    #[allow(clippy::cast_sign_loss, reason = "percentages are above 0")]
    pub(super) fn blocks(self, footprint: u32) -> NonZeroU32 {
        match self {
            Self::Blocks(blocks) => blocks,
            Self::Percent(percent) => {
                let blocks = (f64::from(footprint) * percent / 100.0).ceil() as u32;
                NonZeroU32::new(blocks).unwrap_or(NonZeroU32::MIN)
            }
        }
    }
}

/// `8192`, `1GiB`, `10%`.
pub(super) fn parse(text: &str) -> Result<Size, String> {
    let text = text.trim();
    if let Some(number) = text.strip_suffix('%') {
        let number = number.trim();
        return match number.parse::<f64>() {
            // `f64` would take "+5", "1e1" and "inf", too.
            Ok(percent) if percent > 0.0 && percent <= 100.0 && is_plain(number) => {
                Ok(Size::Percent(percent))
            }
            _ => Err(format!("{text:?} is not a percentage above 0, up to 100")),
        };
    }
    let blocks = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are too many blocks.
        text.parse().unwrap_or(u64::MAX)
    } else if is_plain(text) && !text.is_empty() {
        return Err(format!("{text:?} is no whole number of blocks; write 65536, 1GiB or 10%"));
    } else {
        let wrong =
            |_| format!("{text:?} is not a size; write blocks (65536), bytes (1GiB) or 10%");
        parse::size(text).map_err(wrong)? / BLOCK_BYTES
    };
    if blocks == 0 {
        return Err(format!("{text:?} is less than one block of 4 KiB"));
    }
    let size = u32::try_from(blocks).ok().and_then(NonZeroU32::new);
    let size = size.filter(|_| blocks <= BLOCKS_MAX);
    size.map(Size::Blocks)
        .ok_or_else(|| format!("{text:?} is more than {BLOCKS_MAX} blocks (4TiB)"))
}

fn is_plain(number: &str) -> bool {
    number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, blocks) in [
            ("1", 1),
            ("8192", 8192),
            (" 65536 ", 65_536),
            ("4KiB", 1),
            ("1GiB", 262_144),
            ("1.5 GiB", 393_216),
            ("10000B", 2),
            ("4TiB", 1 << 30),
            ("1073741824", 1 << 30),
            ("50%", 500),
            ("0.01%", 1),
            ("33.33 %", 334),
            ("100%", 1000),
        ] {
            let size = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(size.blocks(1000).get(), blocks, "{text}");
            assert_eq!(size.is_part(), text.contains('%'), "{text}");
        }
        assert_eq!(Size::Percent(100.0).blocks(u32::MAX).get(), u32::MAX);
        assert_eq!(Size::Percent(1.0).blocks(0).get(), 1);
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "0",
            "-1",
            "+1",
            "1e30",
            "1e3",
            "0GiB",
            "4095B",
            "1.5",
            ".",
            "1G",
            "x",
            "5TiB",
            "1073741825",
            "99999999999999999999999",
            "0%",
            "-5%",
            "101%",
            "nan%",
            "inf%",
            "1e1%",
            "%",
            "1%%",
            "+5%",
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.starts_with(&format!("{text:?} is ")), "{error}");
        }
    }
}
