//! What others do to a volume's file while no daemon is there.

use super::load::Shared;
use anyhow::{Context, Result};
use e2e::books::Books;
use e2e::rng::Rng;
use e2e::stamps::SECTOR;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The window in which a change time is taken for our own: the heartbeat's period and its grace
/// (`docs/design/durability.md`), counted from the last heartbeat.
const WINDOW: Duration = Duration::from_secs(3);
/// Bytes behind those that guests write, for who meddles.
pub(super) const TAIL_BYTES: u64 = 64 << 10;
const SPOTS: u64 = 40;

/// Something done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meddling {
    /// Written at once, behind everything that guests use: within the window it can't be
    /// distinguished from a late write of the daemon's own.
    SoonInTail,
    /// Another file under the same name, of the same size, with other data here and there.
    Replaced,
    /// The file was made longer.
    Grown,
    /// Written here and there once the window is over.
    Late,
}

/// Does it; `killed` is when the daemon was.
pub(super) fn meddle(
    how: Meddling,
    path: &Path,
    books: &Books,
    shared: &Shared,
    rng: &mut Rng,
    killed: Instant,
) -> Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    // A well-behaved other waits, too, until the dead daemon's last writes have landed.
    flock(&file, FlockOperation::LockExclusive).context("locking the volume's file")?;
    match how {
        Meddling::SoonInTail => {
            let tail = books.sectors() * SECTOR as u64;
            file.write_all_at(&rng.roll().to_le_bytes(), tail)?;
        }
        Meddling::Replaced => {
            let other = path.with_extension("other");
            std::fs::copy(path, &other)?;
            write_here_and_there(&File::options().write(true).open(&other)?, books, shared, rng)?;
            std::fs::rename(&other, path)?;
        }
        Meddling::Grown => file.set_len(file.metadata()?.len() + TAIL_BYTES)?,
        Meddling::Late => {
            let over = WINDOW + Duration::from_millis(500);
            thread::sleep(over.saturating_sub(killed.elapsed()));
            write_here_and_there(&file, books, shared, rng)?;
        }
    }
    Ok(())
}

fn write_here_and_there(file: &File, books: &Books, shared: &Shared, rng: &mut Rng) -> Result<()> {
    for _ in 0..SPOTS {
        let first = rng.below(books.sectors() / 4 - 16);
        let hold = books.hold(first..first + 1 + rng.below(16));
        let version = shared.next_version();
        file.write_all_at(&hold.data(version), hold.offset())?;
        hold.acknowledged(version);
    }
    Ok(())
}
