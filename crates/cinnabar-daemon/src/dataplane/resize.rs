//! Another size of the cache while it serves: `cinnabar cache resize`, and at each start the size that
//! the configuration says.
//!
//! The engines do it ([resize.md](../../../../docs/design/resize.md)); here sizes become segments, and
//! shares become parts of the new size at once: a volume that comes meanwhile gets its own of that. A
//! resize is answered when it has begun; what became of it is in the status.

use super::background::Task;
use super::control::{PendingCommand, failed};
use super::plane::Plane;
use cinnabar_backend::disk::{Disk, DiskError, DiskKind};
use cinnabar_config::units::show_size;
use cinnabar_driver::DevicePhase;
use cinnabar_engine::metadata::superblock::{Geometry, GeometryError, Superblock};
use cinnabar_engine::{Command, Failure, IoError};
use cinnabar_messages::{AnswerTo, CacheConfig, CommandError, CommandErrorKind, SizeStatus};
use std::sync::{Arc, Weak};

/// The size of the device in use.
#[derive(Debug)]
pub(super) struct CacheSize {
    geometry: Geometry,
    /// Segments of each shard: wanted, and those that the last resize left that came to its end.
    segments: u32,
    before: u32,
    /// Not all superblocks say so yet.
    uneven: bool,
    /// Which resize this is.
    number: u64,
    under_way: bool,
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
            before: segments,
            uneven,
            number: 0,
            under_way: false,
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

impl Plane {
    /// Before the device is opened: the size that the configuration says is the one that shares are
    /// parts of. A device that was not made for it keeps its own.
    pub(super) fn plan_size(&mut self, config: &CacheConfig, superblocks: &[Superblock]) {
        let mut size = CacheSize::of(superblocks);
        let kind = self.cache.disk().map_or(DiskKind::File, Disk::kind);
        if let Some(bytes) = configured_size(config, kind) {
            match size.geometry.segments_for(bytes) {
                Ok(segments) => size.segments = segments,
                Err(error) => {
                    let error = wrong_size(&size.geometry, error);
                    tracing::warn!(
                        path = %self.cache.path.display(), reason = %error,
                        "the cache keeps its size (hint: {})", error.hint
                    );
                }
            }
        }
        self.crew.capacity_blocks = size.capacity_blocks();
        self.cache.size = Some(size);
    }

    /// The device is in use: it gets the size that was planned.
    pub(super) fn take_planned_size(&mut self) {
        let Some(size) = &self.cache.size else { return };
        if self.cache.disk().is_some() && (size.uneven || size.segments != size.before) {
            self.begin_resize(size.segments);
        }
    }

    /// An operator wants another size.
    pub(super) fn resize_cache(&mut self, bytes: u64, answer: AnswerTo<()>) {
        let segments = match self.segments_of(bytes) {
            Ok(segments) => segments,
            Err(error) => return drop(answer.send(Err(error))),
        };
        let size = self.cache.size.as_ref().expect("it has a size");
        let grows = segments > size.segments;
        let bytes = size.geometry.used_bytes(segments);
        match self.cache.shared() {
            // A file system may be full, and asking it may take long.
            Some(disk) if grows => {
                let disk = Arc::downgrade(disk);
                self.background.start(Task::AskRoom { disk, bytes, segments, answer });
            }
            _ => {
                self.begin_resize(segments);
                let _ = answer.send(Ok(()));
            }
        }
    }

    /// It is known whether there is room for a cache that grows.
    pub(super) fn room_known(
        &mut self,
        disk: &Weak<Disk>,
        segments: u32,
        result: Result<(), DiskError>,
        answer: AnswerTo<()>,
    ) {
        let result = match result {
            _ if self.stop.is_some() || !self.cache.is(disk) => Err(CommandError::gone()),
            Ok(()) => {
                self.begin_resize(segments);
                Ok(())
            }
            Err(error) => {
                let message = format!("cache device {error}");
                Err(CommandError::new(CommandErrorKind::Limit, message, error.hint()))
            }
        };
        let _ = answer.send(result);
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
        let segments = segments.map_err(|error| wrong_size(&size.geometry, error))?;
        self.check_minimums(size.blocks_of(segments)).map_err(|problem| {
            let hint = "choose a larger size, or lower a share_min";
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
        self.crew.capacity_blocks = size.capacity_blocks();
        self.adopt_shares();
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
        let path = self.cache.path.display();
        match result {
            Ok(()) => {
                size.before = size.segments;
                let bytes = show_size(size.geometry.used_bytes(size.segments));
                tracing::info!(%path, size = bytes, "the cache has another size");
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
                tracing::warn!(%path, reason = why, "the cache keeps its size");
                (size.failed, size.segments) = (why, size.before);
                let capacity_blocks = size.capacity_blocks();
                if self.cache.disk().is_some() {
                    self.crew.capacity_blocks = capacity_blocks;
                }
                self.adopt_shares();
            }
        }
    }

    /// For the status.
    pub(super) fn size_status(&self) -> SizeStatus {
        let (Some(size), Some(_)) = (&self.cache.size, self.cache.disk()) else {
            return SizeStatus::default();
        };
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
pub(super) fn wrong_size(geometry: &Geometry, error: GeometryError) -> CommandError {
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
            "set size_max in the configuration, stop the daemon and remove the file: the next start \
             makes it for that size, and it is cold"
                .to_owned(),
        ),
    };
    CommandError::new(CommandErrorKind::Invalid, message, hint)
}
