//! The text of a claim: TOML with a version, under lines for the person who finds it.

use super::error::ClaimErrorKind;
use super::record::Claim;
use cinnabar_engine::limits::NAME_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Twice the longest one: two paths' worth of text.
pub(crate) const BYTES_MAX: u64 = 16 << 10;
const VERSION: u32 = 1;
const HEAD: &str = "\
# Cinnabar: the disk beside this file lacks writes. Don't delete this file, don't use the disk elsewhere.
# The writes are in the write log named below, on the host named below. This file goes by itself when
# the disk has them all: start the daemon there, or run there
#   cinnabar cache writeback DEVICE --volume NAME --to BACKEND
";

const RESCUED_HEAD: &str = "\
# Cinnabar: the disk beside this file has all its writes again; `cinnabar cache writeback` brought them.
# This file tells the next daemon that serves the disk to drop what its cache has of it, and goes then.
# A disk that no Cinnabar serves any more does not need it.
";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    version: u32,
    host: String,
    /// 32 hexadecimal digits.
    write_log: String,
    device: String,
    volume: String,
    /// 16 hexadecimal digits: TOML's numbers have a sign.
    incarnation: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    since: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    rescued: bool,
}

/// What every version has.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

pub(crate) fn render(claim: &Claim) -> Result<Vec<u8>, ClaimErrorKind> {
    let whole = Whole {
        version: VERSION,
        host: claim.host.clone(),
        write_log: format!("{:032x}", u128::from_be_bytes(claim.write_log)),
        device: claim.device.to_string_lossy().into_owned(),
        volume: claim.volume.clone(),
        incarnation: format!("{:016x}", claim.incarnation),
        number: (claim.number > 0).then_some(claim.number),
        since: claim.since.clone(),
        rescued: claim.rescued,
    };
    let body = toml::to_string(&whole);
    let text = body.map_err(|error| ClaimErrorKind::Unfit(error.to_string()))?;
    let head = if claim.rescued { RESCUED_HEAD } else { HEAD };
    let bytes = format!("{head}{text}").into_bytes();
    // Nothing is written that would not be read.
    match parse(&bytes) {
        Ok(read) if read == *claim => Ok(bytes),
        Ok(_) => Err(ClaimErrorKind::Unfit("its device's path is not text".into())),
        Err(kind) => Err(ClaimErrorKind::Unfit(kind.to_string())),
    }
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Claim, ClaimErrorKind> {
    let damaged = |reason: &str| ClaimErrorKind::Damaged(reason.to_owned());
    if bytes.len() as u64 > BYTES_MAX {
        return Err(ClaimErrorKind::Damaged(format!("more than {BYTES_MAX} bytes")));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not text"))?;
    // Of what the library says, the line: the rest draws the place.
    let wrong = |error: toml::de::Error| damaged(error.message());
    let Version { version } = toml::from_str(text).map_err(wrong)?;
    if version != VERSION {
        return Err(ClaimErrorKind::Version(version));
    }
    let whole: Whole = toml::from_str(text).map_err(wrong)?;
    let write_log = digits(&whole.write_log, 32).ok_or_else(|| damaged("write_log is no id"))?;
    let incarnation = digits(&whole.incarnation, 16)
        .and_then(|number| u64::try_from(number).ok())
        .ok_or_else(|| damaged("incarnation is not one"))?;
    if !(1..=NAME_BYTES_MAX).contains(&whole.volume.len()) {
        return Err(damaged("volume is not a volume's name"));
    }
    Ok(Claim {
        host: whole.host,
        write_log: write_log.to_be_bytes(),
        device: PathBuf::from(whole.device),
        volume: whole.volume,
        incarnation,
        number: whole.number.unwrap_or(0),
        since: whole.since,
        rescued: whole.rescued,
    })
}

/// Exactly `count` hexadecimal digits.
fn digits(text: &str, count: usize) -> Option<u128> {
    let sound = text.len() == count && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if sound { u128::from_str_radix(text, 16).ok() } else { None }
}
