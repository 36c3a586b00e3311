//! Where exhaustive searches begin, and what may happen in them: each a place where several mechanisms
//! of the engine meet.

use super::class::Class;
use super::moves::{Ask, Crash, Device, End, Move, Place};
use super::setup::{Setup, VolumeSetup};
use super::world::{HOLD_DEVICE, HOLD_WAKES, World};
use cinnabar_engine::bounds::Bounds;
use cinnabar_engine::config::Eviction;
use cinnabar_engine::mutant::Mutants;
use cinnabar_engine::plan::Mode;
use cinnabar_engine::{Config, Phase};
use cinnabar_sim::machine::{CacheSetup, Machine};
use cinnabar_sim::violation::Violation;

/// Blocks of each of the two volumes.
const BLOCKS: u16 = 2;
/// Blocks of the volume whose writes fill the journal.
const BLOCKS_TO_MARK: u16 = 64;

/// A place to begin at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Everything is cached on flash, and the index is there.
    Serving,
    /// A crash has left it so, and the index is being loaded.
    Loading,
    /// A checkpoint is being written, and the journal is about to be rewritten.
    Rebasing,
    /// Another device is to take the place of the one in use, and is being opened.
    Replacing,
}

impl Scene {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Serving, Self::Loading, Self::Rebasing, Self::Replacing];

    /// Its world.
    pub(super) fn setup(self, mutants: Mutants) -> Setup {
        let bounds = Bounds { incarnations: 64, requests: 64, open_pages: 64, ..Bounds::TINY };
        let config = Config {
            eviction: Eviction::Clock,
            probation_blocks: Some(1),
            chunk_age_ns_max: 0,
            bounds,
            mutants,
            ..Config::default()
        };
        let volume = VolumeSetup {
            sectors: u64::from(BLOCKS) * 8,
            align_bytes: 512,
            exclusive: true,
            proof: true,
            mode: Mode::WriteThrough,
        };
        // The search of a rebase needs places for many records.
        let volumes = match self {
            Self::Rebasing => {
                vec![VolumeSetup { sectors: u64::from(BLOCKS_TO_MARK) * 8, ..volume }]
            }
            _ => vec![volume; 2],
        };
        Setup { cache: CacheSetup::single(4 * 255, config), journal_pages: 24, volumes }
    }

    /// What is held in it, so that it ends when a move says so.
    const fn held(self) -> u16 {
        let writes = Class::JournalWrite.bit() | Class::BackendWrite.bit();
        match self {
            Self::Serving => writes | Class::BackendRead.bit() | Class::LogWrite.bit(),
            Self::Loading => writes | Class::CheckpointRead.bit() | HOLD_WAKES,
            Self::Rebasing => Class::JournalWrite.bit() | Class::CacheFlush.bit(),
            Self::Replacing => {
                writes | Class::BumpGeneration.bit() | Class::CacheFlush.bit() | HOLD_DEVICE
            }
        }
    }

    /// Makes the world what the scene begins with.
    pub(super) fn begin(self, world: &mut World) -> Result<(), Violation> {
        world.start(Device::Same)?;
        world.settle()?;
        for volume in 0..world.volumes.len() {
            let place = Place { volume: volume as u8, block: 0, blocks: 255, cut: 0 };
            world.step(Move::Submit(Ask::Read, place))?;
        }
        world.step(Move::Time(1000))?;
        let crash = Move::Crash(Crash { host: false, backends: false, fate: 1 }, Device::Same);
        match self {
            Self::Serving => {}
            Self::Loading => {
                world.step(Move::Stop(Device::Same))?;
                world.hold(Class::CheckpointRead.bit() | HOLD_WAKES);
                world.step(crash)?;
                while !world.phases().has(Phase::LoadPages) {
                    world.complete_some(Class::CheckpointRead)?;
                }
                // All pages but the last.
                for _ in 0..3 {
                    world.complete_some(Class::CheckpointRead)?;
                }
            }
            Self::Rebasing => {
                world.step(Move::Stop(Device::Same))?;
                // The flush of the checkpoint that follows a crash is not answered.
                world.hold(Class::CacheFlush.bit());
                world.release_opening(crash)?;
                world.hold(self.held());
                let mut blocks = 0..BLOCKS_TO_MARK;
                // The second one: the first has moved the tail behind where the checkpoint begins.
                let second = |world: &World| world.machine().cache_counters().journal_rebases > 1;
                while !(second(world) && world.phases().has(Phase::RebaseLast)) {
                    if world.is_held(Class::JournalWrite) {
                        world.complete_some(Class::JournalWrite)?;
                    } else if let Some(block) = blocks.next() {
                        world.step(write(0, block))?;
                    } else {
                        break;
                    }
                }
            }
            Self::Replacing => {
                world.hold(self.held());
                world.step(Move::Replace)?;
            }
        }
        world.hold(self.held());
        Ok(())
    }

    /// What may happen next.
    pub(super) fn enabled(self, world: &World) -> Vec<Move> {
        let mut moves = Vec::new();
        if world.pending.len() < 3 {
            moves.push(write(0, 0));
            if self != Self::Rebasing {
                moves.extend([write(0, 1), write(1, 0), read(0, 0)]);
            }
        }
        for which in 0..world.held.len() {
            moves.push(Move::Complete(which as u8, End::Well));
        }
        if world.wake.is_some_and(|at| at <= world.now) {
            moves.push(Move::Wake);
        }
        if world.waits.is_some() {
            moves.extend([Move::NextOfDevice, Move::DeviceFails]);
        }
        moves
    }
}

const fn place(volume: u8, block: u16) -> Place {
    Place { volume, block, blocks: 1, cut: 0 }
}

const fn write(volume: u8, block: u16) -> Move {
    Move::Submit(Ask::Write { fua: false }, place(volume, block))
}

const fn read(volume: u8, block: u16) -> Move {
    Move::Submit(Ask::Read, place(volume, block))
}
