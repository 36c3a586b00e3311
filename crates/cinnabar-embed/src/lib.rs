//! The cache inside a program of yours: reads and writes of its own file or device go through an
//! SSD, with the same promises as under the daemon. `docs/guide/where-to-put-the-cache.md` says
//! when this is the right place; `examples/own_file.rs` is a whole program.
//!
//! Nothing here starts a thread but for what blocks and is rare (proving a backend once a second
//! while it is written, opening one): a [`Cache`] belongs to one thread, does its I/O with `io_uring`
//! and works only inside its calls. A call that waits serves what was submitted before.
//!
//! ```no_run
//! use cinnabar_embed::{Cache, Options, VolumeOptions};
//!
//! # fn main() -> Result<(), cinnabar_embed::Error> {
//! let mut cache = Cache::open(&Options {
//!     size_bytes: Some(8 << 30),
//!     ..Options::new("/ssd/cache.img", "/var/lib/my-program")
//! })?;
//! let file = cache.attach(&VolumeOptions::new("table", "file:/mnt/nfs/table.db"))?;
//! let mut page = [0; 4096];
//! cache.read(file, 8192, &mut page)?;
//! cache.write(file, 8192, &page)?;
//! cache.flush(file)?;
//! cache.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What to know
//! * **The file is the cache's** while it is attached: opened, locked (`flock`) and written by
//!   nobody else, this program included. What was written behind its back is dropped with
//!   [`Cache::invalidate`].
//! * **A write is done when the backend has it**; it is durable after [`Cache::flush`].
//! * **Many at a time without threads**: [`Cache::submit`] any number up to [`QUEUE_MAX`], and
//!   [`Cache::poll`] what is done. The one-liners do the same for one request.
//! * **Call it now and then**: chunks are written to the SSD, and the proof that nobody else wrote
//!   is renewed, inside of calls. A program that pauses for long calls [`Cache::poll`] about once a
//!   second. One that does not is never served a stale block, but may find its cache cold after a
//!   crash.
//! * **[`Cache::close`] is the clean end.** A cache that is dropped, or whose process dies, is
//!   found as after a crash: warm, without what had not reached the SSD.
//! * **Without the SSD it goes on**, uncached: see [`Cache::degraded`]. A device that is lost is let go
//!   of by itself; [`Cache::replace`] brings another one in while requests go on, and what the old one
//!   held is never believed again, wherever it turns up. Name the new one in [`Options`] from then on.
//!
//! ```no_run
//! # use cinnabar_embed::{Cache, Error, NewDevice};
//! # fn keep_cached(cache: &mut Cache) -> Result<(), Error> {
//! if let Some(reason) = cache.degraded() {
//!     eprintln!("uncached: {reason}");
//!     cache.replace(&NewDevice { size_bytes: Some(8 << 30), ..NewDevice::new("/ssd2/cache.img") })?;
//! }
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]
#![deny(unsafe_code)]

mod buffer;
mod cache;
mod driver;
mod error;
mod options;
mod request;

pub use buffer::Buffer;
pub use cache::{Cache, CloseReport};
pub use driver::times::DeviceTimes;
pub use error::Error;
pub use options::{NewDevice, Options, VolumeOptions};
pub use request::{Completion, QUEUE_MAX, Request, Volume};

pub use cinnabar_backend::port::IoMode;
pub use cinnabar_engine::counters::{CacheCounters, RamBytes, VolumeCounters};
pub use cinnabar_engine::health::{Health, LoadReport, Start};
pub use cinnabar_engine::plan::Mode;
pub use cinnabar_engine::volume::{DropReason, Warmth};
pub use cinnabar_engine::{Endurance, Eviction};
