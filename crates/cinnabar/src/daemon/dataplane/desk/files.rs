//! What a desk does I/O on: the cache device, and the volumes' backends.
//!
//! Called by the owner of the desk.

use super::{Desk, Owner, VolumeIo};
use cinnabar_backend::{Disk, FileId};
use std::sync::Arc;

impl Desk {
    /// Takes a cache device.
    pub(in super::super) fn install_cache(&mut self, disk: Arc<Disk>) -> rustix::io::Result<()> {
        let file = self.port.register(Arc::clone(&disk))?;
        self.cache = Some((file, disk));
        Ok(())
    }

    /// Lets go of the cache device. No I/O of it may be under way.
    pub(in super::super) fn close_cache(&mut self) {
        if let Some((file, _)) = self.cache.take() {
            self.port.unregister(file);
        }
    }

    /// Leaves the cache device to the kernel, with what hangs there.
    pub(in super::super) fn leave_cache(&mut self) {
        self.cache = None;
        for (_, io) in self.ios.iter_mut().filter(|(_, io)| io.volume.is_none()) {
            io.owner = Owner::Nobody;
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
