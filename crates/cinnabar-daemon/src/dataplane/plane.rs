//! The loop and what it owns.

use super::absent::Absents;
use super::background::Background;
use super::cache::Cache;
use super::control::PendingCommand;
use super::data_thread::{DataThread, ThreadEvent};
use super::forced::Forced;
use super::front::Front;
use super::inbox::Inbox;
use super::io_table::IoEvent;
use super::proofs::IoName;
use super::qos::Groups;
use super::recordings::Recordings;
use super::replace::Replacing;
use super::requests::{GuestRequest, Overdue, Waiting};
use super::shard_set::ShardSet;
use super::state_folder::StateFolder;
use super::stop::Stop;
use super::volume::Volume;
use super::watch::Watch;
use super::worker::{Worker, WorkerEvent};
use super::writes::Writes;
use cinnabar_backend::Memory;
use cinnabar_backend::disk::OpenOptions;
use cinnabar_backend::generations::Ledger;
use cinnabar_backend::port::{Extent, PortEvent};
use cinnabar_config::messages::pulse::Pulse;
use cinnabar_config::messages::samplers::{SampleStreams, Samplers};
use cinnabar_config::messages::{Message, StartError, StartErrorKind, Subject};
use cinnabar_driver::PendingProofs;
use cinnabar_engine::units::Instant;
use cinnabar_engine::{Payload, Reply};
use cinnabar_frontend::{Body, Buffers, Extent as FoundExtent, ExtentKind, Ready};
use slab::Slab;
use std::any::Any;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Everything of the first data thread.
pub(super) struct DataPlane {
    /// Its own engines and I/O.
    pub(super) data_thread: DataThread,
    /// All engines.
    pub(super) shard_set: ShardSet,
    /// Of the volumes that this thread serves.
    pub(super) front: Front,
    /// After a drain: threads whose guests have not all gone.
    pub(super) drains: usize,
    pub(super) cache: Cache,
    /// Another device is taking its place.
    pub(super) replacing: Option<Replacing>,
    pub(super) volumes: Slab<Volume>,
    /// Those that share a server or device.
    pub(super) groups: Groups,
    /// Keys of the volumes in the order they were added.
    pub(super) order: Vec<usize>,
    /// Guests' requests in the engines' hands.
    pub(super) requests: Slab<GuestRequest>,
    /// Commands in the engines' hands.
    pub(super) awaited: Slab<PendingCommand>,
    /// Answers that needed no engine.
    pub(super) replies: Vec<Reply<Memory>>,
    /// Generations, outside of any cache device.
    pub(super) ledger: Ledger,
    pub(super) state_folder: StateFolder,
    /// Proofs and generations that engines ask for; volumes by their keys.
    pub(super) proofs: PendingProofs<usize, IoName>,
    pub(super) background: Background,
    /// Names of volumes that an operator adds, being opened in the background.
    pub(super) opening: Vec<String>,
    /// Volumes that wait for their back ends.
    pub(super) absents: Absents,
    pub(super) watch: Watch,
    /// Removals by force.
    pub(super) forced: Forced,
    pub(super) open_options: OpenOptions,
    pub(super) messages: mpsc::Receiver<Message>,
    /// From the other data threads.
    pub(super) heard: Inbox<WorkerEvent>,
    /// The same, taken from there before its turn.
    pub(super) heard_early: Vec<WorkerEvent>,
    pub(super) recordings: Recordings,
    /// Targets of volumes by name, as the manager has given them last.
    pub(super) targets: BTreeMap<String, Option<u64>>,
    /// Where requests are told to the manager, if there is one.
    pub(super) samplers: Option<Arc<Samplers>>,
    /// Its end of that, until it is handed out.
    pub(super) streams: Option<SampleStreams>,
    /// Of volumes in write-back mode.
    pub(super) writes: Writes,
    /// Which daemon this is, for the other hosts of volumes that move: drawn at the start, so that no copy of
    /// a state folder has the same.
    pub(super) identity: String,
    /// Claims of back ends that are no files.
    pub(super) claims_dir: PathBuf,
    /// A stop waits for the back ends to have what the log holds.
    pub(super) drain_on_stop: bool,
    /// How long a write is to wait for its back end at most.
    pub(super) rpo: Duration,
    pub(super) stop: Option<Stop>,
    /// How the opening of the device went, at start.
    pub(super) opened: Option<Result<(), cinnabar_engine::Failure>>,
    /// When the first guest's request takes too long.
    pub(super) next_late: Option<Instant>,
    /// Requests whose time is over, until every thread has looked at its port.
    pub(super) overdue: Overdue,
    /// Something looks at the time then.
    pub(super) look_at: Option<Instant>,
    /// Of volumes that are being attached: they wait, for a guest that was there before the daemon
    /// must not notice that it was restarted.
    pub(super) waiting: Vec<Waiting>,
    pub(super) port_events: Vec<PortEvent>,
    pub(super) said: Vec<ThreadEvent>,
}

/// Where the servers' buffers come from; the memory knows its own way back.
pub(super) struct Pool;

impl Buffers<Memory> for Pool {
    fn take(&mut self, blocks: u32) -> Memory {
        Memory::alloc(blocks)
    }

    fn give(&mut self, buffer: Memory) {
        drop(buffer);
    }

    fn guest(
        &mut self,
        keep: Arc<dyn Any + Send + Sync>,
        pieces: &[(*mut u8, usize)],
    ) -> Option<Memory> {
        let &[(start, len)] = pieces else { return None };
        let start = NonNull::new(start)?;
        // SAFETY: the server's promise: aligned, mapped, and kept so by `keep`.
        Some(unsafe { Memory::guest(keep, start, len as u64) })
    }
}

impl DataPlane {
    /// Serves until it is told to stop or can't go on.
    pub(super) fn run(&mut self) -> Result<(), StartError> {
        while !self.is_ended() {
            self.turn()?;
        }
        Ok(())
    }

    /// All data threads, to be asked whether they turn.
    pub(super) fn pulses(&self) -> Vec<Pulse> {
        let heard = self.heard.clone();
        let first =
            Pulse::new(super::FIRST_THREAD, move |beat| heard.push(WorkerEvent::Asked(beat)));
        std::iter::once(first).chain(self.shard_set.workers.iter().map(Worker::pulse)).collect()
    }

    /// One turn: wait, gather, apply, act, send.
    pub(super) fn turn(&mut self) -> Result<(), StartError> {
        self.front.watch(self.data_thread.port());
        let looks = std::mem::take(&mut self.overdue.own);
        if looks {
            self.data_thread.port().look_at_all();
        }
        self.wait(looks)?;
        let now = self.data_thread.clock.now();
        let woken = self.gather(now);
        if self.heard.is_filled() || !self.heard_early.is_empty() {
            self.hear_workers(now)?;
        }
        if looks {
            self.have_looked();
        }
        if woken {
            self.hear(now);
        }
        self.admit(now);
        self.apply(now);
        self.front.flush(now);
        if self.recordings.take_changed() {
            self.mark_recorded();
        }
        self.watch_health();
        self.advance_stop(now);
        self.start_proofs();
        Ok(())
    }

    /// Waits for whatever comes first, until the next thing is due.
    fn wait(&mut self, looks: bool) -> Result<(), StartError> {
        let busy = self.front.has_backlog() || !self.replies.is_empty();
        let busy = busy || self.writes.is_filled() || !self.heard_early.is_empty() || looks;
        let stop = self.stop.as_ref().and_then(Stop::next_deadline);
        let dues = [self.data_thread.deadline(), self.front.deadline()];
        let background = self.background.deadline();
        let own = [stop, self.look_at, self.next_late, self.writes.deadline(), background];
        let due = dues.into_iter().chain(own).flatten().min();
        let until = if busy { Some(Instant::default()) } else { due };
        let Self { data_thread, front, heard, port_events, .. } = self;
        let Front { vhost, .. } = front;
        if data_thread.looks() {
            vhost.set_polling(true);
        }
        // Both are asked in turn, never at once.
        let vhost = std::cell::RefCell::new(vhost);
        let others = |now| heard.is_filled() || vhost.borrow_mut().poll(now);
        let sleeps = || heard.sleeps() | vhost.borrow_mut().set_polling(false);
        data_thread.wait(until, others, sleeps, port_events).map_err(|errno| {
            let message = format!("waiting for I/O failed: {errno}");
            StartError::new(StartErrorKind::Io, Subject::Daemon, message, "see the kernel log")
        })
    }

    /// Makes events and requests of what happened. True if another thread woke it.
    fn gather(&mut self, now: Instant) -> bool {
        let mut woken = false;
        let mut port_events = std::mem::take(&mut self.port_events);
        for event in port_events.drain(..) {
            match event {
                PortEvent::Done(done) => self.data_thread.io_table.io_done(now, done),
                PortEvent::Ready { token, readable, writable, hangup } => {
                    let ready = Ready { read: readable, write: writable, hangup };
                    self.front.on_ready(now, token, ready);
                }
                PortEvent::Woken => woken = true,
                PortEvent::Restarted { file, ranges, first } => {
                    let Some(key) = self.data_thread.io_table.volume_at(file) else { continue };
                    self.restarted_for_log(key);
                    if first {
                        self.server_restarted(now, key, &ranges);
                    } else {
                        self.data_thread.drop_lost(key, &ranges);
                    }
                }
            }
        }
        self.port_events = port_events;
        self.data_thread.look_at_time(now);
        self.data_thread.read_mail(now);
        self.tell_late(now);
        self.background.look(now);
        self.look_at_state_folder(now);
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = None;
            self.drop_lost_ranges(now);
            self.retry_absent(now);
            self.renew_due(now);
            self.look_at_unconfirmed(now);
            self.move_due(now);
            self.look_around(now);
            self.look_at_forced(now);
            self.look_at_new_device(now);
        }
        // Behind that: it says when it is to be looked at again.
        self.look_at_writes(now);
        self.front.look(now);
        woken
    }

    /// Takes what the other data threads have to say.
    fn hear_workers(&mut self, now: Instant) -> Result<(), StartError> {
        let mut all = std::mem::take(&mut self.heard_early);
        self.heard.take(&mut all);
        for heard in all {
            match heard {
                WorkerEvent::DataThread(thread, said) => self.take(now, thread, said),
                WorkerEvent::Restarted(key, ranges) => {
                    self.restarted_for_log(key);
                    self.server_restarted(now, key, &ranges);
                }
                WorkerEvent::Lost(key, ranges) => self.server_restarted(now, key, &ranges),
                WorkerEvent::RestartedToo(key) => self.restarted_for_log(key),
                WorkerEvent::Forwarded(thread, passed) => self.admit_passed(now, thread, passed),
                WorkerEvent::Overdue(thread, ids) => self.overdue_elsewhere(thread, ids),
                WorkerEvent::Drained => self.drains = self.drains.saturating_sub(1),
                WorkerEvent::Looked => self.have_looked(),
                WorkerEvent::Asked(beat) => beat.answer(),
                WorkerEvent::Failed(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Lets the engines here take what there is, and does what they say. Answers to commands may
    /// bring further events; each command has a fixed number of steps, so this ends.
    pub(super) fn apply(&mut self, now: Instant) {
        loop {
            self.apply_writes(now);
            let mut said = std::mem::take(&mut self.said);
            self.data_thread.apply(now, &mut said);
            self.hear_restarts();
            let replies = std::mem::take(&mut self.replies);
            if said.is_empty() && replies.is_empty() && !self.writes.is_filled() {
                self.said = said;
                return;
            }
            // Latencies include what the batch itself took.
            let then = self.data_thread.clock.now();
            for reply in replies {
                self.reply(then, reply);
            }
            for one in said.drain(..) {
                self.take(then, 0, one);
            }
            self.said = said;
        }
    }

    /// Takes what a data thread has to say.
    fn take(&mut self, now: Instant, thread: usize, said: ThreadEvent) {
        let name = |io| IoName { thread, io };
        match said {
            ThreadEvent::Reply(shard, reply) => {
                if let Some(reply) = self.shard_set.reply(&mut self.data_thread, shard, reply) {
                    self.reply(now, reply);
                }
            }
            ThreadEvent::Health(shard, news) => self.shard_set.heard_health(shard, news),
            ThreadEvent::Io(IoEvent::Extents(caller, found)) => {
                self.front.reply(caller.side, caller.ticket, Ok(extents(found)));
            }
            ThreadEvent::Io(IoEvent::Log(half, done)) => self.log_io_done(now, half, done),
            ThreadEvent::Io(IoEvent::Hangs(disk, what)) => self.give_up_hanging_device(&disk, what),
            ThreadEvent::Io(IoEvent::Quiet(key)) => self.forget_if_quiet(key),
            ThreadEvent::Io(IoEvent::Prove(io, key)) => self.proofs.prove(key, name(io)),
            ThreadEvent::Io(IoEvent::BumpGeneration(io, key, held)) => {
                self.start_generation_bump(name(io), key, held);
            }
            ThreadEvent::Io(IoEvent::Done(..) | IoEvent::Overdue(..)) => {
                unreachable!("a lane's own engines have taken it")
            }
        }
    }

    /// Lets go of everything, in order. What still hangs in the kernel is left behind: waiting for
    /// it would keep the process from ending.
    pub(super) fn end(self) {
        let Self {
            data_thread, mut shard_set, stop, front, volumes, cache, ledger, writes, ..
        } = self;
        drop(front);
        shard_set.end();
        drop((volumes, cache, ledger, writes));
        data_thread.end();
        // All is let go of, locks included.
        if let Some(stop) = stop {
            stop.tell();
        }
    }
}

/// What a client is told of what is allocated. Where that can't be told, everything counts as data.
pub(super) fn extents(found: Option<Vec<Extent>>) -> Body<Memory> {
    let kind = |hole| if hole { ExtentKind::Hole } else { ExtentKind::Data };
    let one = |extent: &Extent| FoundExtent { len: extent.len, kind: kind(extent.hole) };
    found.map_or(Body::Done, |found| Body::Extents(found.iter().map(one).collect()))
}
