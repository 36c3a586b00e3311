//! The cache device and the volumes, as all data threads get them and let go of them.

use super::super::data_thread::DataThread;
use super::super::volume::VolumeIo;
use super::ShardSet;
use cinnabar_backend::Disk;
use cinnabar_engine::units::Instant;
use std::sync::Arc;
use std::time::Duration;

impl ShardSet {
    /// Gives all threads a cache device of this capacity.
    pub(in super::super) fn install_cache(
        &mut self,
        data_thread: &mut DataThread,
        disk: &Arc<Disk>,
        capacity_blocks: u64,
    ) -> rustix::io::Result<()> {
        data_thread.io_table.install_cache(Arc::clone(disk))?;
        for worker in &self.workers {
            let disk = Arc::clone(disk);
            worker.call(move |hands| hands.data_thread.io_table.install_cache(disk))?;
        }
        self.capacity_blocks = capacity_blocks;
        Ok(())
    }

    /// Has all threads let go of the cache device. Engines must not wait for I/O of it.
    pub(in super::super) fn close_cache(&mut self, data_thread: &mut DataThread) {
        data_thread.io_table.close_cache();
        self.workers
            .iter()
            .for_each(|worker| worker.call(|hands| hands.data_thread.io_table.close_cache()));
        self.capacity_blocks = 0;
    }

    /// Has all threads leave the cache device to the kernel.
    pub(in super::super) fn leave_cache(&mut self, data_thread: &mut DataThread) {
        data_thread.io_table.leave_cache();
        self.workers
            .iter()
            .for_each(|worker| worker.call(|hands| hands.data_thread.io_table.leave_cache()));
        self.capacity_blocks = 0;
    }

    /// Has all threads see to it that I/O on the cache device ends, or is given up.
    pub(in super::super) fn hurry_cache(
        &mut self,
        data_thread: &mut DataThread,
        now: Instant,
        bound: Duration,
    ) {
        data_thread.io_table.hurry_cache(now, bound);
        for worker in &self.workers {
            worker.order(move |hands| hands.data_thread.io_table.hurry_cache(now, bound));
        }
    }

    /// Lets the cache device take its time again, if it has no time-out.
    pub(in super::super) fn ease_cache(&mut self, data_thread: &mut DataThread) {
        data_thread.io_table.ease_cache();
        for worker in &self.workers {
            worker.order(|hands| hands.data_thread.io_table.ease_cache());
        }
    }

    /// Gives all threads a volume.
    pub(in super::super) fn install(
        &mut self,
        data_thread: &mut DataThread,
        key: usize,
        io: &Arc<VolumeIo>,
    ) -> rustix::io::Result<()> {
        let mut result = data_thread.io_table.install(key, Arc::clone(io));
        for worker in &self.workers {
            if result.is_ok() {
                let io = Arc::clone(io);
                result = worker.call(move |hands| hands.data_thread.io_table.install(key, io));
            }
        }
        if result.is_err() {
            self.uninstall(data_thread, key);
        }
        result
    }

    /// Has all threads let go of a volume. No I/O of it may be under way.
    pub(in super::super) fn uninstall(&mut self, data_thread: &mut DataThread, key: usize) {
        data_thread.io_table.uninstall(key);
        self.workers
            .iter()
            .for_each(|worker| worker.call(move |hands| hands.data_thread.io_table.uninstall(key)));
    }
}
