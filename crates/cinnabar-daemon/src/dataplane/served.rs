//! Which data thread serves a volume, and what the first thread asks of it.
//!
//! All sockets of a volume belong to one thread: its guests' requests run there, or go from there to
//! the first thread ([`guests`](super::guests)). Volumes that are reached at one address are served by
//! one thread, which has the listener. With several threads the first one serves none of them, except
//! volumes with `migrate_peer`; a daemon with a write log has its first thread serve them all, for the log is
//! there.

use super::data_thread::{Returned, ThreadMessage};
use super::front::{Caller, Front};
use super::guests::{Forwarded, Late, Names};
use super::plane::DataPlane;
use super::volume::{Volume, VolumeIo, export_of};
use super::worker::WorkerState;
use super::writes::Writes;
use cinnabar_backend::Memory;
use cinnabar_config::messages::{StartError, StartErrorKind, Subject, VolumeConfig};
use cinnabar_config::status::latency::Latencies;
use cinnabar_engine::Failure;
use cinnabar_engine::units::{Instant, VolumeId};
use cinnabar_frontend::{Body, ExportId, nbd::Export};
use std::sync::Arc;

/// What the front end of a volume says of itself.
pub(super) struct Served {
    pub(super) connections: u32,
    /// Requests that the servers have refused themselves.
    pub(super) refused: u64,
    /// Requests that waited for its guests' limits.
    pub(super) guest_waited: u64,
    /// `None`: the first thread has them.
    pub(super) latencies: Option<Latencies>,
    /// That its thread does not answer: nothing else is known then.
    pub(super) silent: Option<String>,
}

impl Front {
    fn served(&self, export: ExportId) -> Served {
        let (connections, refused) = (self.connections(export), self.refused(export));
        let (guest_waited, latencies, silent) = (self.limits.waited(export), None, None);
        Served { connections, refused, guest_waited, latencies, silent }
    }
}

impl DataPlane {
    /// The thread that is to serve a volume.
    pub(super) fn thread_for(&mut self, config: &VolumeConfig) -> Result<usize, StartError> {
        let threads = self.shard_set.threads();
        // One that moves is let go of with all that is under way, by the thread that knows all of it.
        if threads == 1 || !matches!(self.writes, Writes::Off) || config.peer.is_some() {
            return Ok(0);
        }
        // Reads into the guest's memory may still be under way, for a device that hangs.
        let left_behind = (0..threads).find(|thread| self.has_left_behind(*thread, config));
        if let Some(thread) = bound_to(config, left_behind, self.thread_at(config))? {
            return Ok(thread);
        }
        let mut served = vec![0_usize; threads];
        for (_, volume) in &self.volumes {
            served[volume.thread] += 1;
        }
        // The first one has volumes' lives and requests of several shards; no guest is to wait for those.
        Ok((1..threads).rev().min_by_key(|thread| served[*thread]).unwrap_or(0))
    }

    /// Whether a volume that was served here, of this name or with this socket, has left something
    /// behind for which its next guest has to wait.
    fn has_left_behind(&mut self, thread: usize, config: &VolumeConfig) -> bool {
        let Some(path) = &config.vhost_user else { return false };
        let (name, same) = (config.name.clone(), path.clone());
        self.ask_thread(
            thread,
            |front| front.vhost.has_left_behind(&config.name, path),
            move |hands| hands.front.vhost.has_left_behind(&name, &same),
        )
    }

    /// The thread that listens at the NBD address of a volume already.
    pub(super) fn thread_at(&self, config: &VolumeConfig) -> Option<usize> {
        let address = config.nbd.as_ref()?;
        let same = |other: &VolumeConfig| other.nbd.as_ref() == Some(address);
        let found = self.volumes.iter().find(|(_, volume)| same(&volume.config));
        found.map(|(_, volume)| volume.thread).or_else(|| self.absents.thread_at(address))
    }

    /// Has a thread do something between two turns, and waits for what comes of it.
    pub(super) fn ask_thread<T: Send + 'static>(
        &mut self,
        thread: usize,
        here: impl FnOnce(&mut Front) -> T,
        there: impl FnOnce(&mut WorkerState) -> T + Send + 'static,
    ) -> T {
        match thread {
            0 => here(&mut self.front),
            thread => self.shard_set.workers[thread - 1].call(there),
        }
    }

    /// Has the thread of a volume listen for its clients again.
    pub(super) fn listen(&mut self, config: &VolumeConfig, key: usize) -> Result<(), StartError> {
        let Volume { thread, io, .. } = &self.volumes[key];
        let (thread, io) = (*thread, Arc::clone(io));
        self.listen_at(thread, config, key, &io)
    }

    /// Has a thread listen for a volume's clients. What was begun when it fails is for the caller to
    /// remove.
    pub(super) fn listen_at(
        &mut self,
        thread: usize,
        config: &VolumeConfig,
        key: usize,
        io: &Arc<VolumeIo>,
    ) -> Result<(), StartError> {
        let size_bytes = io.disk.size_bytes();
        let (owned, io) = (config.clone(), Arc::clone(io));
        self.ask_thread(
            thread,
            |front| front.listen(config, key, size_bytes),
            move |hands| {
                hands.guests.add(key, io);
                hands.front.listen(&owned, key, size_bytes)
            },
        )
    }

    /// The same of a stand-in, with the words by which clients are turned away.
    pub(super) fn listen_as(
        &mut self,
        thread: usize,
        config: &VolumeConfig,
        export: Export,
        reason: String,
    ) -> Result<(), StartError> {
        let id = export.id;
        let (owned, same, words) = (config.clone(), export.clone(), reason.clone());
        self.ask_thread(
            thread,
            |front| {
                front.listen_as(config, export)?;
                front.nbd.set_unavailable(id, reason);
                Ok(())
            },
            move |hands| {
                hands.front.listen_as(&owned, same)?;
                hands.front.nbd.set_unavailable(id, words);
                Ok(())
            },
        )
    }

    /// Closes a volume to all clients. When this returns, all that they have asked for is at the
    /// shards or here.
    pub(super) fn remove_exports(&mut self, key: usize) {
        self.remove_exports_at(self.volumes[key].thread, key);
    }

    /// The same on the thread that was to serve it.
    pub(super) fn remove_exports_at(&mut self, thread: usize, key: usize) {
        self.ask_thread(
            thread,
            |front| front.remove(export_of(key)),
            move |hands| hands.close(key),
        );
    }

    /// Connections to a volume, of NBD clients and of virtual machines; without any it is closed to all clients at once, so that none comes
    /// before the first thread has taken leave of it.
    pub(super) fn close_if_unused(&mut self, key: usize) -> u32 {
        let count = |front: &Front| front.connections(export_of(key));
        let close = move |hands: &mut WorkerState| {
            let connections = hands.front.connections(export_of(key));
            if connections == 0 {
                hands.close(key);
            }
            connections
        };
        // Nobody comes to the first thread while it does this.
        self.ask_thread(self.volumes[key].thread, |front| count(front), close)
    }

    /// A volume serves from now on: the thread that has its guests may run what they ask for.
    pub(super) fn open_gate(&mut self, key: usize, id: VolumeId) {
        let Volume { thread, io, config, .. } = &self.volumes[key];
        if *thread == 0 {
            return;
        }
        let attachment = io.attachment;
        let Some(names) = self.shard_set.names(id, &config.name, io.disk.size_bytes()) else {
            return;
        };
        self.shard_set.workers[thread - 1]
            .order(move |hands| hands.guests.open(key, attachment, names));
    }

    /// A volume has grown.
    pub(super) fn tell_front_size(&mut self, key: usize, size_bytes: u64) {
        let thread = self.volumes[key].thread;
        self.ask_thread(
            thread,
            |front| front.set_size(export_of(key), size_bytes),
            move |hands| {
                hands.guests.grow(key, size_bytes);
                hands.front.set_size(export_of(key), size_bytes);
            },
        );
    }

    /// The limits of what a volume's guests ask for may have changed.
    pub(super) fn limit_guests(&mut self, key: usize) {
        let (now, export) = (self.data_thread.clock.now(), export_of(key));
        let Volume { thread, config, .. } = &self.volumes[key];
        let owned = config.clone();
        match *thread {
            0 => self.front.limits.set(now, export, &owned),
            thread => self.shard_set.workers[thread - 1]
                .order(move |hands| hands.front.limits.set(now, export, &owned)),
        }
    }

    /// What the front ends of all volumes say, in the order of `keys`, and the memory of other
    /// threads' tables. Nothing is known of those of a thread that does not answer until then.
    pub(super) fn served(&self, keys: &[usize], until: std::time::Instant) -> (Vec<Served>, u64) {
        let own = |key: &usize| self.front.served(export_of(*key));
        let mut all: Vec<Served> = keys.iter().map(own).collect();
        let mut ram_bytes = 0;
        for (thread, worker) in (1..).zip(&self.shard_set.workers) {
            let its = |(_, key): &(usize, &usize)| self.volumes[**key].thread == thread;
            let its: Vec<(usize, usize)> =
                keys.iter().enumerate().filter(its).map(|(at, key)| (at, *key)).collect();
            let places: Vec<usize> = its.iter().map(|(at, _)| *at).collect();
            let said = worker.ask_until(until, move |hands| {
                let one = |(at, key): (usize, usize)| {
                    let latencies = Some(hands.guests.latencies(key));
                    (at, Served { latencies, ..hands.front.served(export_of(key)) })
                };
                let served: Vec<_> = its.into_iter().map(one).collect();
                (served, hands.guests.ram_bytes())
            });
            let Some((served, ram)) = said else {
                for at in places {
                    all[at].silent = worker.silence();
                }
                continue;
            };
            ram_bytes += ram;
            for (at, served) in served {
                all[at] = served;
            }
        }
        (all, ram_bytes)
    }

    /// Guests' requests that other threads have in the engines' hands.
    pub(super) fn under_way_elsewhere(&self) -> usize {
        let count = |hands: &mut WorkerState| hands.guests.under_way();
        self.shard_set.workers.iter().map(|worker| worker.call(count)).sum()
    }

    /// Has all threads end their connections in an orderly way.
    pub(super) fn drain(&mut self) {
        self.front.drain(self.data_thread.clock.now());
        self.drains = self.shard_set.workers.len();
        self.shard_set.workers.iter().for_each(|worker| worker.order(WorkerState::drain));
    }

    /// After [`drain`](Self::drain): all have ended.
    pub(super) fn is_drained(&self) -> bool {
        self.front.is_drained() && self.drains == 0
    }

    /// Answers a guest of the volume of this key.
    pub(super) fn answer(
        &mut self,
        caller: Caller,
        key: usize,
        result: Result<Body<Memory>, Failure>,
    ) {
        let Caller { thread, side, ticket } = caller;
        if thread == 0 {
            self.front.reply(side, ticket, result);
        } else {
            let answer = Returned::Answer { key, side, ticket, result };
            self.data_thread.send(thread, ThreadMessage::Returned(answer));
        }
    }

    /// Every thread has looked at its port: the threads of these requests may tell the engines.
    pub(super) fn tell_overdue_elsewhere(&mut self, overdue: Vec<(usize, Late)>) {
        for (thread, late) in overdue {
            self.data_thread.send(thread, ThreadMessage::Returned(Returned::Late(late)));
        }
    }

    /// Has the requests of volumes that are recorded come by the router, which notes them.
    pub(super) fn mark_recorded(&mut self) {
        for (key, volume) in &self.volumes {
            volume.io.set_recorded(self.recordings.has(key));
        }
    }

    /// A guest's request that its thread has passed on.
    pub(super) fn admit_passed(&mut self, now: Instant, thread: usize, passed: Forwarded) {
        let Forwarded { side, arrived, attachment, request } = passed;
        let caller = Caller { thread, side, ticket: request.ticket };
        let key = request.export.0 as usize;
        // The key may be another volume's by now.
        let known = self.volumes.get(key).is_some_and(|one| one.io.attachment == attachment);
        if known {
            self.admit_one(now, arrived, caller, request);
        } else {
            self.answer(caller, key, Err(Failure::NoVolume));
        }
    }
}

impl super::shard_set::ShardSet {
    /// What a thread has to know to send a volume's requests to the shards itself.
    pub(super) fn names(&self, volume: VolumeId, name: &str, size_bytes: u64) -> Option<Names> {
        let map = *self.map();
        let inner: Option<Vec<VolumeId>> =
            (0..self.shards()).map(|shard| self.inner(volume, shard)).collect();
        Some(Names { map, first: map.first_shard(name), size_bytes, inner: inner? })
    }
}

/// The thread that a volume can be served by alone: the one that has left something of it behind, or the
/// one that listens at its NBD address. It can't be both of two.
fn bound_to(
    config: &VolumeConfig,
    left_behind: Option<usize>,
    listening: Option<usize>,
) -> Result<Option<usize>, StartError> {
    match (left_behind, listening) {
        (Some(left), Some(listening)) if left != listening => {
            let message = format!(
                "reads into its guest's memory are under way on data thread {left}, and its NBD \
                 address is served by data thread {listening}, for others"
            );
            let hint = "give it an address of its own, or wait until the cache device has answered";
            let subject = Subject::Volume(config.name.clone());
            Err(StartError::new(StartErrorKind::AddressInUse, subject, message, hint))
        }
        (left, listening) => Ok(left.or(listening)),
    }
}

#[cfg(test)]
mod tests {
    use super::bound_to;
    use crate::dataplane::tests::rig::Rig;
    use cinnabar_config::messages::{IoMode, StartErrorKind};

    /// It was put on the thread with what was left behind, and could not listen there.
    #[test]
    fn a_volume_that_two_threads_would_have_to_serve_is_refused_with_the_reason() {
        let config = Rig::new(IoMode::Auto, &[]).volume("vm1");
        let bound = |left, listening| bound_to(&config, left, listening);
        assert_eq!(bound(None, None), Ok(None));
        assert_eq!(bound(Some(2), None), Ok(Some(2)));
        assert_eq!(bound(None, Some(1)), Ok(Some(1)));
        assert_eq!(bound(Some(2), Some(2)), Ok(Some(2)));
        let error = bound(Some(2), Some(1)).expect_err("it can't be both");
        assert_eq!(error.kind, StartErrorKind::AddressInUse);
        assert!(error.message.contains("data thread 2"), "{}", error.message);
    }
}
