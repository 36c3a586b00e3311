//! The two copies of a region's superblock, each by itself.

use super::Source;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::metadata::superblock::{Superblock, SuperblockError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copy {
    /// Zeros: not written since the device was formatted.
    Blank,
    /// Whole.
    Good(Box<Superblock>),
    /// Whole, but another device's, or another region's: it strayed here.
    Stray(Box<Superblock>),
    /// Not one of ours, damaged, or of another version.
    Bad(SuperblockError),
    /// The device could not read it.
    Unreadable,
}

/// Both copies, in the order of their pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblocks {
    /// Page 0 and page 1 of the region.
    pub copies: [Copy; 2],
}

impl Superblocks {
    /// Reads them.
    pub fn read(source: &(impl Source + ?Sized)) -> Self {
        Self { copies: [0, 1].map(|page| read_copy(source, page)) }
    }

    /// The same, believing only those of region `shard` of the device that begins with `first`.
    #[must_use]
    pub fn of(self, first: &Superblock, shard: u32) -> Self {
        let copies = self.copies.map(|copy| match copy {
            Copy::Good(superblock) if !superblock.belongs_to(first, shard) => {
                Copy::Stray(superblock)
            }
            copy => copy,
        });
        Self { copies }
    }

    /// Whether a copy that strayed here is the newest: then a start takes that one, and refuses.
    pub fn outranked(&self) -> bool {
        let newest = self.copies.iter().filter_map(|copy| match copy {
            Copy::Good(superblock) => Some((superblock.sequence, false)),
            Copy::Stray(superblock) => Some((superblock.sequence, true)),
            _ => None,
        });
        newest.max().is_some_and(|(_, stray)| stray)
    }

    /// The one that counts at a start.
    ///
    /// # Errors
    /// Why there is none, as a start would say it.
    pub fn newest(&self) -> Result<&Superblock, SuperblockError> {
        let good = self.copies.iter().filter_map(|copy| match copy {
            Copy::Good(superblock) => Some(&**superblock),
            _ => None,
        });
        let newest =
            good.max_by_key(|superblock| superblock.sequence).ok_or_else(|| self.error())?;
        let newer = self.copies.iter().find_map(|copy| match copy {
            Copy::Bad(error @ SuperblockError::Version { sequence, .. }) => {
                (*sequence > newest.sequence).then_some(*error)
            }
            _ => None,
        });
        newer.map_or(Ok(newest), Err)
    }

    /// Ours beats foreign: one damaged copy of ours is still a sign of ours.
    fn error(&self) -> SuperblockError {
        let errors = || {
            self.copies.iter().map(|copy| match copy {
                Copy::Bad(error) => *error,
                Copy::Unreadable => SuperblockError::Damaged,
                Copy::Blank | Copy::Good(_) | Copy::Stray(_) => SuperblockError::Foreign,
            })
        };
        let version = errors().find(|error| matches!(error, SuperblockError::Version { .. }));
        let damaged = errors().find(|error| *error == SuperblockError::Damaged);
        version.or(damaged).unwrap_or(SuperblockError::Foreign)
    }
}

fn read_copy(source: &(impl Source + ?Sized), page: u64) -> Copy {
    let mut pages = [const { MetaPage::zeroed() }; 2];
    if source.read(page, &mut pages[..1]) > 0 {
        return Copy::Unreadable;
    }
    if pages[0].0.iter().all(|byte| *byte == 0) {
        return Copy::Blank;
    }
    // The engine's decoder takes both copies; the other one is left blank.
    Superblock::decode(&pages).map_or_else(Copy::Bad, |superblock| Copy::Good(Box::new(superblock)))
}
