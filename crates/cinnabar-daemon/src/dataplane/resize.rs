//! Another size of the cache while it serves: `cinnabar cache resize`, and at each start the size that
//! the configuration says.
//!
//! The engines do it ([resize.md](../../../../docs/design/resize.md)); here sizes become segments, and
//! shares become parts of the new size at once: a volume that comes meanwhile gets its own of that. A
//! resize is answered when it has begun; what became of it is in the status.

use super::background::Task;
use super::control::{PendingCommand, failed};
use super::plane::DataPlane;
use cinnabar_backend::disk::{Disk, DiskError, DiskKind};
use cinnabar_config::messages::{
    AnswerTo, CacheConfig, CommandError, CommandErrorKind, SizeStatus,
};
use cinnabar_config::units::{show_size, write_size};
use cinnabar_driver::DevicePhase;
use cinnabar_engine::metadata::superblock::{Geometry, GeometryError, Superblock};
use cinnabar_engine::{Command, Failure, IoError};
use std::sync::{Arc, Weak};

/// Questions to a file system that are not answered: each keeps a thread.
const ASKED_MAX: usize = 8;

/// A question to the file system of the cache: whether there is room for it to grow.
pub(super) struct RoomAsked {
    /// The device as it was then.
    pub(super) disk: Weak<Disk>,
    /// The size that is wanted.
    pub(super) bytes: u64,
    /// The last resize that had begun by then: a later one is not overtaken.
    number: u64,
    /// Of the operator; `None`: it is the size that the configuration says.
    answer: Option<AnswerTo<()>>,
}

/// Of shards that could not go back to the size that they had.
const UNEVEN: &str =
    "its parts have different sizes, until the next resize or start gives them the same";

/// The size of the device in use.
#[derive(Debug)]
pub(super) struct CacheSize {
    geometry: Geometry,
    /// Segments of each shard: wanted, and those that the last resize left that came to its end; the
    /// fewest of any shard, which take no room that is not there.
    segments: u32,
    before: u32,
    /// Not all superblocks say so yet.
    uneven: bool,
    /// Which resize this is.
    number: u64,
    under_way: bool,
    /// Questions whether there is room that are not answered yet.
    asked: usize,
    /// Why the last one has failed, or empty.
    failed: String,
}

impl CacheSize {
    /// Of a device whose regions have these superblocks, or all of them that of the first.
    pub(super) fn of(superblocks: &[Superblock]) -> Self {
        let segments = superblocks[0].segments_used;
        let says = |superblock: &Superblock| (superblock.segments_used, superblock.segments_room);
        let uneven = superblocks.iter().any(|superblock| says(superblock) != (segments, segments));
        Self {
            geometry: superblocks[0].geometry,
            segments,
            before: superblocks.iter().map(|s| s.segments_used).min().expect("a region"),
            uneven,
            number: 0,
            under_way: false,
            asked: 0,
            failed: String::new(),
        }
    }

    /// Blocks of data that fit at the size wanted.
    pub(super) fn capacity_blocks(&self) -> u64 {
        self.blocks_of(self.segments)
    }

    /// Bytes of the device at the size wanted.
    pub(super) fn used_bytes(&self) -> u64 {
        self.geometry.used_bytes(self.segments)
    }

    fn blocks_of(&self, segments: u32) -> u64 {
        self.geometry.blocks_of(segments) * u64::from(self.geometry.shards)
    }
}

/// The size that the configuration says for a device of this kind, if it counts: on a block device
/// only beside `size_max`, which earlier versions did not know; they took all of it.
pub(super) fn configured_size(config: &CacheConfig, kind: DiskKind) -> Option<u64> {
    config.size_bytes.filter(|_| kind == DiskKind::File || config.size_max_bytes.is_some())
}

impl DataPlane {
    /// Before the device is opened: the size that the configuration says is the one that shares are
    /// parts of. A device that was not made for it keeps its own.
    pub(super) fn plan_size(&mut self, config: &CacheConfig, superblocks: &[Superblock]) {
        let mut size = CacheSize::of(superblocks);
        let kind = self.cache.disk().map_or(DiskKind::File, Disk::kind);
        let wanted = configured_size(config, kind).map(|bytes| size.geometry.segments_for(bytes));
        match wanted {
            Some(Err(error)) => {
                let error = wrong_size(&size.geometry, kind, error);
                let path = self.cache.path.display();
                tracing::warn!(
                    %path, reason = %error, "the cache keeps its size (hint: {})", error.hint
                );
            }
            Some(Ok(segments)) => {
                size.segments = segments;
                self.warn_of_max(config, &size.geometry, kind);
            }
            None => {}
        }
        self.shard_set.capacity_blocks = size.capacity_blocks();
        self.cache.size = Some(size);
    }

    /// A `size_max` that a device was not made for would be waited for in vain. A block device may be
    /// smaller: then it can't be made for more.
    fn warn_of_max(&self, config: &CacheConfig, geometry: &Geometry, kind: DiskKind) {
        let most = self.cache.disk().filter(|_| kind != DiskKind::File).map(Disk::size_bytes);
        let max = config.size_max_bytes.map(|max| max.min(most.unwrap_or(u64::MAX)));
        if let Some(Err(error @ GeometryError::TooLarge { .. })) =
            max.map(|max| geometry.segments_for(max))
        {
            let error = wrong_size(geometry, kind, error);
            let path = self.cache.path.display();
            tracing::warn!(
                %path, reason = %error, "size_max does not count yet (hint: {})", error.hint
            );
        }
    }

    /// The device is in use: it gets the size that was planned, if there is room.
    pub(super) fn take_planned_size(&mut self) {
        let disk = self.cache.shared().map(Arc::downgrade);
        let (Some(size), Some(disk)) = (&mut self.cache.size, disk) else { return };
        let (segments, before) = (size.segments, size.before);
        if segments > before {
            size.under_way = true;
            return self.ask_room(disk, segments, None);
        }
        if segments < before {
            let (from, to) = (size.geometry.used_bytes(before), size.used_bytes());
            tracing::warn!(
                path = %self.cache.path.display(),
                "the cache shrinks from {} to {} as configured (size), and drops what does not fit \
                 (hint: if that is not meant, `cinnabar cache resize {}` keeps the rest; correct size)",
                show_size(from), show_size(to), write_size(from)
            );
        }
        if size.uneven || segments != before {
            self.begin_resize(segments);
        }
    }

    fn ask_room(&mut self, disk: Weak<Disk>, segments: u32, answer: Option<AnswerTo<()>>) {
        let Some(size) = &mut self.cache.size else { return };
        size.asked += 1;
        let (bytes, number) = (size.geometry.used_bytes(segments), size.number);
        self.background.start(Task::AskRoom(RoomAsked { disk, bytes, number, answer }));
    }

    /// An operator wants another size.
    pub(super) fn resize_cache(&mut self, bytes: u64, answer: AnswerTo<()>) {
        let segments = match self.segments_of(bytes) {
            Ok(segments) => segments,
            Err(error) => return drop(answer.send(Err(error))),
        };
        let size = self.cache.size.as_ref().expect("it has a size");
        // Of one that is under way it is not known what has room.
        let grows = segments > size.segments.min(size.before);
        match self.cache.shared().map(Arc::downgrade) {
            Some(_) if grows && size.asked >= ASKED_MAX => {
                let message = "the file system of the cache does not answer whether it has room";
                let hint = "see the kernel log (dmesg)";
                let _ = answer.send(Err(CommandError::new(CommandErrorKind::Busy, message, hint)));
            }
            // A file system may be full, and asking it may take long.
            Some(disk) if grows => self.ask_room(disk, segments, Some(answer)),
            _ => {
                self.begin_resize(segments);
                let _ = answer.send(Ok(()));
            }
        }
    }

    /// It is known whether there is room for a cache that grows. Much may have happened meanwhile.
    pub(super) fn room_known(&mut self, asked: RoomAsked, result: Result<(), DiskError>) {
        let is_this = self.cache.is(&asked.disk);
        let size = self.cache.size.as_mut().filter(|_| is_this);
        let number = size.map(|size| {
            size.asked -= 1;
            size.number
        });
        let overtaken = number.is_some_and(|number| number != asked.number);
        let leaves = self.cache.life.phase() == DevicePhase::LettingGo;
        let gone = self.stop.is_some() || number.is_none() || leaves;
        let Some(answer) = asked.answer else {
            if !gone && !overtaken {
                self.room_known_at_start(asked.bytes, result);
            }
            return;
        };
        if answer.is_closed() {
            // It was told that this took too long, or does not want to know.
            return;
        }
        let result = if gone {
            Err(CommandError::gone())
        } else if overtaken {
            let hint = "`cinnabar status` shows the size";
            let message = "another resize has taken its place";
            Err(CommandError::new(CommandErrorKind::Busy, message, hint))
        } else {
            let room = result.map_err(|error| {
                let message = format!("cache device {error}");
                CommandError::new(CommandErrorKind::Limit, message, error.hint())
            });
            room.and_then(|()| self.segments_of(asked.bytes))
                .map(|segments| self.begin_resize(segments))
        };
        let _ = answer.send(result);
    }

    /// The same of the size that the configuration says.
    fn room_known_at_start(&mut self, bytes: u64, result: Result<(), DiskError>) {
        let Some(size) = &mut self.cache.size else { return };
        let (segments, before, uneven) = (size.segments, size.before, size.uneven);
        assert_eq!(size.geometry.used_bytes(segments), bytes, "no other resize has come");
        match result {
            Ok(()) => self.begin_resize(segments),
            Err(error) => {
                size.under_way = false;
                if uneven {
                    // For as much as each has there is room.
                    self.begin_resize(before);
                }
                self.keep_size(&error.to_string(), error.hint());
            }
        }
    }

    /// The segments of a size that the cache can have.
    fn segments_of(&self, bytes: u64) -> Result<u32, CommandError> {
        let wrong = |message: &str, hint: &str| {
            Err(CommandError::new(CommandErrorKind::Invalid, message, hint))
        };
        if self.stop.is_some() {
            return Err(CommandError::gone());
        }
        let in_use = self.cache.life.phase() == DevicePhase::InUse && self.replacing.is_none();
        let (Some(size), Some(_), true) = (&self.cache.size, self.cache.disk(), in_use) else {
            return wrong("no cache device is in use", "`cinnabar status` says why");
        };
        let segments = size.geometry.segments_for(bytes);
        let kind = self.cache.disk().map_or(DiskKind::File, Disk::kind);
        let segments = segments.map_err(|error| wrong_size(&size.geometry, kind, error))?;
        self.check_capacity(size.blocks_of(segments)).map_err(|problem| {
            let hint = "choose another size, or change share_min or share_max";
            CommandError::new(CommandErrorKind::Invalid, problem, hint)
        })?;
        Ok(segments)
    }

    fn begin_resize(&mut self, segments: u32) {
        let Some(size) = &mut self.cache.size else { return };
        size.number += 1;
        (size.segments, size.under_way, size.uneven) = (segments, true, false);
        size.failed.clear();
        let (number, otherwise) = (size.number, size.before);
        self.shard_set.capacity_blocks = size.capacity_blocks();
        // Room that is not there yet is nobody's share.
        if segments <= otherwise {
            self.adopt_shares();
        }
        let to = show_size(self.cache.used_bytes());
        tracing::info!(path = %self.cache.path.display(), size = to, "the cache is being resized");
        self.command(PendingCommand::Resize(number), &Command::Resize { segments, otherwise });
    }

    /// The engines have another size, or have kept theirs.
    pub(super) fn resized(&mut self, number: u64, result: Result<(), Failure>) {
        let Some(size) = self.cache.size.as_mut().filter(|size| size.number == number) else {
            // Another one has taken its place.
            return;
        };
        size.under_way = false;
        match result {
            Ok(()) => {
                size.before = size.segments;
                let bytes = show_size(size.geometry.used_bytes(size.segments));
                let path = self.cache.path.display();
                tracing::info!(%path, size = bytes, "the cache has another size");
                self.adopt_shares();
            }
            // A stop: the next start goes on with it.
            Err(Failure::Interrupted) => {}
            Err(failure) => {
                let wanted = show_size(size.geometry.used_bytes(size.segments));
                let why = match failure {
                    Failure::Io(IoError::NoSpace) => {
                        format!("its file system has no room for {wanted}")
                    }
                    Failure::Limit => {
                        format!(
                            "{wanted} is too small for as many volumes with shares of their own"
                        )
                    }
                    failure => failed("resizing the cache", failure).message,
                };
                let why = if self.shard_set.is_uneven() { format!("{why}; {UNEVEN}") } else { why };
                self.keep_size(&why, "see the status, and choose another size");
            }
        }
    }

    /// It could not be done: the size is the one before.
    fn keep_size(&mut self, why: &str, hint: &str) {
        let Some(size) = &mut self.cache.size else { return };
        why.clone_into(&mut size.failed);
        size.segments = size.before;
        let capacity_blocks = size.capacity_blocks();
        let (path, kept) = (self.cache.path.display(), show_size(self.cache.used_bytes()));
        tracing::warn!(%path, reason = why, size = kept, "the cache keeps its size (hint: {hint})");
        if self.cache.disk().is_some() {
            self.shard_set.capacity_blocks = capacity_blocks;
        }
        self.adopt_shares();
    }

    pub(super) fn size_status(&self) -> SizeStatus {
        let Some(size) = &self.cache.size else { return SizeStatus::default() };
        if self.cache.disk().is_none() {
            // It may have been lost because of that, or amid a resize.
            return SizeStatus { failed: size.failed.clone(), ..SizeStatus::default() };
        }
        let resizing = size.under_way.then(|| size.geometry.used_bytes(size.segments));
        let now = if size.under_way { size.before } else { size.segments };
        SizeStatus {
            bytes: size.geometry.used_bytes(now),
            bytes_max: size.geometry.device_bytes(),
            blocks_max: size.blocks_of(size.geometry.segments),
            resizing_to: resizing,
            failed: size.failed.clone(),
        }
    }
}

/// A size that the device can't have, in an operator's words.
fn wrong_size(geometry: &Geometry, kind: DiskKind, error: GeometryError) -> CommandError {
    let (message, hint) = match error {
        GeometryError::TooSmall { got, min } => (
            format!("{} is too small for this cache", show_size(got)),
            format!("choose {} or more", show_size(min)),
        ),
        GeometryError::TooLarge { got, .. } => (
            format!(
                "the cache device was made for at most {}, which is less than {}",
                show_size(geometry.device_bytes()),
                show_size(got)
            ),
            match kind {
                DiskKind::File => {
                    "size_max of the configuration counts when the file is made: set it, stop the daemon \
                     and remove the file; the next start makes it for that size, and it is cold"
                }
                _ => {
                    "size_max of the configuration counts when the device is formatted: set it, stop the \
                     daemon and empty the device (`blkdiscard -z DEVICE`); the next start formats it \
                     for that size, and it is cold"
                }
            }
            .to_owned(),
        ),
    };
    CommandError::new(CommandErrorKind::Invalid, message, hint)
}
