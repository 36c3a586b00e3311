//! What an I/O table does I/O on: the cache device, and the volumes' backends.

use super::{Io, IoTable, Owner, VolumeIo};
use crate::dataplane::clock::after;
use cinnabar_backend::{Disk, FileId};
use cinnabar_engine::units::Instant;
use std::sync::Arc;
use std::time::Duration;

impl IoTable {
    /// Takes a cache device.
    pub(in super::super) fn install_cache(&mut self, disk: Arc<Disk>) -> rustix::io::Result<()> {
        let file = self.port.register(Arc::clone(&disk))?;
        self.cache = Some((file, disk));
        self.hurried = None;
        Ok(())
    }

    /// Takes a device of the write log, for good.
    pub(in super::super) fn install_log(
        &mut self,
        half: usize,
        disk: Arc<Disk>,
    ) -> rustix::io::Result<()> {
        let file = self.port.register(Arc::clone(&disk))?;
        self.log[half] = Some((file, disk));
        Ok(())
    }

    /// Lets go of the cache device. I/O that the engines have given up is left to the kernel: the
    /// device stays locked until the last of it has ended, and is judged by it no more.
    pub(in super::super) fn close_cache(&mut self) {
        let Some((file, disk)) = self.cache.take() else { return };
        let mut hangs = false;
        for io in self.ios.iter_mut().filter(|io| io.of.file == file) {
            (io.deadline, hangs) = (None, true);
        }
        if hangs {
            self.left.push((file, disk));
        } else {
            self.port.unregister(file);
        }
    }

    /// The same, and no engine waits for what is under way.
    pub(in super::super) fn leave_cache(&mut self) {
        let log = self.log.each_ref().map(|of| of.as_ref().map(|(file, _)| *file));
        let of_cache = |io: &Io| io.volume.is_none() && !log.contains(&Some(io.file));
        for io in self.ios.iter_mut().filter(|io| of_cache(&io.of)) {
            io.of.owner = Owner::Nobody;
        }
        self.close_cache();
    }

    /// A replacement waits for the end of all I/O on the cache device: what has no bound has this one.
    pub(in super::super) fn hurry_cache(&mut self, now: Instant, bound: Duration) {
        let Some((file, _)) = &self.cache else { return };
        if self.cache_timeout.is_zero() {
            self.hurried = Some(bound);
            let due = after(now, bound);
            // Devices that were left have no say: theirs may never end.
            for io in self.ios.iter_mut().filter(|io| io.of.file == *file) {
                io.deadline.get_or_insert(due);
            }
            self.ios.look_by(Some(due));
        }
    }

    /// Nobody waits for it any more.
    pub(in super::super) fn ease_cache(&mut self) {
        if self.hurried.take().is_none() {
            return;
        }
        if let Some((file, _)) = &self.cache {
            for io in self.ios.iter_mut().filter(|io| io.of.file == *file) {
                io.deadline = None;
            }
        }
    }

    /// An I/O on a device that was left has ended: lets go of it if that was the last one.
    pub(super) fn close_left(&mut self, file: FileId) {
        if self.ios.iter().any(|io| io.of.file == file) {
            return;
        }
        if let Some(place) = self.left.iter().position(|left| left.0 == file) {
            self.left.swap_remove(place);
            self.port.unregister(file);
        }
    }

    /// Takes a volume.
    pub(in super::super) fn install(
        &mut self,
        key: usize,
        io: Arc<VolumeIo>,
    ) -> rustix::io::Result<()> {
        let file = self.port.register(Arc::clone(&io.disk))?;
        if self.volumes.len() <= key {
            self.volumes.resize_with(key + 1, || None);
        }
        self.volumes[key] = Some((file, io));
        Ok(())
    }

    /// Lets go of a volume. No I/O of it may be under way.
    pub(in super::super) fn uninstall(&mut self, key: usize) {
        if let Some((file, _)) = self.volumes.get_mut(key).and_then(Option::take) {
            self.port.unregister(file);
        }
    }

    /// The volume whose disk this is.
    pub(in super::super) fn volume_at(&self, file: FileId) -> Option<usize> {
        self.volumes.iter().position(|volume| volume.as_ref().is_some_and(|v| v.0 == file))
    }

    pub(super) fn volume(&self, key: usize) -> &(FileId, Arc<VolumeIo>) {
        self.volumes[key].as_ref().expect("a volume with I/O is installed")
    }
}
