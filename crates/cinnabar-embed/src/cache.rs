//! The cache as a program sees it.

use crate::Buffer;
use crate::driver::times::DeviceTimes;
use crate::driver::{self, Driver, Origin};
use crate::error::Error;
use crate::options::{NewDevice, Options, VolumeOptions};
use crate::request::{Completion, Request, Volume};
use cinnabar_engine::counters::{CacheCounters, RamBytes, VolumeCounters};
use cinnabar_engine::health::{Health, LoadReport};
use cinnabar_engine::limits::DATA_BYTES_MAX;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::volume::Warmth;
use std::time::{Duration, Instant};

/// Longest piece that the one-liners ask for at a time, in bytes.
const PIECE_BYTES_MAX: u64 = 4 << 20;
const _: () =
    assert!(PIECE_BYTES_MAX <= DATA_BYTES_MAX && PIECE_BYTES_MAX.is_multiple_of(BLOCK_BYTES));

/// A cache on its device, for the thread that opened it.
///
/// Dropped without [`close`](Self::close), it is found as after a crash.
pub struct Cache {
    pub(crate) driver: Driver,
}

/// How a clean end went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloseReport {
    /// The device is marked as clean; `false` where there was none.
    pub clean: bool,
    /// Blocks that the next start will find.
    pub kept_blocks: u64,
}

impl Cache {
    /// Opens a cache: locks the device, formats it if it is new, and begins to load its index. A
    /// device that is lost does not stand in the way unless it is
    /// [`required`](Options::required).
    ///
    /// # Errors
    /// [`Error`], with a hint. Nothing on the device was changed then, unless it failed itself.
    pub fn open(options: &Options) -> Result<Self, Error> {
        driver::open(options).map(|driver| Self { driver })
    }

    /// Opens and locks a volume's file or device and begins to cache it. Waits for the lock for up to
    /// [`lock_wait`](Options::lock_wait); requests under way go on meanwhile.
    ///
    /// # Errors
    /// [`Error`], with a hint; the cache goes on.
    pub fn attach(&mut self, options: &VolumeOptions) -> Result<Volume, Error> {
        self.driver.attach(options)
    }

    /// Reads `into.len()` bytes at `offset`, both multiples of 512.
    ///
    /// # Errors
    /// [`Error`]; what `into` holds is unspecified then.
    pub fn read(&mut self, volume: Volume, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let mut at = offset;
        self.check_whole(volume, offset, into.len() as u64)?;
        for piece in pieces(offset, into) {
            let len = piece.len() as u64;
            if let Some(buffer) = self.driver.ask(volume, Request::Read { offset: at, len })? {
                piece.copy_from_slice(&buffer);
            }
            at += len;
        }
        Ok(())
    }

    /// Writes bytes at `offset`, both multiples of 512. Done when the backend has them; durable
    /// after [`flush`](Self::flush).
    ///
    /// # Errors
    /// [`Error`]; what a failed write leaves in the backend is unknown, as with any disk.
    pub fn write(&mut self, volume: Volume, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check_whole(volume, offset, bytes.len() as u64)?;
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(piece_len(at, rest.len()));
            let data = Buffer::copy_of(at, piece);
            self.driver.ask(volume, Request::Write { offset: at, data, durable: false })?;
            at += piece.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    /// Makes durable, in the backend, every write that was done.
    ///
    /// # Errors
    /// [`Error`]; nothing written since the last flush is known to be durable then.
    pub fn flush(&mut self, volume: Volume) -> Result<(), Error> {
        self.driver.ask(volume, Request::Flush).map(drop)
    }

    /// Gives up bytes that are no longer needed; they read as what they were, or as zeros.
    ///
    /// # Errors
    /// [`Error`].
    pub fn trim(&mut self, volume: Volume, offset: u64, len: u64) -> Result<(), Error> {
        self.driver.ask(volume, Request::Trim { offset, len }).map(drop)
    }

    /// Makes bytes read as zeros.
    ///
    /// # Errors
    /// [`Error`].
    pub fn write_zeroes(&mut self, volume: Volume, offset: u64, len: u64) -> Result<(), Error> {
        self.driver.ask(volume, Request::WriteZeroes { offset, len }).map(drop)
    }

    /// Drops what is cached of bytes that were written past the cache, durably.
    ///
    /// # Errors
    /// [`Error`].
    pub fn invalidate(&mut self, volume: Volume, offset: u64, len: u64) -> Result<(), Error> {
        self.driver.ask(volume, Request::Invalidate { offset, len }).map(drop)
    }

    /// Begins a request; [`poll`](Self::poll) brings its completion under this `tag`. Requests
    /// under way at the same time may be done in any order; overlapping ones, one of them writing,
    /// keep theirs.
    ///
    /// # Errors
    /// [`Error`] for what can't be asked; there will be no completion then.
    pub fn submit(&mut self, volume: Volume, tag: u64, request: Request) -> Result<(), Error> {
        self.driver.submit(volume, Origin::Poll(tag), request)
    }

    /// Appends what is done to `done` and says how many that were. Waits up to `limit` for the
    /// first (zero: not at all; `None`: as long as it takes), and keeps house meanwhile. With
    /// nothing under way it keeps house for all of `limit`, or returns at once if that is `None`.
    ///
    /// # Errors
    /// [`Error::Wait`]: the cache can't be used any more.
    pub fn poll(
        &mut self,
        limit: Option<Duration>,
        done: &mut Vec<Completion>,
    ) -> Result<usize, Error> {
        let until = limit.map(|limit| Instant::now() + limit);
        let mut first = true;
        loop {
            self.driver.act();
            if !first && !self.driver.done.is_empty() {
                break;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let over = left == Some(Duration::ZERO) && !first;
            let nothing = self.driver.done.is_empty() && self.driver.under_way() == 0;
            if over || (limit.is_none() && nothing) {
                break;
            }
            // What the turn has queued starts now, even if something is done already.
            let left = if self.driver.done.is_empty() { left } else { Some(Duration::ZERO) };
            self.driver.wait(left)?;
            first = false;
        }
        let count = self.driver.done.len();
        done.extend(self.driver.done.drain(..));
        Ok(count)
    }

    /// Requests submitted and not yet brought by [`poll`](Self::poll).
    pub fn under_way(&self) -> usize {
        self.driver.under_way() + self.driver.done.len()
    }

    /// Finishes a volume's requests, flushes it, records that nobody wrote it since, and lets go of
    /// its file. Takes some milliseconds.
    ///
    /// # Errors
    /// [`Error`]; the volume is detached all the same, and its blocks are dropped.
    pub fn detach(&mut self, volume: Volume) -> Result<(), Error> {
        self.driver.detach(volume)
    }

    /// The clean end: detaches all volumes, writes out what is only in RAM, marks the device as
    /// clean.
    ///
    /// # Errors
    /// The first [`Error`]; the next start is as after a crash then.
    pub fn close(self) -> Result<CloseReport, Error> {
        self.driver.close()
    }

    /// Waits until the index is loaded, for a caller that wants to start warm, and says what was found.
    /// `None` without a device, or once it is lost. Until then reads of what is cached may go to the backend.
    ///
    /// # Errors
    /// [`Error::Wait`].
    pub fn wait_loaded(&mut self) -> Result<Option<LoadReport>, Error> {
        loop {
            self.driver.act();
            if self.driver.degraded().is_some() {
                return Ok(None);
            }
            if self.driver.loaded.is_some() {
                return Ok(self.driver.loaded);
            }
            self.driver.wait(None)?;
        }
    }

    /// Goes on with another cache device: in place of one that was lost, of none, or of the one in use.
    /// The new one is opened, locked and formatted while requests go on; then the old one is let go
    /// of, its lock included, and the new one begins empty. Durably recorded beside it, in
    /// [`state_dir`](Options::state_dir): what the old one holds of the attached volumes is not believed
    /// any more. Name the new one in [`Options::device`] at the next start.
    ///
    /// Waits for the new device, for as long as it gets on and for no longer than
    /// [`device_timeout`](Options::device_timeout) (30 s if that is zero) where it does not.
    /// Completions of other requests are kept for [`poll`](Self::poll).
    ///
    /// # Errors
    /// [`Error::Device`], [`Error::DeviceSize`], [`Error::DeviceTaken`] or [`Error::HoldsCache`] if the
    /// new one can't be used: nothing has changed then. Any other error may leave the cache without a
    /// device; [`degraded`](Self::degraded) says so, and another call may bring one.
    pub fn replace(&mut self, new: &NewDevice) -> Result<(), Error> {
        self.driver.replace(new)
    }

    /// Lets go of the cache device, its lock included, and goes on uncached. What only it knows of is
    /// lost; nothing that was written is. Having none is no error. A device that does not answer
    /// stays locked until its last operation has ended.
    ///
    /// # Errors
    /// [`Error`]; the device is still in use then.
    pub fn abandon(&mut self) -> Result<(), Error> {
        self.driver.abandon()
    }

    /// Why nothing is cached at the moment; `None` if all is well.
    pub fn degraded(&self) -> Option<String> {
        self.driver.degraded()
    }

    /// How the cache device is.
    pub fn health(&self) -> Health {
        self.driver.engine.health()
    }

    /// What became, at the attach, of the blocks that an earlier run had cached of a volume.
    ///
    /// # Errors
    /// [`Error::NoVolume`].
    pub fn warmth(&self, volume: Volume) -> Result<Warmth, Error> {
        self.driver.look_up(volume).map(|(_, warmth, _)| warmth)
    }

    /// Size of a volume in bytes.
    ///
    /// # Errors
    /// [`Error::NoVolume`].
    pub fn size_bytes(&self, volume: Volume) -> Result<u64, Error> {
        self.driver.look_up(volume).map(|(_, _, size)| size)
    }

    /// Serves all of a volume whose file, device or export has grown; gives its size in bytes, which
    /// is the one it had if nothing has changed. Nothing that is cached is dropped. Waits until the
    /// backend is measured and flushed, [`backend_timeout`](VolumeOptions::backend_timeout) at most;
    /// requests under way go on meanwhile, and their completions are kept for [`poll`](Self::poll).
    /// Requests past the old end are refused until this returns.
    ///
    /// # Errors
    /// [`Error::Shrunk`] if the backend has become smaller, [`Error::OddEnd`] if the volume's size is
    /// not a multiple of 4096; the volume is served as before then. [`Error::Disk`] if the backend
    /// can't be measured in time. [`Error::Failed`] if the engine refuses the size: nothing has changed
    /// then, and another call tries again.
    pub fn resize(&mut self, volume: Volume) -> Result<u64, Error> {
        self.driver.resize(volume)
    }

    /// What was counted of a volume since it was attached.
    ///
    /// # Errors
    /// [`Error::NoVolume`].
    pub fn volume_counters(&self, volume: Volume) -> Result<VolumeCounters, Error> {
        let (id, _, _) = self.driver.look_up(volume)?;
        self.driver.engine.volume_counters(id).ok_or(Error::NoVolume)
    }

    /// What was counted of the cache.
    pub fn counters(&self) -> CacheCounters {
        self.driver.engine.cache_counters()
    }

    /// How long the cache device's operations took.
    pub fn device_times(&self) -> DeviceTimes {
        self.driver.device.times
    }

    /// Segments that the cache device's log has; 0 without a device.
    pub fn segments(&self) -> u64 {
        self.driver.device.segments()
    }

    /// RAM that the cache holds, by part.
    pub fn ram_bytes(&self) -> RamBytes {
        self.driver.engine.ram_bytes()
    }

    /// Refuses a whole range before its first piece is done.
    fn check_whole(&self, volume: Volume, offset: u64, len: u64) -> Result<(), Error> {
        let size = self.size_bytes(volume)?;
        Request::Trim { offset, len }.check(size)
    }
}

/// Bytes of the next piece: as many as go, ending at a block's end.
fn piece_len(offset: u64, left: usize) -> usize {
    left.min((PIECE_BYTES_MAX - offset % BLOCK_BYTES) as usize)
}

/// A long slice in pieces.
fn pieces(offset: u64, mut whole: &mut [u8]) -> Vec<&mut [u8]> {
    let mut at = offset;
    let mut all = Vec::new();
    while !whole.is_empty() {
        let (piece, behind) = whole.split_at_mut(piece_len(at, whole.len()));
        at += piece.len() as u64;
        all.push(piece);
        whole = behind;
    }
    all
}
