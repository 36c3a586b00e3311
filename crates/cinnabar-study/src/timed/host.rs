//! A host's memory and flash, or the file server's flash: which blocks are where.
//!
//! Changes take no time here; who waits how long is the model's affair.

use super::config::{Architecture, Config, FrameOrder, Placement, WritePolicy};
use super::recency::{DIRTY, IN_FLASH, Recency, Words};
use super::station::Station;
use super::syncer::Syncer;
use std::collections::BTreeMap;

/// Number of the word and of the syncer of a tier.
pub(super) const RAM: usize = 0;
/// See [`RAM`].
pub(super) const FLASH: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Victim {
    pub(super) block: u32,
    pub(super) flags: u32,
}

impl Victim {
    pub(super) fn is_dirty(self) -> bool {
        self.flags & DIRTY != 0
    }
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) words: Words,
    /// RAM, or the frames of RAM and flash of the unified architecture.
    pub(super) ram: Recency<RAM>,
    pub(super) flash: Recency<FLASH>,
    /// Frames of RAM and flash that have never been used, or lost their block to another host.
    free_frames: [u64; 2],
    frames: [u64; 2],
    order: FrameOrder,
    pub(super) device: Station,
    pub(super) syncers: [Option<Syncer>; 2],
    /// Writes in the background under way.
    pub(super) background: u32,
    /// Blocks on their way ahead of being asked for, and who waits for them by now.
    pub(super) fetching: BTreeMap<u32, Vec<u32>>,
}

impl Host {
    /// A host with what is in it.
    pub(super) fn client(config: &Config, words: usize) -> Self {
        let ram = config.scaled(config.ram_blocks);
        let has_flash = config.placement == Placement::Client;
        let flash = if has_flash { config.scaled(config.flash_blocks) } else { 0 };
        let host = match config.architecture {
            Architecture::Unified => Self::new(config, words, ram + flash, 0, [ram, flash]),
            _ => Self::new(config, words, ram, flash, [ram, flash]),
        };
        let ram_syncer = if ram > 0 { Syncer::new(config, config.ram_policy) } else { None };
        let keeps_dirty = flash > 0 && config.architecture != Architecture::Lookaside;
        let flash_syncer =
            if keeps_dirty { Syncer::new(config, config.flash_policy()) } else { None };
        Self { syncers: [ram_syncer, flash_syncer], ..host }
    }

    /// The file server's flash.
    pub(super) fn server(config: &Config, words: usize) -> Self {
        let flash = config.scaled(config.flash_blocks);
        let host = Self::new(config, words, 0, flash, [0, flash]);
        Self { syncers: [None, Syncer::new(config, config.flash_policy())], ..host }
    }

    fn new(config: &Config, words: usize, ram: u64, flash: u64, frames: [u64; 2]) -> Self {
        Self {
            words: vec![[0; 2]; words],
            ram: Recency::new(ram),
            flash: Recency::new(flash),
            free_frames: frames,
            frames,
            order: config.frame_order,
            device: Station::new(config.flash_service),
            syncers: [None, None],
            background: 0,
            fetching: BTreeMap::new(),
        }
    }

    /// Makes room in the tables for a block.
    #[inline]
    pub(super) fn know(&mut self, block: u32) {
        if block as usize >= self.words.len() {
            self.words.resize((block as usize + 1).next_power_of_two(), [0; 2]);
        }
    }

    #[inline]
    pub(super) fn word(&self, tier: usize, block: u32) -> u32 {
        self.words[block as usize][tier]
    }

    /// Puts a block into RAM as the newest, or finds it there; gives who had to leave.
    #[inline]
    pub(super) fn keep_in_ram(&mut self, block: u32) -> Option<Victim> {
        keep(&mut self.ram, &mut self.words, block)
    }

    /// The same for flash.
    #[inline]
    pub(super) fn keep_in_flash(&mut self, block: u32) -> Option<Victim> {
        keep(&mut self.flash, &mut self.words, block)
    }

    /// Puts a block into the frame, of whichever medium, that was used least recently, or finds it;
    /// gives who had to leave. For the unified architecture.
    pub(super) fn keep_in_frame(&mut self, block: u32) -> Option<Victim> {
        if self.words[block as usize][RAM] != 0 {
            self.ram.touch(block, &mut self.words);
            return None;
        }
        if !self.ram.is_full() {
            let flags = self.free_frame();
            self.ram.insert(block, flags, &mut self.words);
            return None;
        }
        let (victim, flags) = self.ram.pop(&mut self.words)?;
        self.ram.insert(block, flags & IN_FLASH, &mut self.words);
        Some(Victim { block: victim, flags })
    }

    fn free_frame(&mut self) -> u32 {
        let [ram, flash] = self.free_frames;
        let in_ram = match self.order {
            FrameOrder::RamFirst => ram > 0,
            // Both lose the same share of their frames at a time.
            FrameOrder::Spread => ram * self.frames[FLASH] >= flash * self.frames[RAM] && ram > 0,
        };
        let tier = if in_ram { RAM } else { FLASH };
        self.free_frames[tier] -= 1;
        if in_ram { 0 } else { IN_FLASH }
    }

    /// Takes out a block wherever it is, whatever it holds; says whether it was anywhere.
    pub(super) fn forget(&mut self, block: u32) -> bool {
        let Some(&[in_ram, in_flash]) = self.words.get(block as usize) else { return false };
        if in_ram != 0 {
            self.ram.remove(block, &mut self.words);
            self.free_frames[if in_ram & IN_FLASH == 0 { RAM } else { FLASH }] += 1;
        }
        if in_flash != 0 {
            self.flash.remove(block, &mut self.words);
        }
        in_ram != 0 || in_flash != 0
    }

    /// Marks a block dirty in a tier, and queues it for the tier's syncer, if it has one.
    #[inline]
    pub(super) fn mark_dirty(&mut self, tier: usize, block: u32) {
        let word = &mut self.words[block as usize][tier];
        debug_assert!(*word != 0, "only what is cached can be dirty");
        if *word & DIRTY == 0 {
            *word |= DIRTY;
            // The frames of the unified architecture share a word, but not a syncer.
            let syncer = if *word & IN_FLASH == 0 { tier } else { FLASH };
            if let Some(syncer) = &mut self.syncers[syncer] {
                syncer.add(block);
            }
        }
    }

    #[inline]
    pub(super) fn mark_clean(&mut self, tier: usize, block: u32) {
        self.words[block as usize][tier] &= !DIRTY;
    }

    /// Takes out all that is in flash, and what is in RAM, too, if so said.
    pub(super) fn empty(&mut self, ram_too: bool) {
        self.flash.clear(&mut self.words);
        let mut kept = Vec::new();
        while let Some((block, flags)) = self.ram.pop(&mut self.words) {
            if ram_too || flags & IN_FLASH != 0 {
                self.free_frames[if flags & IN_FLASH == 0 { RAM } else { FLASH }] += 1;
            } else {
                kept.push((block, flags));
            }
        }
        for (block, flags) in kept {
            self.ram.insert(block, flags, &mut self.words);
        }
    }
}

#[inline]
fn keep<const TIER: usize>(
    tier: &mut Recency<TIER>,
    words: &mut Words,
    block: u32,
) -> Option<Victim> {
    if words[block as usize][TIER] != 0 {
        tier.touch(block, words);
        return None;
    }
    let mut victim = None;
    if tier.is_full() {
        victim = tier.pop(words).map(|(block, flags)| Victim { block, flags });
    }
    tier.insert(block, 0, words);
    victim
}

impl Config {
    /// Whether a written block is dirty in a tier with this policy.
    pub(super) fn keeps_dirty(policy: WritePolicy) -> bool {
        matches!(policy, WritePolicy::Periodic(_) | WritePolicy::Never)
    }
}
