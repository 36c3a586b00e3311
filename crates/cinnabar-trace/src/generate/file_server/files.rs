//! The files of a file server: their sizes, and where on the volume they are.
//!
//! Sizes follow the Impressions model (N. Agrawal, A. and R. Arpaci-Dusseau, "Generating realistic
//! impressions for file-system benchmarking", FAST 2009): lognormal, with a tail of large files
//! after Pareto. Directories have 10.2 files on average and lie together on the disk; how deep they
//! are nested changes no block, so the tree has no other shape here. A file takes 4 bytes of RAM, a
//! working set 16 bytes for each of its files.

use crate::generate::chance::Chance;
use crate::generate::error::{Error, check_range};
use crate::generate::working_set::{BLOCK_BYTES, BLOCKS_MAX};
use rand_distr::{Distribution, LogNormal, Pareto};

/// Mean of ln(bytes) of the lognormal sizes.
pub const SIZE_MU: f64 = 9.48;
/// Standard deviation of ln(bytes) of the lognormal sizes.
pub const SIZE_SIGMA: f64 = 2.4566;
/// Share of files whose size is lognormal.
pub const BODY_SHARE: f64 = 0.999_94;
/// The least size in the tail, in bytes.
pub const TAIL_BYTES: f64 = 512.0 * 1_048_576.0;
/// The tail's exponent: its mean would be without bound, so a file is cut at a 64th of the total.
pub const TAIL_ALPHA: f64 = 0.91;
/// Files of a directory, on average.
pub const FILES_PER_DIRECTORY: f64 = 10.2;
/// Largest part of the total that one file may be.
pub const FILE_PART_MAX: u64 = 64;
/// Most files: 1 GiB of RAM. 1 TiB has some 3 million.
const FILES_MAX: u64 = 1 << 27;

/// Files one behind the other, from block 0 to the end of the total.
#[derive(Clone, Debug)]
pub(super) struct Files {
    /// Where each file begins, and at last where the last one ends.
    begins: Vec<u64>,
    /// The first file of each directory, and at last the number of files.
    directories: Vec<u32>,
}

impl Files {
    /// Files that fill so many blocks.
    pub(super) fn new(total_blocks: u64, chance: &mut Chance) -> Result<Self, Error> {
        check_range("a total in blocks", total_blocks, FILE_PART_MAX, BLOCKS_MAX)?;
        let body = LogNormal::new(SIZE_MU, SIZE_SIGMA).expect("a finite deviation");
        let tail = Pareto::new(TAIL_BYTES, TAIL_ALPHA).expect("positive parameters");
        let most = total_blocks / FILE_PART_MAX;
        let (mut begins, mut directories) = (vec![0], vec![0]);
        let mut end = 0;
        while end < total_blocks {
            let files = begins.len() as u64;
            check_range("a number of files", files, 1, FILES_MAX)?;
            let bytes: f64 = if chance.with(BODY_SHARE) {
                body.sample(chance.source())
            } else {
                tail.sample(chance.source())
            };
            end = (end + blocks_of(bytes).min(most)).min(total_blocks);
            begins.push(end);
            // Geometric: each file is the last of its directory with the same probability.
            if chance.with(1.0 / FILES_PER_DIRECTORY) || end == total_blocks {
                directories.push(files as u32);
            }
        }
        Ok(Self { begins, directories })
    }

    pub(super) fn count(&self) -> u64 {
        self.begins.len() as u64 - 1
    }

    pub(super) fn directories(&self) -> u64 {
        self.directories.len() as u64 - 1
    }

    /// What is left of the file that a block belongs to, that block included.
    pub(super) fn left(&self, block: u64) -> u64 {
        let next = self.begins.partition_point(|&begin| begin <= block);
        self.begins[next] - block
    }

    /// Whole directories, chosen by chance, until they have so many blocks.
    pub(super) fn working_set(&self, blocks: u64, chance: &mut Chance) -> WorkingFiles {
        let mut chosen = vec![false; self.directories.len() - 1];
        let mut set = WorkingFiles { parts: Vec::new(), blocks: 0 };
        while set.blocks < blocks {
            let directory = chance.below(chosen.len() as u64) as usize;
            if std::mem::replace(&mut chosen[directory], true) {
                continue;
            }
            let from = self.begins[self.directories[directory] as usize];
            let to = self.begins[self.directories[directory + 1] as usize];
            let part = (to - from).min(blocks - set.blocks);
            set.parts.push((set.blocks, from));
            set.blocks += part;
        }
        set
    }
}

/// The blocks of some directories, as if they were one behind the other.
#[derive(Clone, Debug)]
pub(super) struct WorkingFiles {
    /// Where a directory's blocks begin in the set, and where on the volume.
    parts: Vec<(u64, u64)>,
    blocks: u64,
}

impl WorkingFiles {
    /// The n-th block of the set, on the volume.
    pub(super) fn block(&self, nth: u64) -> u64 {
        let place = self.parts.partition_point(|&(begin, _)| begin <= nth);
        let (begin, from) = self.parts[place - 1];
        from + nth - begin
    }

    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }
}

/// Blocks of a file of so many bytes, at least one.
#[expect(clippy::cast_sign_loss, reason = "a size is positive; the cast saturates")]
fn blocks_of(bytes: f64) -> u64 {
    (bytes as u64).div_ceil(BLOCK_BYTES).max(1)
}
