//! What is durable of a volume that may move: its epochs, and the other daemon if it was named at run time.
//!
//! One small file of lines for each, beside the generations. It outlives the volume: a host that forgot
//! that it owned one would pass for a host that never did.

use cinnabar_config::messages::Peer;
use cinnabar_driver::ownership::{EPOCH_MAX, Record};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FIRST_LINE: &str = "cinnabar migration 1";
/// Longest file: a path and an address fit.
const BYTES_MAX: u64 = 16 << 10;

/// All that is kept of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Kept {
    pub(super) record: Record,
    /// It may move, and the daemon begins as a standby.
    pub(super) peer: Option<Peer>,
}

/// A volume's name has no slash and is not `..`.
pub(super) fn path_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.moves"))
}

/// Reads what is kept; nothing is kept of a volume that has never moved.
///
/// # Errors
/// If it can't be read, or is something else.
pub(super) fn read(folder: &Path, name: &str) -> io::Result<Kept> {
    let file = match File::open(path_of(folder, name)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    let fits = text.len() as u64 <= BYTES_MAX;
    let parsed = if fits { parse(&text) } else { None };
    parsed.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is damaged"))
}

fn parse(text: &str) -> Option<Kept> {
    let mut lines = text.strip_suffix('\n')?.lines();
    if lines.next()? != FIRST_LINE {
        return None;
    }
    let mut number = |key: &str| {
        let number = lines.next()?.strip_prefix(key)?.parse::<u64>().ok()?;
        // This host may have counted on from the last one that it was told.
        (number < EPOCH_MAX * 2).then_some(number)
    };
    let (epoch, owned) = (number("epoch ")?, number("owned ")?);
    let record = Record { epoch, owned, other: number("other ")? };
    let peer = match lines.next() {
        None => None,
        Some(line) => {
            let address = line.strip_prefix("peer ")?.to_owned();
            let token_file = PathBuf::from(lines.next()?.strip_prefix("token_file ")?);
            Some(Peer { address, token_file })
        }
    };
    (lines.next().is_none() && record.owned <= record.epoch).then_some(Kept { record, peer })
}

/// Makes it durable.
///
/// # Errors
/// If it can't be; then it may be durable all the same.
pub(super) fn write(folder: &Path, name: &str, kept: &Kept) -> io::Result<()> {
    let Kept { record, peer } = kept;
    let Record { epoch, owned, other } = record;
    let mut text = format!("{FIRST_LINE}\nepoch {epoch}\nowned {owned}\nother {other}\n");
    if let Some(Peer { address, token_file }) = peer {
        let token_file =
            token_file.to_str().filter(|path| !path.contains('\n')).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "the token's path can't be written down",
                )
            })?;
        text.extend(["peer ", address.as_str(), "\ntoken_file ", token_file, "\n"]);
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let path = path_of(folder, name);
    let beside = folder.join(format!("{name}.moves.new"));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, &path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("moves");
        assert_eq!(read(&folder, "vm1").expect("there is none"), Kept::default());
        let peer = Peer { address: "b:9320".into(), token_file: "/etc/token".into() };
        for peer in [None, Some(peer)] {
            let kept = Kept { record: Record { epoch: 7, owned: 5, other: 6 }, peer };
            write(&folder, "vm1", &kept).expect("it is written");
            assert_eq!(read(&folder, "vm1").expect("it is read"), kept);
        }
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        for text in [
            "",
            "cinnabar migration 2\nepoch 1\nowned 1\nother 0\n",
            "cinnabar migration 1\nepoch 1\nowned 1\n",
            "cinnabar migration 1\nepoch 1\nowned 2\nother 0\n",
            "cinnabar migration 1\nepoch 1\nowned 1\nother 0",
            "cinnabar migration 1\nepoch 18446744073709551615\nowned 1\nother 0\n",
            "cinnabar migration 1\nepoch 1\nowned 1\nother 0\npeer b:1\n",
            "cinnabar migration 1\nepoch 1\nowned 1\nother 0\npeer b:1\ntoken_file /t\nmore\n",
        ] {
            std::fs::write(path_of(folder.path(), "vm1"), text).expect("a file");
            assert!(read(folder.path(), "vm1").is_err(), "{text:?}");
        }
    }
}
