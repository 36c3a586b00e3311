//! Points that are finished, kept in a folder so that a sweep that was stopped can go on.
//!
//! A line of `points.jsonl` is a point with all that decides what comes out of it: every setting,
//! the trace, the program's version, and the fingerprint of its model. A line is durable before the
//! next point is told as done. What a crash left of the last line is cut off. `lock` keeps a second
//! sweep out; it is held by the open file, so a killed one leaves nothing.

use super::outcome::PointStats;
use cinnabar_text::Failure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::path::{Path, PathBuf};

/// Longest line: a few times what any has.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Everything that decides what comes out of a point, by name.
pub type Identity = BTreeMap<String, String>;

/// The folder.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    file: File,
    known: BTreeMap<Identity, PointStats>,
    /// Held as long as this is.
    _lock: File,
}

#[derive(Deserialize, Serialize)]
struct Line {
    identity: Identity,
    outcome: PointStats,
}

impl Store {
    /// Opens a folder, making it if it isn't there. `fresh` throws away what is known.
    ///
    /// # Errors
    /// Names what cannot be made, read or locked, or the line that is no finished point.
    pub fn open(folder: &Path, fresh: bool) -> Result<Self, Failure> {
        let failed = |what: &Path, error: &io::Error| {
            let message = format!("--out {}: {error}", what.display());
            Failure::at_run_time(message, "name a folder that can be made or written to")
        };
        match fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(folder, &error));
            }
            _ => {}
        }
        let lock = lock(folder, &failed)?;
        let path = folder.join("points.jsonl");
        let open =
            || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open().map_err(|error| failed(&path, &error))?;
        if fresh {
            file.set_len(0).map_err(|error| failed(&path, &error))?;
        }
        let (known, end) = read(&file, &path)?;
        let ready = file
            .set_len(end)
            .and_then(|()| file.seek(io::SeekFrom::Start(end)))
            .and_then(|_| file.sync_all())
            // The file's name, too, must be there after a crash.
            .and_then(|()| File::open(folder)?.sync_all());
        ready.map_err(|error| failed(&path, &error))?;
        Ok(Self { path, file, known, _lock: lock })
    }

    /// What is known of a point.
    pub fn get(&self, identity: &Identity) -> Option<&PointStats> {
        self.known.get(identity)
    }

    /// Keeps a point; it is durable then.
    ///
    /// # Errors
    /// Names the file if it cannot be written; it is then as it was.
    pub fn keep(&mut self, identity: &Identity, outcome: &PointStats) -> Result<(), Failure> {
        let line = Line { identity: identity.clone(), outcome: outcome.clone() };
        let written = serde_json::to_string(&line)
            .map_err(io::Error::from)
            .and_then(|text| append(&mut self.file, (text + "\n").as_bytes()));
        written.map_err(|error| {
            let message = format!("can't write {}: {error}", self.path.display());
            Failure::at_run_time(message, "is the disk full? what was finished before is kept")
        })
    }
}

/// Appends a line, durably, or leaves the file as it was: behind half a line another one would be damage.
fn append(file: &mut File, line: &[u8]) -> io::Result<()> {
    let end = file.stream_position()?;
    let written = file.write_all(line).and_then(|()| file.sync_data());
    if written.is_err() {
        file.set_len(end)?;
        file.seek(io::SeekFrom::Start(end))?;
    }
    written
}

fn lock(folder: &Path, failed: &dyn Fn(&Path, &io::Error) -> Failure) -> Result<File, Failure> {
    let path = folder.join("lock");
    let open = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let lock = open.map_err(|error| failed(&path, &error))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(Failure::of_usage(
            format!("--out {}: another sweep is using it", folder.display()),
            "wait for it, or name another folder",
        )),
        Err(TryLockError::Error(error)) => Err(failed(&path, &error)),
    }
}

/// The points, and where the last whole line ends.
fn read(file: &File, path: &Path) -> Result<(BTreeMap<Identity, PointStats>, u64), Failure> {
    let mut known = BTreeMap::new();
    let mut reader = BufReader::new(file);
    let (mut number, mut end) = (0u64, 0u64);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = io::Read::take(&mut reader, LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let length = read.map_err(|error| {
            let message = format!("can't read {}: {error}", path.display());
            Failure::at_run_time(message, "name another folder with --out")
        })?;
        number += 1;
        let is_whole = line.last() == Some(&b'\n');
        if !is_whole && (length as u64) < LINE_BYTES_MAX {
            // Nothing, or what a crash left.
            return Ok((known, end));
        }
        let found: Line = serde_json::from_slice(&line).map_err(|_| {
            let message = format!("{}:{number}: that is not a finished point", path.display());
            Failure::of_usage(
                message,
                "--fresh throws the file's points away; or name another --out",
            )
        })?;
        known.insert(found.identity, found.outcome);
        end += length as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(name: &str) -> Identity {
        [("flash.size".to_owned(), name.to_owned())].into()
    }

    fn told(ios: u64) -> PointStats {
        PointStats {
            block_ios: ios,
            simulated_s: 0.123_456,
            digest: "00ff".to_owned(),
            ..PointStats::default()
        }
    }

    #[test]
    fn what_was_kept_is_known_again() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("out");
        let mut store = Store::open(&path, false).expect("it is made");
        store.keep(&identity("1GiB"), &told(1)).expect("there is room");
        store.keep(&identity("2GiB"), &told(2)).expect("there is room");
        let error = Store::open(&path, true).expect_err("it is in use");
        assert!(error.message.contains("another sweep") && error.code == 2, "{error:?}");
        drop(store);
        let store = Store::open(&path, false).expect("it is there");
        assert_eq!(store.get(&identity("2GiB")), Some(&told(2)));
        assert_eq!(store.get(&identity("3GiB")), None);
        drop(store);
        let store = Store::open(&path, true).expect("it is there");
        assert_eq!(store.get(&identity("2GiB")), None, "thrown away");
    }

    #[test]
    fn half_a_line_is_cut_off_wherever_it_ends() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut store = Store::open(folder.path(), false).expect("it is there");
        store.keep(&identity("1GiB"), &told(1)).expect("there is room");
        store.keep(&identity("2GiB"), &told(2)).expect("there is room");
        drop(store);
        let path = folder.path().join("points.jsonl");
        let whole = fs::read(&path).expect("it is there");
        let first = whole.iter().position(|byte| *byte == b'\n').expect("two lines") + 1;
        for end in first..whole.len() {
            fs::write(&path, &whole[..end]).expect("there is room");
            let mut store = Store::open(folder.path(), false).expect("half a line is no damage");
            assert_eq!(store.get(&identity("1GiB")), Some(&told(1)));
            assert_eq!(store.get(&identity("2GiB")), None);
            store.keep(&identity("2GiB"), &told(2)).expect("there is room");
            assert_eq!(fs::read(&path).expect("it is there"), whole);
        }
    }

    #[test]
    fn somebody_elses_file_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("points.jsonl");
        for text in ["my notes\n".to_owned(), "{}\n".to_owned(), "x".repeat(100_000)] {
            fs::write(&path, &text).expect("there is room");
            let error = Store::open(folder.path(), false).expect_err("these are no points");
            assert!(error.message.contains(":1: ") && error.hint.contains("--fresh"), "{error:?}");
            assert_eq!(fs::read_to_string(&path).expect("it is there"), text);
        }
    }
}
