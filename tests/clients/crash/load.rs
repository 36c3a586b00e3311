//! What guests do to a volume until they are stopped or the daemon is gone.
//!
//! Every request is kept in the volume's [`Books`].

use anyhow::{Context, Result};
use e2e::books::{Books, Hold};
use e2e::nbd::{Client, is_gone};
use e2e::rng::Rng;
use e2e::stamps::ZEROS;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// What the connections of all volumes share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The version written last; every write has its own.
    pub(crate) version: AtomicU64,
    /// Blocks that were written or given up, counted before.
    pub(crate) touched_blocks: AtomicU64,
    /// Requests answered.
    pub(crate) answered: AtomicU64,
    /// Says that it is time to go.
    pub(crate) stop: AtomicBool,
}

impl Shared {
    pub(crate) fn next_version(&self) -> u64 {
        self.version.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Whether a client is left to continue with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    There,
    Gone,
}

/// One connection's work: requests of mixed kinds and sizes with a `pause` after each.
///
/// # Errors
/// At the first wrong byte, and when the server refuses or says nothing.
pub(crate) fn run(
    mut client: Client,
    books: &Books,
    shared: &Shared,
    mut rng: Rng,
    pause: Duration,
) -> Result<()> {
    while !shared.stop.load(Ordering::Relaxed) {
        let done = request(&mut client, books, shared, &mut rng);
        match done {
            Ok(Server::There) => shared.answered.fetch_add(1, Ordering::Relaxed),
            Ok(Server::Gone) => return Ok(()),
            Err(error) => return Err(error.context(format!("volume {}", books.volume()))),
        };
        if !pause.is_zero() {
            thread::sleep(pause);
        }
    }
    Ok(())
}

fn request(client: &mut Client, books: &Books, shared: &Shared, rng: &mut Rng) -> Result<Server> {
    let kind = rng.below(100);
    if kind < 3 {
        return answered(client.flush()).map(|(server, ())| server);
    }
    let hold = some_place(books, rng);
    if kind < 48 {
        return read(client, &hold);
    }
    shared.touched_blocks.fetch_add(hold.len() / 4096 + 2, Ordering::Relaxed);
    match kind {
        48..92 => write(client, &hold, shared.next_version(), kind < 55),
        92..96 => {
            hold.trimmed();
            answered(client.trim(hold.offset(), hold.len())).map(|(server, ())| server)
        }
        _ => {
            hold.begin(ZEROS);
            let (server, ()) = answered(client.write_zeroes(hold.offset(), hold.len()))?;
            if server == Server::There {
                hold.acknowledged(ZEROS);
            }
            Ok(server)
        }
    }
}

/// A place of a random size, most often a few blocks, often not on their bounds.
fn some_place<'a>(books: &'a Books, rng: &mut Rng) -> Hold<'a> {
    let sectors = match rng.below(10) {
        0..3 => 8,
        3..6 => 1 + rng.below(24),
        6..9 => 8 * (1 + rng.below(8)),
        _ => 8 * (1 + rng.below(32)),
    };
    // A part of the volume is hot, as it is with guests.
    let reach = if rng.below(4) == 0 { books.sectors() } else { books.sectors() / 4 };
    let first = rng.below(reach - sectors);
    let first = if sectors.is_multiple_of(8) { first / 8 * 8 } else { first };
    books.hold(first..first + sectors)
}

fn write(client: &mut Client, hold: &Hold<'_>, version: u64, durably: bool) -> Result<Server> {
    hold.begin(version);
    let data = hold.data(version);
    let (server, ()) = answered(if durably {
        client.write_durably(hold.offset(), &data)
    } else {
        client.write(hold.offset(), &data)
    })?;
    if server == Server::There {
        hold.acknowledged(version);
    }
    Ok(server)
}

fn read(client: &mut Client, hold: &Hold<'_>) -> Result<Server> {
    let (server, data) = answered(client.read(hold.offset(), hold.len() as usize))?;
    if server == Server::There {
        hold.check(&data)?;
    }
    Ok(server)
}

/// A server that is gone is no error: it was killed.
fn answered<T: Default>(result: Result<T>) -> Result<(Server, T)> {
    match result {
        Ok(value) => Ok((Server::There, value)),
        Err(error) if is_gone(&error) => Ok((Server::Gone, T::default())),
        Err(error) => Err(error),
    }
}

/// Reads a whole volume once, block by block of 64 KiB, and compares it.
///
/// # Errors
/// At the first wrong byte.
pub(crate) fn read_all(client: &mut Client, books: &Books) -> Result<()> {
    const SECTORS: u64 = 128;
    for first in (0..books.sectors()).step_by(SECTORS as usize) {
        let hold = books.hold(first..(first + SECTORS).min(books.sectors()));
        let data = client.read(hold.offset(), hold.len() as usize)?;
        hold.check(&data).context("reading all")?;
    }
    Ok(())
}
