//! Single blocks out of working sets: what Holland's threads ask for, as fast as a simulator takes it.
//!
//! The model behind the target values for Holland, Angelino, Wald and Seltzer, "Flash caching on the
//! storage client" (USENIX ATC 2013): most accesses go to a working set, all of its blocks alike;
//! the rest go to all blocks alike, the working set's among them. Each thread has its own stream of
//! chance, so that what one asks for does not depend on when the others ask: two simulations whose
//! threads are answered at different times see the same requests.

use super::chance::Chance;
use super::error::{Error, check_range, check_share};
use crate::record::Record;

pub const BLOCK_BYTES: u64 = 4096;
/// Most hosts times threads: 32 bytes each.
pub const THREADS_MAX: u32 = 1 << 16;
/// Most blocks: what a [`Record`] can address.
pub const BLOCKS_MAX: u64 = Record::END_BYTES_MAX / BLOCK_BYTES;

/// Who uses which working set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All hosts have one in common, which begins at block 0.
    Shared,
    /// Each host has one of its own; that of host `h` begins at block `h * working_set_blocks`.
    Private,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Number of hosts.
    pub hosts: u32,
    /// Threads of each host.
    pub threads: u32,
    /// Blocks of 4 KiB of a working set.
    pub working_set_blocks: u64,
    /// Blocks of 4 KiB of everything there is.
    pub total_blocks: u64,
    /// Share, 0 to 1, of accesses to any block of the total.
    pub outside_share: f64,
    /// Share, 0 to 1, of writes; independent of where an access goes.
    pub write_share: f64,
    /// Who uses which working set.
    pub sharing: Sharing,
    /// Fixes everything that chance decides.
    pub seed: u64,
}

impl Default for Settings {
    /// The defaults of the paper's slides: 1 host, 8 threads, 60 GiB of 1 TiB, 20 % of accesses outside,
    /// 30 % writes.
    fn default() -> Self {
        Self {
            hosts: 1,
            threads: 8,
            working_set_blocks: (60 << 30) / BLOCK_BYTES,
            total_blocks: (1 << 40) / BLOCK_BYTES,
            outside_share: 0.2,
            write_share: 0.3,
            sharing: Sharing::Shared,
            seed: 1,
        }
    }
}

impl Settings {
    /// Says what can't be.
    ///
    /// # Errors
    /// A number out of range, or working sets larger than the total.
    pub fn check(&self) -> Result<(), Error> {
        check_range("a number of hosts", self.hosts.into(), 1, THREADS_MAX.into())?;
        let threads_max = u64::from(THREADS_MAX / self.hosts);
        check_range("threads a host", self.threads.into(), 1, threads_max)?;
        check_range("a total in blocks", self.total_blocks, 1, BLOCKS_MAX)?;
        check_range("a working set in blocks", self.working_set_blocks, 1, BLOCKS_MAX)?;
        check_share("a share outside the working set", self.outside_share)?;
        check_share("a share of writes", self.write_share)?;
        // Neither factor has more than 40 bits and 16 bits.
        let needed = self.working_set_blocks * u64::from(self.working_sets());
        if needed > self.total_blocks {
            let (parts, whole, there) = ("working sets", "the total", self.total_blocks);
            return Err(Error::Room { parts, needed, whole, there });
        }
        Ok(())
    }

    /// Threads of all hosts; at most [`THREADS_MAX`] if [`Settings::check`] agrees.
    pub const fn threads_of_all(&self) -> u32 {
        self.hosts.saturating_mul(self.threads)
    }

    const fn working_sets(&self) -> u32 {
        match self.sharing {
            Sharing::Shared => 1,
            Sharing::Private => self.hosts,
        }
    }
}

/// One access to one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub host: u32,
    /// Which block of 4 KiB of the total.
    pub block: u64,
    pub write: bool,
    /// Meant for anywhere; it may be in the working set all the same.
    pub outside: bool,
}

/// The threads and what they will ask for.
#[derive(Clone, Debug)]
pub struct WorkingSet {
    settings: Settings,
    /// A bit pattern below this is an access outside.
    outside_below: u64,
    /// A bit pattern below this is a write.
    write_below: u64,
    threads: Vec<Thread>,
}

#[derive(Clone, Debug)]
struct Thread {
    chance: Chance,
    host: u32,
    /// First block of its working set.
    first: u64,
}

impl WorkingSet {
    /// Threads that have asked for nothing yet. Thread `t` is one of host `t / threads`.
    ///
    /// # Errors
    /// As [`Settings::check`].
    pub fn new(settings: Settings) -> Result<Self, Error> {
        settings.check()?;
        let thread = |number: u32| {
            let host = number / settings.threads;
            let first = match settings.sharing {
                Sharing::Shared => 0,
                Sharing::Private => u64::from(host) * settings.working_set_blocks,
            };
            Thread { chance: Chance::new(settings.seed, number.into()), host, first }
        };
        Ok(Self {
            settings,
            outside_below: threshold(settings.outside_share),
            write_below: threshold(settings.write_share),
            threads: (0..settings.threads_of_all()).map(thread).collect(),
        })
    }

    /// What it was made from.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What a thread, counted over all hosts, asks for next.
    ///
    /// # Panics
    /// If there is no such thread.
    pub fn next(&mut self, thread: u32) -> Access {
        let Thread { chance, host, first } = &mut self.threads[thread as usize];
        // Two draws an access: the halves of the first one decide what it is.
        let bits = chance.bits();
        let write = bits >> 32 < self.write_below;
        let outside = bits & HALF < self.outside_below;
        let (start, blocks) = if outside {
            (0, self.settings.total_blocks)
        } else {
            (*first, self.settings.working_set_blocks)
        };
        Access { host: *host, block: start + scaled(chance.bits(), blocks), write, outside }
    }
}

/// The lower half of a draw.
const HALF: u64 = (1 << 32) - 1;

/// How many of the 2^32 patterns of a half are a share: exact to 2^-33.
#[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
fn threshold(share: f64) -> u64 {
    (share * (HALF + 1) as f64).round() as u64
}

/// Evenly below `end`, without a division; at most 2^40 of 2^64 patterns fall unevenly.
const fn scaled(bits: u64, end: u64) -> u64 {
    ((bits as u128 * end as u128) >> 64) as u64
}
