//! A volume in action: one thread owns its state machine and its pools, takes requests, and moves extents.
//!
//! * `mail`: how other threads talk to it, and what it tells of itself.
//! * `requests`: requests cut at extents, and put together again.
//! * `worker`: the thread. `left`: what a former owner has left.

mod full;
mod left;
mod mail;
mod requests;
mod worker;

pub use mail::Status;

use crate::librados::lock_state::{LockState, SeenLock};
use crate::pools::{OpenError, Place, Wait};
use crate::settings::Settings;
use cinnabar_placement::volume::{self, Volume};
use libc::iovec;
use mail::Mail;
use rustix::io::Errno;
use std::sync::Arc;
use std::thread::JoinHandle;
use worker::Worker;

/// What a request does, in bytes of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read into [`Request::memory`].
    Read,
    Write {
        /// Durable when it ends.
        durable: bool,
    },
    /// Zero, and give the room back if `punch`.
    Zero {
        /// See above.
        punch: bool,
    },
    /// Make durable what has ended before.
    Flush,
}

/// A request of a guest. It owns its memory until [`Request::finish`].
pub trait Request: Send {
    /// What it does.
    fn kind(&self) -> Kind;
    /// First byte in the volume; a multiple of 512.
    fn offset(&self) -> u64;
    /// Bytes; 0 of a flush.
    fn length(&self) -> u64;
    /// As long as the request, for reads and writes. Stays where it is while the request lives, wherever that is.
    fn memory(&self) -> &[iovec];
    /// It has ended; called once.
    fn finish(self: Box<Self>, result: Result<(), Errno>);
}

/// An open volume. Dropping it ends what is under way, and waits for it.
#[derive(Debug)]
pub struct Running {
    mail: Arc<Mail>,
    thread: Option<JoinHandle<()>>,
    identity: [u8; 16],
    epoch: u64,
    changed: u64,
    takings: Option<[u64; 2]>,
    size_bytes: u64,
    align_bytes: u32,
    seen: Option<Arc<SeenLock>>,
}

impl Running {
    /// Takes a volume over and starts its thread. `wait` is asked while another process has it; `lost` is called once,
    /// by the thread, when another host has taken it.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        place: &mut dyn Place,
        settings: Settings,
        wait: &mut dyn FnMut(Wait<'_>) -> bool,
        lost: Box<dyn FnOnce() + Send>,
    ) -> Result<Self, OpenError> {
        let (contents, pools) = place.take_over(wait)?;
        let header = contents.header;
        let copy_bytes_per_s = settings.copy_bytes_per_s;
        let of_volume = volume::Settings { copy_bytes_per_s, ..volume::Settings::default() };
        let volume = Volume::open(header, contents.records, of_volume)
            .map_err(|error| OpenError::Table(error.to_string()))?;
        let thread = |errno| OpenError::Io { during: "starting a thread".into(), errno };
        let mail = Arc::new(Mail::new().map_err(thread)?);
        let (align_bytes, seen, takings) =
            (pools.align_bytes(), pools.seen_lock(), pools.takings());
        let worker = Worker::new(Arc::clone(&mail), volume, pools, settings, lost);
        let builder = std::thread::Builder::new().name("cinnabar-hybrid".into());
        let spawned = builder.spawn(move || worker.run());
        let failed = |error| thread(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN));
        Ok(Self {
            mail,
            thread: Some(spawned.map_err(failed)?),
            identity: header.identity,
            epoch: header.epoch,
            changed: header.changed,
            takings,
            size_bytes: header.geometry.bytes(),
            align_bytes,
            seen,
        })
    }

    /// Takes a request.
    pub fn submit(&self, request: Box<dyn Request>) {
        self.mail.submit(request);
    }

    /// The volume's identity.
    pub fn identity(&self) -> [u8; 16] {
        self.identity
    }

    /// The epoch of this owner: one more than that of the one before.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Epoch of the owner that last changed data otherwise than by writes.
    pub fn changed(&self) -> u64 {
        self.changed
    }

    /// See [`Pools::takings`](crate::pools::Pools::takings).
    pub fn takings(&self) -> Option<[u64; 2]> {
        self.takings
    }

    /// Bytes of the volume.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Multiple of bytes that offsets, lengths and memory should have.
    pub fn align_bytes(&self) -> u32 {
        self.align_bytes
    }

    /// What it does.
    pub fn status(&self) -> Status {
        self.mail.status()
    }

    /// Whether it may be served, as far as is known now.
    pub fn lock_state(&self) -> LockState {
        if self.mail.is_lost() {
            return LockState::Lost;
        }
        self.seen.as_ref().map_or(LockState::Held, |seen| seen.lock_state())
    }

    /// The failure of a flush that sticks.
    pub fn failed_flush(&self) -> Option<Errno> {
        self.mail.failed_flush()
    }

    /// All that no flush has covered is written again.
    pub fn forget_failed_flush(&self) {
        self.mail.forget_failed_flush();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.mail.close();
        if let Some(thread) = self.thread.take() {
            // One that panicked has ended as well.
            let _ended = thread.join();
        }
    }
}
