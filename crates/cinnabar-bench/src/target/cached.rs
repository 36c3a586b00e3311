//! Storage with the cache in front of it: the library for in-process use.
//!
//! Called by the target.

use super::error::TargetError;
use super::layout::{Part, UnitSpec, spec_of};
use super::{CacheCounts, LOCK_WAIT, ServerCounts};
use cinnabar_embed::{
    Buffer, Cache, Completion, Endurance, Eviction, Mode, Options, Request, Volume, VolumeCounters,
    VolumeOptions, Warmth,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of buffers that are kept for the next writes: a trace may have thousands of lengths.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// A cache for a benchmark.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// File or device on an SSD; a file is made if there is none.
    pub device: PathBuf,
    /// Size of a file that is to be made, in bytes.
    pub size_bytes: Option<u64>,
    /// Begin with an empty cache, whatever the device holds.
    pub fresh: bool,
    /// Folder for what must be known of volumes outside of the device.
    pub state_dir: PathBuf,
    /// Which blocks earn flash.
    pub eviction: Eviction,
    /// Price of a flash write.
    pub endurance: Endurance,
    /// RAM for blocks that have not earned flash yet, in bytes; `None`: as the cache has it.
    pub probation_bytes: Option<u64>,
    /// Accesses that continue one another for at least this many bytes bypass the cache; 0: never.
    pub bypass_sequential_bytes: u64,
    /// What writes do.
    pub mode: Mode,
}

impl CacheOptions {
    /// The usual on this device: nothing bypasses, as in the benchmark that ours compares with.
    pub fn new(device: impl Into<PathBuf>) -> Self {
        let device = device.into();
        let mut state = device.clone().into_os_string();
        state.push(".state");
        Self {
            device,
            size_bytes: None,
            fresh: false,
            state_dir: state.into(),
            eviction: Eviction::default(),
            endurance: Endurance::default(),
            probation_bytes: None,
            bypass_sequential_bytes: 0,
            mode: Mode::default(),
        }
    }
}

pub(super) struct Cached {
    cache: Cache,
    volumes: Vec<Place>,
    began_empty: bool,
    /// Filled buffers by length, for writes.
    kept: BTreeMap<usize, Vec<Buffer>>,
    kept_bytes: usize,
    done: Vec<Completion>,
    segments: u64,
}

struct Place {
    volume: Volume,
    cached: bool,
}

impl Cached {
    /// Opens the cache and every place; gives their sizes.
    pub(super) fn open(
        units: &[UnitSpec],
        options: &CacheOptions,
    ) -> Result<(Self, Vec<u64>), TargetError> {
        let mut cache = Cache::open(&Options {
            size_bytes: options.size_bytes,
            fresh: options.fresh,
            required: true,
            lock_wait: LOCK_WAIT,
            eviction: options.eviction,
            endurance: options.endurance,
            probation_bytes: options.probation_bytes,
            ..Options::new(&options.device, &options.state_dir)
        })?;
        let (mut volumes, mut sizes) = (Vec::new(), Vec::new());
        for (unit, place, name) in UnitSpec::all(units) {
            // What is wrong with a place is told in the words of the command line.
            spec_of(place)?;
            let volume = cache.attach(&VolumeOptions {
                read_only: unit.read_only,
                mode: if unit.cached { options.mode } else { Mode::PassThrough },
                bypass_sequential_bytes: options.bypass_sequential_bytes,
                // Nobody looks at what is read here; so a device or server, which can't prove that
                // nobody else wrote it, is found warm, too.
                exclusive: true,
                // A model under more load than it can bear takes its time; who drives it gives up.
                backend_timeout: Duration::ZERO,
                ..VolumeOptions::new(name, place)
            })?;
            sizes.push(cache.size_bytes(volume)?);
            volumes.push(Place { volume, cached: unit.cached });
        }
        cache.wait_loaded()?;
        if let Some(reason) = cache.degraded() {
            return Err(TargetError::Degraded(reason));
        }
        let warm = |place: &Place| matches!(cache.warmth(place.volume), Ok(Warmth::Warm { blocks }) if blocks > 0);
        let began_empty = !volumes.iter().any(warm);
        let segments = cache.segments();
        let cached = Self {
            cache,
            volumes,
            began_empty,
            kept: BTreeMap::new(),
            kept_bytes: 0,
            done: Vec::new(),
            segments,
        };
        Ok((cached, sizes))
    }

    pub(super) fn began_empty(&self) -> bool {
        self.began_empty
    }

    pub(super) fn submit(&mut self, tag: u64, write: bool, part: Part) -> Result<(), TargetError> {
        let Part { place, offset, len } = part;
        let request = if write {
            let kept = self.kept.get_mut(&(len as usize)).and_then(Vec::pop);
            self.kept_bytes -= kept.as_ref().map_or(0, |buffer| buffer.len());
            let data = kept.unwrap_or_else(|| {
                let mut buffer = Buffer::new(offset, len);
                buffer.copy_from_slice(&noise(len));
                buffer
            });
            Request::Write { offset, data, durable: false }
        } else {
            Request::Read { offset, len }
        };
        Ok(self.cache.submit(self.volumes[place].volume, tag << 1 | u64::from(write), request)?)
    }

    pub(super) fn poll(
        &mut self,
        limit: Option<Duration>,
        finished: &mut Vec<(u64, Result<(), String>)>,
    ) -> Result<(), TargetError> {
        self.cache.poll(limit, &mut self.done)?;
        for Completion { tag, result } in self.done.drain(..) {
            let write = tag & 1 == 1;
            let result = match result {
                Ok(Some(buffer)) if write => {
                    if self.kept_bytes + buffer.len() <= KEPT_BYTES_MAX {
                        self.kept_bytes += buffer.len();
                        self.kept.entry(buffer.len()).or_default().push(buffer);
                    }
                    Ok(())
                }
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            };
            finished.push((tag >> 1, result));
        }
        Ok(())
    }

    pub(super) fn server_counts(&self, places: impl Iterator<Item = usize>) -> ServerCounts {
        let counters: VolumeCounters =
            places.map(|place| self.counters(&self.volumes[place])).sum();
        ServerCounts {
            reads: counters.backend_reads,
            writes: counters.backend_writes,
            read_bytes: counters.backend_read_bytes,
            write_bytes: counters.backend_write_bytes,
        }
    }

    pub(super) fn counts(&self) -> CacheCounts {
        let cached = self.volumes.iter().filter(|place| place.cached);
        CacheCounts {
            volumes: cached.map(|place| self.counters(place)).sum(),
            cache: self.cache.counters(),
            ram: self.cache.ram_bytes(),
            device: self.cache.device_times(),
            segments: self.segments,
        }
    }

    fn counters(&self, place: &Place) -> VolumeCounters {
        self.cache.volume_counters(place.volume).expect("attached as long as this lives")
    }

    pub(super) fn degraded(&self) -> Option<String> {
        self.cache.degraded()
    }

    pub(super) fn close(self) -> Result<(), TargetError> {
        Ok(self.cache.close().map(drop)?)
    }
}

/// Bytes that nothing can be made of.
pub(super) fn noise(len: u64) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64 ^ len;
    let words = (0..len.div_ceil(8)).flat_map(|_| {
        // Xorshift: quick, and good enough for bytes that nobody looks at.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(len as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_many_lengths_keep_a_bounded_amount() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("disk");
        std::fs::File::create(&path).and_then(|file| file.set_len(1 << 20)).expect("a file");
        let unit = UnitSpec {
            name: "unit".into(),
            places: vec![path.display().to_string()],
            read_only: false,
            cached: true,
        };
        let cache = CacheOptions::new(folder.path().join("cache"));
        let cache = CacheOptions { size_bytes: Some(20 << 20), ..cache };
        let (mut cached, _) = Cached::open(&[unit], &cache).expect("it opens");
        let mut finished = Vec::new();
        for index in 0..80 {
            let len = (1 << 20) - index * 512;
            cached.submit(index, true, Part { place: 0, offset: 0, len }).expect("it is inside");
            while finished.len() as u64 <= index {
                cached.poll(None, &mut finished).expect("it is done");
            }
        }
        assert!(finished.iter().all(|(_, result)| result.is_ok()));
        let kept: usize = cached.kept.values().flatten().map(|buffer| buffer.len()).sum();
        assert_eq!(kept, cached.kept_bytes);
        assert!((1 << 20..=KEPT_BYTES_MAX).contains(&kept), "{kept} bytes");
        cached.close().expect("it closes");
    }
}
