//! The history's file in the daemon's state folder.
//!
//! Nothing depends on it: one that is damaged, or of something else, is replaced, and one that can't be
//! written costs the history of the time before a restart.

use cinnabar_config::history::{BYTES_MAX, FileError, History, decode, encode};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const NAME: &str = "history.bin";
/// What is being written, until it is renamed.
const NEW_NAME: &str = "history.bin.new";

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct HistoryFile {
    folder: PathBuf,
}

/// Why there is no history in it.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is not a file")]
    NotAFile,
    #[error(transparent)]
    Content(#[from] FileError),
}

impl HistoryFile {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The history in it; `None`: there is none, or none that can be used, which the log tells.
    pub(super) fn read(&self) -> Option<History> {
        match self.try_read() {
            Ok(history) => Some(history),
            Err(ReadError::Io(error)) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(
                    file = %self.folder.join(NAME).display(), reason = %error,
                    "the history of earlier runs can't be used, and begins now; nothing else depends on it"
                );
                None
            }
        }
    }

    fn try_read(&self) -> Result<History, ReadError> {
        // A pipe without a writer would be waited for.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let path = self.folder.join(NAME);
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(ReadError::NotAFile);
        }
        let mut bytes = Vec::new();
        // One byte more than there may be is too long for what it says.
        file.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
        Ok(decode(&bytes)?)
    }

    /// Replaces the file, durably.
    pub(super) fn write(&self, history: &History) {
        if let Err(error) = self.try_write(&encode(history)) {
            tracing::warn!(
                file = %self.folder.join(NAME).display(), reason = %error,
                "the history can't be written (hint: keep state_dir on a healthy disk of this host)"
            );
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<()> {
        let new = self.folder.join(NEW_NAME);
        // Whatever is there was left by a daemon that was killed.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, self.folder.join(NAME))?;
        File::open(&self.folder)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_replaced_as_a_whole_and_what_is_damaged_costs_nothing() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let file = HistoryFile::new(dir.path());
        assert!(file.read().is_none(), "there is none");
        let mut history = History::default();
        history.close(1);
        fs::write(dir.path().join(NEW_NAME), "of a daemon that was killed").expect("it is ours");
        file.write(&history);
        let back = file.read().expect("it was just written");
        assert_eq!(encode(&back), encode(&history));
        assert!(!dir.path().join(NEW_NAME).exists());
        for content in [&b""[..], b"{}", b"CINNHIST and something else, long enough"] {
            fs::write(dir.path().join(NAME), content).expect("it is ours");
            assert!(file.read().is_none(), "{content:?}");
        }
        file.write(&history);
        assert!(file.read().is_some(), "and it is replaced");
        fs::remove_file(dir.path().join(NAME)).expect("it is ours");
        fs::create_dir(dir.path().join(NAME)).expect("it is ours");
        assert!(file.read().is_none(), "a folder");
        file.write(&history);
        HistoryFile::new(&dir.path().join("none")).write(&history);
    }
}
