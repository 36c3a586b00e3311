//! A file that the probe makes for itself: whole, of data that no device can make smaller.
//!
//! Called where a device is opened.

use super::error::ProbeError;
use cinnabar_model::Random;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Written at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// Removes the file unless it is kept. What is open stays until it is closed.
#[derive(Debug)]
pub(super) struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    /// Makes a file of `bytes` and calls `progress` with how much of it there is. Nothing stays if
    /// that fails, and nothing that was there before is touched.
    pub(super) fn make(
        path: &Path,
        bytes: u64,
        seed: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, ProbeError> {
        let failed = |error| match std::io::Error::kind(&error) {
            std::io::ErrorKind::AlreadyExists => ProbeError::Exists(path.into()),
            _ => ProbeError::Make { path: path.into(), error },
        };
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
        let scratch = Self { path: path.into(), keep: false };
        fill(&file, bytes, seed, progress).map_err(failed)?;
        Ok(scratch)
    }

    /// Leaves the file where it is.
    pub(super) fn keep(mut self) {
        self.keep = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            // Another process may have removed it.
            let _gone = std::fs::remove_file(&self.path);
        }
    }
}

fn fill(
    mut file: &File,
    bytes: u64,
    seed: u64,
    progress: &mut dyn FnMut(u64),
) -> std::io::Result<()> {
    let mut random = Random::new(seed);
    let mut piece = vec![0; PIECE_BYTES as usize];
    let mut done = 0;
    while done < bytes {
        scramble(&mut piece, &mut random);
        let part = PIECE_BYTES.min(bytes - done);
        file.write_all(&piece[..part as usize])?;
        done += part;
        progress(done);
    }
    file.sync_all()
}

/// Fills memory with bits that can't be compressed.
pub(super) fn scramble(bytes: &mut [u8], random: &mut Random) {
    for word in bytes.chunks_mut(8) {
        let bits = random.bits().to_le_bytes();
        word.copy_from_slice(&bits[..word.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn it_is_whole_and_goes_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        let mut told = Vec::new();
        let bytes = 2 * PIECE_BYTES + 512;
        let scratch = Scratch::make(&path, bytes, 1, &mut |done| told.push(done)).expect("made");
        assert_eq!(told, [PIECE_BYTES, 2 * PIECE_BYTES, bytes]);
        let metadata = std::fs::metadata(&path).expect("it is there");
        assert_eq!(metadata.len(), bytes);
        assert!(metadata.blocks() * 512 >= bytes, "no holes");
        let data = std::fs::read(&path).expect("it can be read");
        assert!(data.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)));
        assert_ne!(data[..4096], data[PIECE_BYTES as usize..][..4096]);
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_there_is_left_alone_and_what_is_kept_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        std::fs::write(&path, "precious").expect("a file");
        let error = Scratch::make(&path, 4096, 1, &mut |_| ()).expect_err("it is there");
        assert!(matches!(error, ProbeError::Exists(_)), "{error}");
        assert_eq!(std::fs::read(&path).expect("it"), b"precious");
        let nowhere = folder.path().join("no/a");
        let error = Scratch::make(&nowhere, 4096, 1, &mut |_| ()).expect_err("no folder");
        assert!(matches!(error, ProbeError::Make { .. }), "{error}");
        let other = folder.path().join("b");
        Scratch::make(&other, 4096, 1, &mut |_| ()).expect("made").keep();
        assert!(other.exists());
    }
}
