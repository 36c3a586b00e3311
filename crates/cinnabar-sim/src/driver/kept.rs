//! What is kept of a volume that was sealed is what it held then: another host may take it for that.

use crate::driver::world::World;
use crate::machine::{Factory, Machine};
use crate::stamp::{BLOCK_SECTORS, Stamped};
use crate::violation::{Kind, Violation};
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_engine::{KeptBlock, Payload};

impl<F: Factory<Stamped>> World<'_, F> {
    /// A volume has been sealed, or has gone in another way: each block that is listed of it is judged as
    /// a read that begins and ends now.
    pub(super) fn check_kept(&mut self, volume: usize) -> Result<(), Violation> {
        let Some(machine) = &self.machine else { return Ok(()) };
        for kept in machine.kept(&format!("vol{volume}")) {
            let data = match kept.place {
                KeptBlock::Copied => kept.data,
                KeptBlock::Flash { offset, seed, checksum } => {
                    let data = self.media.cache.data(offset / BLOCK_BYTES);
                    // Rotten: each reader sees that.
                    if data.checksum(0, seed) != checksum {
                        continue;
                    }
                    data
                }
            };
            let first = kept.block * BLOCK_SECTORS as u64;
            let end = self.media.backends[volume].sectors();
            let count = end.saturating_sub(first).min(BLOCK_SECTORS as u64);
            if count == 0 {
                let what = "a block beyond the end is kept";
                return Err(Violation::at(Kind::Foreign, volume, first, what));
            }
            let read = self.oracle.read_submitted(volume, first, count);
            self.oracle.read_done(&read, &data.get(0, count as usize))?;
        }
        Ok(())
    }

    /// As long as it is not sealed nothing is listed: it may still change.
    pub(super) fn check_nothing_kept(&self, volume: usize) -> Result<(), Violation> {
        let kept = self.machine.as_ref().map(|machine| machine.kept(&format!("vol{volume}")));
        match kept.as_ref().and_then(|kept| kept.first()) {
            None => Ok(()),
            Some(kept) => {
                let what =
                    format!("vol{volume} is not sealed, and its block {} is listed", kept.block);
                Err(Violation::new(Kind::Warmth, what))
            }
        }
    }
}
