//! The storage under test: units (an ASU, a volume of a trace) laid over files, devices and exports,
//! with the cache in front of them or without.
//!
//! Called by the benchmarks. Without a cache the I/O goes straight to the port (`direct`), with one
//! through the library for in-process use (`cached`); everything else is the same, so that two runs
//! differ in the cache alone. One thread, its calls are its loop.

mod cached;
mod contents;
mod direct;
mod error;
mod layout;

pub use cached::CacheOptions;
pub use contents::guard;
pub use error::TargetError;
pub use layout::{UnitSpec, is_part};

use cached::Cached;
use cinnabar_embed::{CacheCounters, RamBytes, VolumeCounters};
use direct::Direct;
use layout::Layout;
use slab::Slab;
use std::time::Duration;

/// I/Os under way at most; more wait with whoever submits.
pub const DEPTH_MAX: usize = 1024;
/// Longest wait for another process's lock.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// An I/O on a unit. Offset and length are bytes, multiples of 512, inside the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// The caller's name for it.
    pub tag: u64,
    /// Which unit, as given at the opening.
    pub unit: usize,
    pub write: bool,
    /// First byte.
    pub offset: u64,
    /// Length in bytes, at least 512.
    pub len: u64,
}

/// What an I/O was counted as by the storage behind the cache, or by storage alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Read operations.
    pub reads: u64,
    /// Write operations.
    pub writes: u64,
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
}

/// What a cache was seen to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheCounts {
    /// Of the units that are cached, together.
    pub volumes: VolumeCounters,
    pub cache: CacheCounters,
    pub ram: RamBytes,
    /// Times of the cache device's operations.
    pub device: cinnabar_embed::DeviceTimes,
    /// Segments of the log.
    pub segments: u64,
}

/// Sizes of units in bytes, from opening every place and letting go of it again: for checks that come
/// before anything is made or written.
///
/// # Errors
/// [`TargetError`], with a hint.
pub fn survey(units: &[UnitSpec]) -> Result<Vec<u64>, TargetError> {
    let target = Target::open(units, None)?;
    Ok((0..units.len()).map(|unit| target.size_bytes(unit)).collect())
}

/// Storage under test.
pub struct Target {
    layout: Layout,
    device: Device,
    /// I/Os under way that were split, or not: the parts that are not done.
    under_way: Slab<Parent>,
    finished: Vec<(u64, Result<(), String>)>,
}

struct Parent {
    io: Io,
    parts: u32,
    failure: Option<String>,
}

enum Device {
    Direct(Box<Direct>),
    Cached(Box<Cached>),
}

impl Target {
    /// Opens and locks everything. Nothing is read or written before all of it is there.
    ///
    /// # Errors
    /// [`TargetError`], with a hint.
    pub fn open(units: &[UnitSpec], cache: Option<&CacheOptions>) -> Result<Self, TargetError> {
        layout::check_distinct(units, cache.map(|cache| cache.device.as_path()))?;
        let (device, sizes) = match cache {
            None => {
                let (device, sizes) = Direct::open(units)?;
                (Device::Direct(Box::new(device)), sizes)
            }
            Some(cache) => {
                let (device, sizes) = Cached::open(units, cache)?;
                (Device::Cached(Box::new(device)), sizes)
            }
        };
        let layout = Layout::new(units, &sizes)?;
        Ok(Self { layout, device, under_way: Slab::new(), finished: Vec::new() })
    }

    /// Size of a unit in bytes: a multiple of 4096, or of 512 if it is in one place.
    pub fn size_bytes(&self, unit: usize) -> u64 {
        self.layout.size_bytes(unit)
    }

    /// Places a unit is laid over.
    pub fn places(&self, unit: usize) -> usize {
        self.layout.places(unit)
    }

    /// Whether the cache began empty; `None` without a cache.
    pub fn began_empty(&self) -> Option<bool> {
        match &self.device {
            Device::Direct(_) => None,
            Device::Cached(cached) => Some(cached.began_empty()),
        }
    }

    /// Begins an I/O.
    ///
    /// # Errors
    /// [`TargetError`] if it can't be begun; there will be no completion then.
    ///
    /// # Panics
    /// If it is not inside of its unit, or [`DEPTH_MAX`] are under way.
    pub fn submit(&mut self, io: Io) -> Result<(), TargetError> {
        assert!(self.under_way.len() < DEPTH_MAX, "too many I/Os under way");
        let name = self.under_way.insert(Parent { io, parts: 0, failure: None });
        for part in self.layout.split(io.unit, io.offset, io.len) {
            self.under_way[name].parts += 1;
            let tag = name as u64;
            match &mut self.device {
                Device::Direct(direct) => direct.submit(tag, io.write, part),
                Device::Cached(cached) => cached.submit(tag, io.write, part)?,
            }
        }
        Ok(())
    }

    /// Waits up to `limit` for the first completion (`None`: as long as it takes) and hands over all
    /// there are: the I/O, and what went wrong.
    ///
    /// # Errors
    /// [`TargetError`]: the target can't be used any more.
    pub fn poll(
        &mut self,
        limit: Option<Duration>,
        mut done: impl FnMut(Io, Option<String>),
    ) -> Result<(), TargetError> {
        match &mut self.device {
            Device::Direct(direct) => direct.poll(limit, &mut self.finished)?,
            Device::Cached(cached) => cached.poll(limit, &mut self.finished)?,
        }
        for (name, result) in self.finished.drain(..) {
            let parent = &mut self.under_way[name as usize];
            parent.parts -= 1;
            parent.failure = parent.failure.take().or(result.err());
            if parent.parts == 0 {
                let parent = self.under_way.remove(name as usize);
                done(parent.io, parent.failure);
            }
        }
        Ok(())
    }

    /// I/Os under way.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// What reached the storage of these units so far.
    pub fn server_counts(&self, units: impl Iterator<Item = usize>) -> ServerCounts {
        let places = units.flat_map(|unit| self.layout.places_of(unit));
        match &self.device {
            Device::Direct(direct) => direct.counts(places),
            Device::Cached(cached) => cached.server_counts(places),
        }
    }

    /// What the cache did so far; `None` without one.
    pub fn cache_counts(&self) -> Option<CacheCounts> {
        match &self.device {
            Device::Direct(_) => None,
            Device::Cached(cached) => Some(cached.counts()),
        }
    }

    /// Why the cache is not in use, if it has been given up.
    pub fn degraded(&self) -> Option<String> {
        match &self.device {
            Device::Direct(_) => None,
            Device::Cached(cached) => cached.degraded(),
        }
    }

    /// The clean end: what is under way is finished, the cache is left warm.
    ///
    /// # Errors
    /// [`TargetError`].
    pub fn close(mut self) -> Result<(), TargetError> {
        while self.under_way() > 0 {
            self.poll(None, |_, _| ())?;
        }
        match self.device {
            Device::Direct(_) => Ok(()),
            Device::Cached(cached) => cached.close(),
        }
    }
}

impl std::ops::Sub for ServerCounts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            read_bytes: self.read_bytes - before.read_bytes,
            write_bytes: self.write_bytes - before.write_bytes,
        }
    }
}
