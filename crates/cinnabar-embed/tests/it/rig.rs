//! A folder with a cache device, a state folder and files to be cached.

use anyhow::{Context, Result};
use cinnabar_embed::{Cache, Options, Volume, VolumeOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
/// Size of the cache devices here, if nothing else is said.
pub(crate) const DEVICE: u64 = 48 * MIB;

pub(crate) struct Rig {
    folder: PathBuf,
    /// Size of the cache device in bytes.
    device: u64,
    _temporary: Option<TempDir>,
}

impl Rig {
    pub(crate) fn new() -> Result<Self> {
        let temporary = tempfile::tempdir()?;
        Ok(Self {
            folder: temporary.path().to_owned(),
            device: DEVICE,
            _temporary: Some(temporary),
        })
    }

    /// The same folder, in another process.
    pub(crate) fn at(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), device: DEVICE, _temporary: None }
    }

    /// With a cache device of another size.
    pub(crate) fn with_device(self, bytes: u64) -> Self {
        Self { device: bytes, ..self }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A file of this many bytes, each block saying its own number.
    pub(crate) fn file(&self, name: &str, bytes: u64) -> Result<PathBuf> {
        let path = self.path(name);
        let file = std::fs::File::create(&path)?;
        file.set_len(bytes)?;
        for block in 0..bytes / 4096 {
            file.write_all_at(&stamp(block), block * 4096)?;
        }
        file.sync_all()?;
        Ok(path)
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            size_bytes: Some(self.device),
            lock_wait: Duration::from_secs(10),
            required: true,
            shards: Some(2),
            ..Options::new(self.path("cache.img"), self.path("state"))
        }
    }

    pub(crate) fn open(&self) -> Result<Cache> {
        Cache::open(&self.options()).context("opening the cache")
    }

    /// A volume over the file of this name.
    pub(crate) fn volume(&self, name: &str) -> VolumeOptions {
        VolumeOptions {
            bypass_sequential_bytes: 0,
            ..VolumeOptions::new(name, format!("file:{}", self.path(name).display()))
        }
    }

    /// Cache and volume, the index loaded.
    pub(crate) fn open_with(&self, name: &str) -> Result<(Cache, Volume)> {
        let mut cache = self.open()?;
        let volume = cache.attach(&self.volume(name))?;
        cache.wait_loaded()?;
        Ok((cache, volume))
    }
}

/// What a fresh file's block holds.
pub(crate) fn stamp(block: u64) -> [u8; 4096] {
    let mut bytes = [0; 4096];
    for (word, place) in bytes.chunks_exact_mut(8).enumerate() {
        place.copy_from_slice(&(block << 16 | word as u64).to_le_bytes());
    }
    bytes
}

/// Whatever is needed of pseudorandom numbers (splitmix64).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % end
    }
}

/// Lets the cache keep house for a while.
pub(crate) fn idle(cache: &mut Cache, millis: u64) -> Result<()> {
    cache.poll(Some(Duration::from_millis(millis)), &mut Vec::new())?;
    Ok(())
}
