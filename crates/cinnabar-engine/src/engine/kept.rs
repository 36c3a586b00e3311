//! Blocks that are kept of a volume which is not attached: what they are, hottest first, and where.
//!
//! For another host that serves the volume now. Nothing here changes what the engine does next.

use super::Engine;
use crate::descriptors::Key;
use crate::limits::VOLUME_BLOCKS_MAX;
use crate::mutant::Mutant;
use crate::seam::Payload;
use crate::store::{Index, Place};
use crate::units::BLOCK_BYTES;
use crate::volume::VolumeState;

/// Where to go on in the list of a volume's blocks. The default is its beginning.
///
/// Class 0 is what is in RAM because it was asked for a moment ago; behind it come blocks by how often
/// the eviction saw them used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptCursor {
    /// Below [`CLASSES`](Self::CLASSES).
    pub class: u8,
    /// Slots of the class that were looked at.
    pub slot: u32,
}

impl KeptCursor {
    /// Number of classes: RAM, and a block's references from 3 down to 0.
    pub const CLASSES: u8 = 5;
}

/// A part of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptPage {
    /// Blocks of the volume, all of one class.
    pub blocks: Vec<u64>,
    /// Where to go on; `None`: the class is through.
    pub next: Option<KeptCursor>,
    /// Slots that were looked at.
    pub looked: u32,
}

/// Where a kept block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptBlock {
    /// Was in RAM, and has been copied.
    Copied,
    /// On the cache device, at this byte. What is read there is the block if
    /// [`Payload::checksum`] with this seed gives this sum, and not otherwise: the place may be used
    /// again at any time.
    Flash {
        /// Byte of the device, not of the shard's region.
        offset: u64,
        /// See there.
        seed: u64,
        /// See there.
        checksum: u32,
    },
}

impl<P: Payload> Engine<P> {
    /// The index of a volume of this name that was sealed, so that its blocks are as its proof says.
    fn kept_index(&self, name: &str) -> Option<u16> {
        let anyway = self.config.mutants.is(Mutant::KeptWhileAttached);
        let sealed = |volume: &crate::volume::Volume| {
            (volume.state == VolumeState::Sealed || anyway) && volume.spec.name == name
        };
        let found = self.volumes.iter().position(|volume| volume.as_ref().is_some_and(sealed))?;
        let usable = !self.store.dead && self.store.index == Index::InUse;
        (usable && self.store.holdings[found].alive).then_some(found as u16)
    }

    /// Whether all of a block belongs to the volume. What its cached copy has behind the volume's end is
    /// no more than zeros; a back end that has grown since may hold something there.
    fn is_whole(&self, volume: u16, block: u64) -> bool {
        let known = self.volumes[usize::from(volume)].as_ref();
        let whole = known.map_or(0, |known| known.spec.size_bytes / BLOCK_BYTES);
        block < whole || self.config.mutants.is(Mutant::KeptBehindEnd)
    }

    /// The next whole blocks of a sealed volume, at most `limit` after a look at `looks` slots. `None`:
    /// nothing is kept of such a volume.
    ///
    /// # Panics
    /// If nothing is to be looked at.
    pub fn kept_blocks(
        &self,
        name: &str,
        from: KeptCursor,
        limit: usize,
        looks: u32,
    ) -> Option<KeptPage> {
        assert!(limit > 0 && looks > 0, "there is something to look for");
        let index = self.kept_index(name)?;
        let flash = self.superblock.geometry.slots();
        let (first, end) = match from.class {
            0 => (flash, self.store.slots()),
            _ => (0, flash),
        };
        let refs = (KeptCursor::CLASSES - 1).checked_sub(from.class);
        let start = first.saturating_add(from.slot).min(end);
        let stop = start.saturating_add(looks).min(end);
        let mut page = KeptPage::default();
        for slot in start..stop {
            page.looked = slot - start;
            if page.blocks.len() == limit {
                page.next = Some(KeptCursor { slot: slot - first, ..from });
                return Some(page);
            }
            let Some(key) = self.store.descriptors.key(slot).filter(|key| key.volume == index)
            else {
                continue;
            };
            let is_of_class =
                from.class == 0 || Some(self.store.descriptors.flags(slot).refs()) == refs;
            if is_of_class && self.is_whole(index, key.block) {
                page.blocks.push(key.block);
            }
        }
        page.looked = stop - start;
        page.next = (stop < end).then_some(KeptCursor { slot: stop - first, ..from });
        Some(page)
    }

    /// Where a block of a sealed volume is. One that is in RAM is copied to byte `at` of `into`.
    pub fn kept_block(&self, name: &str, block: u64, (into, at): (&P, u64)) -> Option<KeptBlock> {
        let volume = self.kept_index(name)?;
        if block >= VOLUME_BLOCKS_MAX || !self.is_whole(volume, block) {
            return None;
        }
        let key = Key { volume, block };
        let slot = self.store.find(key)?;
        Some(match self.store.place(slot) {
            Place::Ram(buffer) => {
                into.copy_from(at, self.store.buffers.data(), buffer.at(), BLOCK_BYTES);
                KeptBlock::Copied
            }
            Place::Flash => KeptBlock::Flash {
                offset: self.superblock.region_start() + self.store.log.offset_of(slot),
                seed: self.store.checksum_seed(key),
                checksum: self.store.descriptors.checksum(slot),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::rig::{Nothing, Rig, volume};
    use super::*;
    use crate::config::Config;
    use crate::seam::{Command, Op};
    use crate::units::{ByteSpan, VolumeId};
    use crate::volume::{ProofToken, VolumeSpec};
    use std::collections::BTreeSet;

    const BLOCKS: u64 = 3000;

    fn attach(rig: &mut Rig, name: &str) -> VolumeId {
        let spec = VolumeSpec { size_bytes: BLOCKS * BLOCK_BYTES, ..volume(name) };
        let id = rig.ask(vec![Command::Attach(spec)])[0];
        match rig.answer(id).expect("attached") {
            crate::seam::Answer::Attached { volume, .. } => volume,
            other => panic!("{other:?}"),
        }
    }

    fn read(rig: &mut Rig, volume: VolumeId, block: u64) {
        let span = ByteSpan::new(block * BLOCK_BYTES, BLOCK_BYTES);
        let id = rig.submit(volume, Op::Read { span, data: Nothing });
        rig.answer(id).expect("read");
    }

    fn end(rig: &mut Rig, volume: VolumeId, proof: Option<ProofToken>) {
        for command in [Command::Detach(volume), Command::Seal(volume, proof)] {
            let id = rig.ask(vec![command])[0];
            rig.answer(id).expect("it ends");
        }
    }

    /// All pages, by class.
    fn list(rig: &Rig, name: &str, limit: usize, looks: u32) -> Option<Vec<Vec<u64>>> {
        let mut all = Vec::new();
        for class in 0..KeptCursor::CLASSES {
            let (mut cursor, mut blocks) = (Some(KeptCursor { class, slot: 0 }), Vec::new());
            while let Some(from) = cursor {
                let page = rig.engine.kept_blocks(name, from, limit, looks)?;
                assert!(page.blocks.len() <= limit);
                assert!(page.next.is_none_or(|next| next > from && next.class == class));
                blocks.extend(page.blocks);
                cursor = page.next;
            }
            all.push(blocks);
        }
        Some(all)
    }

    #[test]
    fn what_is_kept_is_listed_once_and_hottest_first() {
        let mut rig = Rig::open_with(Config::default(), 1020);
        let (v, other) = (attach(&mut rig, "v"), attach(&mut rig, "w"));
        for block in 0..600 {
            read(&mut rig, v, block);
            read(&mut rig, other, block + 1000);
        }
        for _ in 0..2 {
            (0..600).filter(|block| block % 7 == 0).for_each(|block| read(&mut rig, v, block));
        }
        let into = (&Nothing, 0);
        assert_eq!(list(&rig, "v", 10, 100), None, "it is attached");
        assert_eq!(rig.engine.kept_block("v", 0, into), None, "it is attached");
        end(&mut rig, v, Some(ProofToken([7; 64])));
        let all = list(&rig, "v", 1000, u32::MAX).expect("it is kept");
        for (limit, looks) in [(1, 1), (3, 1000), (1000, 7)] {
            assert_eq!(list(&rig, "v", limit, looks).as_ref(), Some(&all), "{limit}, {looks}");
        }
        let listed: Vec<u64> = all.iter().flatten().copied().collect();
        let set: BTreeSet<u64> = listed.iter().copied().collect();
        assert_eq!(set.len(), listed.len(), "each once");
        let found: BTreeSet<u64> =
            (0..BLOCKS).filter(|&b| rig.engine.kept_block("v", b, into).is_some()).collect();
        assert_eq!(set, found, "what is listed is there, and all of it");
        assert!(set.len() > 200 && set.iter().all(|block| *block < 600), "{}", set.len());
        // What was used again comes before what was not.
        let hot = |blocks: &[u64]| blocks.iter().filter(|block| *block % 7 == 0).count();
        let (used, rest) = (all[1..4].concat(), &all[4]);
        assert!(!used.is_empty() && hot(&used) == used.len() && hot(rest) == 0, "{all:?}");
        // On the device it is where a read would look for it.
        let geometry = rig.engine.superblock().geometry;
        let at = found.iter().filter_map(|block| match rig.engine.kept_block("v", *block, into) {
            Some(KeptBlock::Flash { offset, .. }) => Some(offset),
            _ => None,
        });
        let at: Vec<u64> = at.collect();
        assert!(!at.is_empty() && at.iter().all(|offset| *offset >= geometry.log * BLOCK_BYTES));
    }

    #[test]
    fn a_block_that_ends_behind_the_volume_is_not_listed() {
        let mut rig = Rig::open_with(Config::default(), 1020);
        let spec = VolumeSpec { size_bytes: 3 * BLOCK_BYTES + 512, ..volume("v") };
        let id = rig.ask(vec![Command::Attach(spec)])[0];
        rig.answer(id).expect("attached");
        let span = ByteSpan::new(0, 3 * BLOCK_BYTES + 512);
        let id = rig.submit(VolumeId(0), Op::Read { span, data: Nothing });
        rig.answer(id).expect("read");
        end(&mut rig, VolumeId(0), Some(ProofToken([7; 64])));
        let mut all = list(&rig, "v", 10, 5000).expect("it is kept").concat();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        let found = |block| rig.engine.kept_block("v", block, (&Nothing, 0)).is_some();
        assert!(found(2) && !found(3));
    }

    #[test]
    fn nothing_is_listed_of_what_is_not_believed() {
        let mut rig = Rig::open_with(Config::default(), 1020);
        let v = attach(&mut rig, "v");
        (0..100).for_each(|block| read(&mut rig, v, block));
        end(&mut rig, v, Some(ProofToken([7; 64])));
        assert!(list(&rig, "v", 10, 100).is_some());
        assert_eq!(list(&rig, "w", 10, 100), None, "no such volume");
        assert_eq!(rig.engine.kept_block("v", u64::MAX, (&Nothing, 0)), None, "no such block");
        let beyond = KeptCursor { class: u8::MAX, slot: u32::MAX };
        let page = rig.engine.kept_blocks("v", beyond, 10, 100).expect("it is kept");
        assert_eq!(page, KeptPage::default(), "a cursor that is none");
        // Its time is over: it is forgotten, or the device is given up.
        let id = rig.ask(vec![Command::Abandon])[0];
        rig.answer(id).expect("it is given up");
        assert_eq!(list(&rig, "v", 10, 100), None);
        assert_eq!(rig.engine.kept_block("v", 5, (&Nothing, 0)), None);
        let mut rig = Rig::open_with(Config::default(), 1020);
        let v = attach(&mut rig, "v");
        (0..100).for_each(|block| read(&mut rig, v, block));
        end(&mut rig, v, Some(ProofToken([7; 64])));
        let id = rig.ask(vec![Command::Forget("v".into())])[0];
        rig.answer(id).expect("it is forgotten");
        assert_eq!(list(&rig, "v", 10, 100), None);
    }
}
