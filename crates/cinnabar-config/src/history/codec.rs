//! A history as bytes, for a file, and back.
//!
//! Little endian: 8 bytes `CINNHIST`, the version in 4, the length of the rest in 8, its CRC-32C in 4.
//! Then, all numbers in 7 bits a byte, the lowest first, the last byte of a number below 128: how many
//! series follow, the cache first, then volumes by name; of each the length of its name and the
//! name, and for each step its seconds, how many points follow, and their fields, where the time of a
//! point is what it is beyond that of the one before.

use crate::history::point::{FIELDS, Point};
use crate::history::points::{History, SERIES_MAX};
use crate::history::ring::Step;
use crate::history::series::Series;
use cinnabar_format::limits::NAME_BYTES_MAX;
use std::collections::{BTreeMap, VecDeque};

const MAGIC: [u8; 8] = *b"CINNHIST";
const VERSION: u32 = 1;
const HEAD: usize = 24;
/// Bytes of a number of 32 bits at most.
const NUMBER_MAX: usize = 5;
const POINTS_MAX: usize = Step::Fine.points_max() + Step::Coarse.points_max();

/// Longest file, in bytes.
pub const BYTES_MAX: usize = HEAD
    + NUMBER_MAX
    + (SERIES_MAX + 1) * (NAME_BYTES_MAX + 5 * NUMBER_MAX + POINTS_MAX * FIELDS * NUMBER_MAX);

/// Why bytes are not a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// Something else.
    #[error("it is not a history")]
    Foreign,
    /// Of another version of this program.
    #[error("its version is {0}, not {VERSION}")]
    Version(u32),
    /// Cut short, or longer than it says.
    #[error("its length is not what it says")]
    Length,
    /// Not what was written.
    #[error("its checksum is wrong")]
    Checksum,
    /// What it says cannot be.
    #[error("{0}")]
    Content(&'static str),
}

/// The bytes of a history, at most [`BYTES_MAX`]. Points that are open are not among them.
///
/// # Panics
/// Never: volumes, their names and points are bounded.
pub fn encode(history: &History) -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    let volumes = history.volumes.iter().map(|(name, series)| (name.as_str(), series));
    put(&mut bytes, 1 + history.volumes.len() as u32);
    for (name, series) in std::iter::once(("", &history.cache)).chain(volumes) {
        put(&mut bytes, name.len() as u32);
        bytes.extend_from_slice(name.as_bytes());
        for step in Step::ALL {
            let points = series.points(step);
            put(&mut bytes, step.seconds());
            put(&mut bytes, points.len() as u32);
            let mut before_s = 0;
            for point in points {
                let mut numbers = point.numbers();
                numbers[0] -= before_s;
                before_s = point.at_s;
                for number in numbers {
                    put(&mut bytes, number);
                }
            }
        }
    }
    let (head, rest) = bytes.split_at_mut(HEAD);
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[12..20].copy_from_slice(&(rest.len() as u64).to_le_bytes());
    head[20..].copy_from_slice(&crc32c::crc32c(rest).to_le_bytes());
    assert!(bytes.len() <= BYTES_MAX, "a history is bounded");
    bytes
}

/// The history that bytes are of. Whatever they are, it takes no more memory than one that is full.
///
/// # Errors
/// [`FileError`].
pub fn decode(bytes: &[u8]) -> Result<History, FileError> {
    let (head, rest) = bytes.split_at_checked(HEAD).ok_or(FileError::Foreign)?;
    let (magic, head) = head.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(FileError::Foreign);
    }
    let [version, low, high, sum] = [0, 4, 8, 12].map(|at| word(head, at));
    if version != VERSION {
        return Err(FileError::Version(version));
    }
    if rest.len() as u64 != u64::from(low) | u64::from(high) << 32 || bytes.len() > BYTES_MAX {
        return Err(FileError::Length);
    }
    if crc32c::crc32c(rest) != sum {
        return Err(FileError::Checksum);
    }
    let mut reader = Reader(rest);
    let history = reader.history()?;
    if reader.0.is_empty() { Ok(history) } else { Err(FileError::Content("something follows")) }
}

/// Four bytes of a head.
fn word(head: &[u8], at: usize) -> u32 {
    let bytes = head[at..at + 4].try_into().expect("four bytes are four bytes");
    u32::from_le_bytes(bytes)
}

fn put(bytes: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn history(&mut self) -> Result<History, FileError> {
        let count = self.number()? as usize;
        if !(1..=SERIES_MAX + 1).contains(&count) {
            return Err(FileError::Content("it has too many volumes, or nothing"));
        }
        if !self.name()?.is_empty() {
            return Err(FileError::Content("it does not begin with the cache"));
        }
        let cache = self.series()?;
        let mut volumes: BTreeMap<String, Series> = BTreeMap::new();
        for _ in 1..count {
            let name = self.name()?;
            if name.is_empty() || volumes.last_key_value().is_some_and(|(last, _)| *last >= name) {
                return Err(FileError::Content("its volumes are not in order"));
            }
            volumes.insert(name, self.series()?);
        }
        Ok(History::new(cache, volumes))
    }

    fn name(&mut self) -> Result<String, FileError> {
        let len = self.number()? as usize;
        if len > NAME_BYTES_MAX || len > self.0.len() {
            return Err(FileError::Content("a name is too long"));
        }
        let (name, rest) = self.0.split_at(len);
        self.0 = rest;
        let name = std::str::from_utf8(name);
        name.map(str::to_owned).map_err(|_| FileError::Content("a name is not text"))
    }

    fn series(&mut self) -> Result<Series, FileError> {
        let mut points = Step::ALL.map(|_| VecDeque::new());
        for (step, points) in Step::ALL.into_iter().zip(&mut points) {
            *points = self.points(step)?;
        }
        Ok(Series::with(points))
    }

    fn points(&mut self, step: Step) -> Result<VecDeque<Point>, FileError> {
        if self.number()? != step.seconds() {
            return Err(FileError::Content("it has other steps"));
        }
        let count = self.number()? as usize;
        if count > step.points_max() {
            return Err(FileError::Content("it has too many points"));
        }
        let mut points = VecDeque::new();
        let mut before_s = 0_u32;
        for _ in 0..count {
            let mut numbers = [0; FIELDS];
            for number in &mut numbers {
                *number = self.number()?;
            }
            let at_s = before_s.checked_add(numbers[0]).filter(|at_s| *at_s > before_s);
            before_s = at_s.ok_or(FileError::Content("its points are not in order"))?;
            numbers[0] = before_s;
            points.push_back(Point::of_numbers(numbers));
        }
        Ok(points)
    }

    fn number(&mut self) -> Result<u32, FileError> {
        let mut number = 0_u64;
        for at in 0..NUMBER_MAX {
            let (byte, rest) = self.0.split_first().ok_or(FileError::Content("it ends early"))?;
            self.0 = rest;
            number |= u64::from(byte & 0x7F) << (7 * at);
            if *byte < 0x80 {
                return u32::try_from(number)
                    .map_err(|_| FileError::Content("a number is too large"));
            }
        }
        Err(FileError::Content("a number is too large"))
    }
}
