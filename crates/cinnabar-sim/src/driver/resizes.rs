//! The cache gets another size while it serves: larger, smaller, another one before it has the last.
//!
//! A device is formatted for twice the size that a run would have without, and gets sizes between the
//! smallest that a log can do with and all of it. What the superblocks say durably, and what has room
//! on the device, is judged by the medium as well: see `medium/cache_device`.

use crate::driver::commands::Control;
use crate::driver::world::World;
use crate::kinds::{Fault, Path};
use crate::machine::{Factory, Machine};
use crate::stamp::Stamped;
use crate::violation::{Kind, Violation};
use cinnabar_driver::DevicePhase;
use cinnabar_engine::health::Health;
use cinnabar_engine::metadata::superblock::Superblock;
use cinnabar_engine::{Command, Failure, IoError};

/// Fewest segments of a shard.
const SEGMENTS_MIN: u64 = 4;

impl<F: Factory<Stamped>> World<'_, F> {
    /// The operator wants another size; sometimes the same, or one that is refused.
    pub(super) fn resize_cache(&mut self) {
        let sizes = self.sizes();
        let (Some((used, _)), true) = (sizes.first().copied(), self.present) else { return };
        let regions = self.media.cache.superblocks();
        let Ok(first) = Superblock::decode(&regions[0]) else { return };
        let all = u64::from(first.geometry.segments);
        if all <= SEGMENTS_MIN || !self.may_resize() {
            return;
        }
        let segments = match self.resizes.below(6) {
            0 => all,
            1 => SEGMENTS_MIN,
            _ => self.resizes.within(SEGMENTS_MIN..all + 1),
        } as u32;
        let overtakes = self.is_waiting_for(|control| matches!(control, Control::Resize(..)));
        self.count.paths.add_many(Path::ResizeOvertaken, u64::from(overtakes));
        let number = self.number();
        let command = Command::Resize { segments, otherwise: used };
        self.command(Control::Resize(segments, number), command);
        if self.may_crash && self.fuse.is_none() && self.resizes.chance(0.3) {
            self.fuse = Some(self.resizes.below(60));
        }
    }

    /// A driver asks only while its device is in use, and is not to be given up.
    fn may_resize(&self) -> bool {
        let changes = |control: &Control| {
            matches!(control, Control::Abandon | Control::Replace | Control::Close)
        };
        self.device.phase() == DevicePhase::InUse && !self.is_waiting_for(changes)
    }

    /// What each region's superblock says of its size: segments used, and with room.
    fn sizes(&self) -> Vec<(u32, u32)> {
        let regions = self.media.cache.superblocks();
        let sound = regions.iter().filter_map(|copies| Superblock::decode(copies).ok());
        sound.map(|region| (region.segments_used, region.segments_room)).collect()
    }

    /// The machine has answered.
    pub(super) fn resize_answered(
        &mut self,
        segments: u32,
        number: u64,
        result: Result<(), Failure>,
    ) -> Result<(), Violation> {
        let machine = self.machine.as_ref().expect("it has answered");
        let serving = matches!(machine.health(), Health::Serving | Health::Loading { .. });
        let newer = |control: &Control| matches!(control, Control::Resize(_, n) if *n > number);
        let overtaken = self.is_waiting_for(newer);
        let closing = self.is_waiting_for(|control| *control == Control::Close);
        let failed = self.cache_has_failed() || !serving;
        match result {
            Ok(()) if overtaken || failed => Ok(()),
            Ok(()) => self.resized(segments),
            Err(Failure::Limit) => {
                self.count.paths.add(Path::ResizeRefused);
                Ok(())
            }
            Err(Failure::Interrupted) if overtaken || closing => {
                self.count.faults.add_many(Fault::ResizeCutShort, u64::from(closing));
                Ok(())
            }
            Err(Failure::Io(IoError::NoSpace)) => Ok(()),
            // Another one that came later may be answered first: all of them have failed.
            Err(_) if failed || overtaken => {
                self.count.faults.add_many(Fault::ResizeCutShort, u64::from(!serving));
                Ok(())
            }
            Err(failure) => {
                let what = format!("a resize to {segments} segments failed with {failure:?}");
                Err(Violation::new(Kind::WrongReply, what))
            }
        }
    }

    /// The size is durable in every region, and no more of the device has room.
    fn resized(&mut self, segments: u32) -> Result<(), Violation> {
        let sizes = self.sizes();
        let room = self.media.cache.segments_with_room();
        let bad = |why: &str| {
            let what = format!("{why} {segments} segments: {sizes:?}, room of {room:?}");
            Err(Violation::new(Kind::WrongReply, what))
        };
        if sizes.iter().any(|size| *size != (segments, segments)) {
            return bad("a superblock does not say");
        }
        if room.iter().any(|room| *room != segments) {
            return bad("there is not room for just");
        }
        let shrunk = self.last_size.replace(segments).is_none_or(|before| before > segments);
        self.count.paths.add(if shrunk { Path::CacheShrunk } else { Path::CacheGrown });
        Ok(())
    }

    /// A crash, in the middle of a resize or not.
    pub(super) fn count_resize_cut_short(&mut self) {
        let resizing = self.is_waiting_for(|control| matches!(control, Control::Resize(..)));
        self.count.faults.add_many(Fault::ResizeCutShort, u64::from(resizing));
    }

    /// Whether the file system is full just now.
    pub(super) fn is_without_room(&mut self) -> bool {
        let full = self.resizes.chance(0.1);
        self.count.faults.add_many(Fault::NoRoom, u64::from(full));
        full
    }
}
