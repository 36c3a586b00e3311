//! The file: JSON with a version, bounded, and written so that there is always a whole one.

use super::{DeviceId, EARLIER_MAX, ENTRIES_MAX, Entry, Kept};
use cinnabar_engine::limits::NAME_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub(super) const NAME: &str = "generations.json";
/// What is being written, until it is renamed.
const NEW_NAME: &str = "generations.json.new";
/// What could not be believed.
const BAD_NAME: &str = "generations.json.bad";
const VERSION: u32 = 1;
/// Twice what the largest number of volumes takes.
const BYTES_MAX: u64 = 4 << 20;

/// What is in the folder.
pub(super) enum Found {
    Nothing,
    State(Kept),
    /// Not what we wrote, and why.
    Damaged(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cache: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<PathBuf>,
    volumes: BTreeMap<String, One>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    /// 16 hexadecimal digits: many readers of JSON round numbers of 64 bits.
    generation: String,
    /// 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<String>,
}

/// Reads the file; an error is one of the disk, not of what is in it.
pub(super) fn read(folder: &Path) -> io::Result<Found> {
    let file = match File::open(folder.join(NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(match parse(&bytes) {
        Ok(kept) => Found::State(kept),
        Err(reason) => Found::Damaged(reason),
    })
}

/// Puts a file that can't be believed out of the way, so that it can be looked at.
pub(super) fn set_aside(folder: &Path) -> io::Result<()> {
    fs::rename(folder.join(NAME), folder.join(BAD_NAME))
}

/// Replaces the file, durably.
pub(super) fn write(folder: &Path, kept: &Kept) -> io::Result<()> {
    let new = folder.join(NEW_NAME);
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).clone();
    let mut file = options.open(&new)?;
    file.write_all(&render(kept)?)?;
    file.sync_all()?;
    fs::rename(&new, folder.join(NAME))?;
    File::open(folder)?.sync_all()
}

fn render(kept: &Kept) -> io::Result<Vec<u8>> {
    let one = |entry: &Entry| One {
        generation: format!("{:016x}", entry.generation),
        device: entry.device.map(|id| format!("{:032x}", u128::from_be_bytes(id))),
    };
    let volumes = kept.volumes.iter().map(|(name, entry)| (name.clone(), one(entry))).collect();
    let (cache, earlier) = (kept.cache.clone(), kept.earlier.clone());
    let whole = Whole { version: VERSION, cache, earlier, volumes };
    let mut bytes = serde_json::to_vec_pretty(&whole)?;
    bytes.push(b'\n');
    Ok(bytes)
}

pub(super) fn parse(bytes: &[u8]) -> Result<Kept, String> {
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("it has more than {BYTES_MAX} bytes"));
    }
    let whole: Whole = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if whole.version != VERSION {
        return Err(format!("its version is {}, not {VERSION}", whole.version));
    }
    if whole.volumes.len() > ENTRIES_MAX {
        return Err(format!("it names {} volumes", whole.volumes.len()));
    }
    let mut volumes = BTreeMap::new();
    for (name, one) in whole.volumes {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(format!("{name:?} is not a volume's name"));
        }
        let wrong = |what: &str| format!("the {what} of volume {name:?} is not one");
        let generation = digits(&one.generation, 16).ok_or_else(|| wrong("generation"))?;
        let device = one.device.as_deref().map(|id| digits(id, 32).ok_or_else(|| wrong("device")));
        let device: Option<DeviceId> = device.transpose()?.map(u128::to_be_bytes);
        let generation = u64::try_from(generation).map_err(|_| wrong("generation"))?;
        volumes.insert(name, Entry { generation, device });
    }
    if whole.earlier.len() > EARLIER_MAX {
        return Err(format!("it names {} earlier cache devices", whole.earlier.len()));
    }
    Ok(Kept { cache: whole.cache, earlier: whole.earlier, volumes })
}

/// Exactly `count` hexadecimal digits.
fn digits(text: &str, count: usize) -> Option<u128> {
    let sound = text.len() == count && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if sound { u128::from_str_radix(text, 16).ok() } else { None }
}
