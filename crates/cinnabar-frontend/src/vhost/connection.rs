//! One front-end: its socket, what it has set up, what is under way for it.

mod messages;
mod requests;

pub(super) use messages::After;
pub(super) use requests::{Taken, Turn};

use super::budget::Account;
use super::channel::Channel;
use super::device::feature;
use super::export::Export;
use super::inflight::Inflight;
use super::limits::MEMORY_BYTES_MAX;
use super::log::Log;
use super::memory::{GuestMemory, Marked};
use super::queue::{Queue, Running};
use super::reason::DisconnectReason;
use crate::load::Load;
use crate::peer::Peer;
use crate::request::ExportId;
use cinnabar_engine::seam::units::Instant;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::net::RecvFlags;
use smallvec::SmallVec;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Why no further message is taken for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// A queue stops: its base is to be reported when its requests are done.
    Stop(u16),
    /// The driver switched write-back off: what was written so far is being made durable. To be
    /// acknowledged then, if that was asked for.
    Flush {
        /// The kind of the message, if an answer is wanted.
        answer: Option<u32>,
    },
    /// All memory is marked in a log that came late. To be acknowledged then, if that was asked for.
    Mark {
        /// How far it has come.
        marked: Marked,
        /// The kind of the message, if an answer is wanted.
        answer: Option<u32>,
    },
}

/// One front-end.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) channel: Channel,
    /// Name of its socket among the watches.
    pub(super) watch: u64,
    pub(super) peer: Peer,
    pub(super) export: ExportId,
    /// Key of the export's entry in the server's `lives`.
    pub(super) life: u64,
    pub(super) queues: Vec<Queue>,
    /// What its requests hold.
    pub(super) load: Load,
    /// The queue that has waited longest for a buffer; the others wait behind it.
    pub(super) waiter: Option<u16>,
    /// Changes under way that are not durable when they are answered.
    pub(super) volatile: u32,
    /// The volume is to be flushed when there are no such changes under way any more.
    pub(super) flush_due: bool,
    /// Since when it waits, and for what.
    pub(super) waiting: Option<(Waiting, Instant)>,
    /// An earlier connection's reads may still write to the same guest's memory: nothing is taken
    /// before they are over.
    pub(super) held: bool,
    /// It is to be closed when everything taken was given back.
    pub(super) closing: Option<DisconnectReason>,
    /// What the loop watches its socket for: reading, writing.
    pub(super) watched: (bool, bool),
    /// Already in the server's list of connections with something to send or give back.
    pub(super) in_dirty: bool,
    /// Already in its list of connections with unread messages.
    pub(super) in_backlog: bool,
    /// Features the driver has taken.
    features: u64,
    protocol_features: u64,
    memory: Arc<GuestMemory>,
    /// Most bytes of guest memory.
    memory_bytes_max: u64,
    /// What its mappings are charged to.
    account: Arc<Account>,
    inflight: Option<Inflight>,
    /// The log of dirty pages, kept while nothing is logged, too.
    log: Option<Arc<Log>>,
    /// To be signalled when something was marked.
    log_call: Option<Arc<OwnedFd>>,
    /// Rings ran while there was something to be logged, and no log.
    unlogged: bool,
    /// The driver's choice; write-back until it says otherwise.
    writeback: bool,
}

impl Connection {
    pub(super) fn new(
        fd: OwnedFd,
        export: &Export,
        life: u64,
        account: &Arc<Account>,
        held: bool,
    ) -> Self {
        account.enter();
        let peer = Peer::of_unix(fd.as_fd());
        let queues = std::iter::repeat_with(Queue::default);
        Self {
            channel: Channel::new(fd),
            watch: 0,
            peer,
            export: export.id,
            life,
            queues: queues.take(usize::from(export.queues_max)).collect(),
            load: Load::default(),
            waiter: None,
            volatile: 0,
            flush_due: false,
            waiting: None,
            held,
            closing: None,
            watched: (true, false),
            in_dirty: false,
            in_backlog: false,
            features: 0,
            protocol_features: 0,
            memory: Arc::default(),
            memory_bytes_max: export.memory_bytes_max.min(MEMORY_BYTES_MAX),
            account: Arc::clone(account),
            inflight: None,
            log: None,
            log_call: None,
            unlogged: false,
            writeback: true,
        }
    }

    /// It is over: what it has mapped counts among what connections of the past left behind.
    pub(super) fn leave(&self) {
        self.account.leave();
    }

    /// Whether its messages are to be read.
    pub(super) const fn listens(&self) -> bool {
        self.waiting.is_none() && self.closing.is_none() && !self.channel.is_full()
    }

    /// Whether the other end has closed, and nothing it sent is left to be read but its end.
    pub(super) fn is_deserted(&self) -> bool {
        let mut polls = [PollFd::new(&self.channel.fd, PollFlags::IN)];
        let ready = rustix::event::poll(&mut polls, Some(&Timespec::default()));
        if ready != Ok(1) {
            return false;
        }
        let gone = PollFlags::HUP | PollFlags::ERR;
        let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        polls[0].revents().intersects(gone)
            || matches!(rustix::net::recv(&self.channel.fd, &mut [0; 1], peek), Ok((_, 0)))
    }

    /// Starts the queues that can start; returns them.
    pub(super) fn start_queues(&mut self) -> Result<SmallVec<[u16; 4]>, DisconnectReason> {
        let mut started = SmallVec::new();
        if self.held || self.closing.is_some() {
            return Ok(started);
        }
        for index in 0..self.queues.len() {
            let enabled = self.is_enabled(index);
            let queue = &mut self.queues[index];
            if queue.running.is_some() || !enabled || !queue.is_complete() {
                continue;
            }
            if self.features & feature::VERSION_1 == 0 {
                return Err(DisconnectReason::Legacy);
            }
            let event_index = self.features & feature::EVENT_INDEX != 0;
            let index = index as u16;
            queue.start(index, &self.memory, self.inflight.as_ref(), event_index)?;
            started.push(index);
        }
        if !started.is_empty() {
            self.log_rings()?;
        }
        Ok(started)
    }

    /// Rings are enabled from the start for a front-end that does not know how to enable them.
    fn is_enabled(&self, index: usize) -> bool {
        self.queues[index].enabled || self.features & feature::PROTOCOL_FEATURES == 0
    }

    /// Whether requests may be taken from this queue.
    pub(super) fn is_served(&self, index: u16) -> bool {
        let at = usize::from(index);
        !self.held
            && self.closing.is_none()
            && self.queues.get(at).and_then(|queue| queue.running.as_ref()).is_some_and(|running| {
                // What an earlier server took is finished before a stop, enabled or not.
                self.is_enabled(at) || running.stopping
            })
    }

    /// The running queues that are neither paused nor in the backlog.
    pub(super) fn unwatched(&self) -> SmallVec<[u16; 4]> {
        let idle = |queue: &Queue| queue.running.is_some() && !queue.in_paused && !queue.in_backlog;
        let queues = self.queues.iter().enumerate().filter(|(_, queue)| idle(queue));
        queues.map(|(index, _)| index as u16).collect()
    }

    /// The queues with something to be taken that are not known to have it.
    pub(super) fn news(&self) -> impl Iterator<Item = u16> {
        let has_news = |index: usize, queue: &Queue| {
            let known = queue.in_paused || queue.in_backlog;
            let new = queue.running.as_ref().is_some_and(Running::has_news);
            new && !known && self.is_served(index as u16)
        };
        let queues = self.queues.iter().enumerate();
        queues.filter(move |(index, queue)| has_news(*index, queue)).map(|(index, _)| index as u16)
    }

    /// Where to mark pages that are written, if that is wanted now.
    pub(super) fn log(&self) -> Option<&Arc<Log>> {
        self.log.as_ref().filter(|_| self.features & feature::LOG_ALL != 0)
    }

    /// After a change of what is to be logged, of memory or of rings: whether the log is large enough,
    /// and where rings are logged. The used ring is logged by its own flag or with all the rest: a
    /// front-end that switches logging on says either first.
    fn log_rings(&mut self) -> Result<(), DisconnectReason> {
        let all = self.features & feature::LOG_ALL != 0;
        self.unlogged &= all;
        let Some(log) = &self.log else {
            self.unlogged |= all && self.queues.iter().any(|queue| queue.running.is_some());
            return Ok(());
        };
        if all && !log.covers(self.memory.end()) {
            return Err(DisconnectReason::LogTooSmall);
        }
        for queue in &mut self.queues {
            if let (Some(running), Some(addresses)) = (&mut queue.running, &queue.addresses) {
                let wanted = all || addresses.log.is_some();
                running.ring.log_to(wanted.then(|| Arc::clone(log)), addresses.log)?;
            }
        }
        Ok(())
    }

    /// Who is to be told, once, that something was marked.
    pub(super) fn take_log_call(&self) -> Option<&Arc<OwnedFd>> {
        self.log_call.as_ref().filter(|_| self.log.as_ref().is_some_and(|log| log.take_news()))
    }

    /// Whether the front-end is to be told of marks.
    pub(super) fn has_log_call(&self) -> bool {
        self.log_call.is_some() && self.log.as_ref().is_some_and(|log| log.has_news())
    }

    /// Whether what is marked goes nowhere.
    pub(super) fn has_lost_log(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.is_broken())
    }

    /// Why it ends, if it does for `reason`: zeros in place of memory that is gone look like any
    /// nonsense.
    pub(super) fn blame(&self, reason: DisconnectReason) -> DisconnectReason {
        if self.memory.is_broken() { DisconnectReason::MemoryGone } else { reason }
    }

    /// Whether everything taken was given back.
    pub(super) fn is_idle(&self) -> bool {
        let running = self.queues.iter().filter_map(|queue| queue.running.as_ref());
        self.load.requests == 0 && running.map(|running| running.in_flight).sum::<u32>() == 0
    }

    /// Since when the other end owes us something, or we owe it an answer.
    pub(super) fn has_timer(&self) -> bool {
        self.waiting.is_some() || self.channel.waits_since().is_some()
    }
}
