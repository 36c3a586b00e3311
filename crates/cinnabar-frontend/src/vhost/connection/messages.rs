//! What a front-end says, and what it is answered.

use super::{Connection, Waiting};
use crate::vhost::bell;
use crate::vhost::channel::Message;
use crate::vhost::device::{self, SPACE_BYTES_MAX, WRITEBACK_AT, feature};
use crate::vhost::export::Export;
use crate::vhost::inflight::Inflight;
use crate::vhost::limits::{QUEUE_SIZE_MAX, REGIONS_MAX};
use crate::vhost::log::Log;
use crate::vhost::mapping::MappingError;
use crate::vhost::memory::{GuestMemory, Marked, Region};
use crate::vhost::proto::{
    self, ConfigSpan, Fields, InflightSpec, LogSpec, RegionSpec, RingAddresses, RingFd, RingState,
    protocol_feature, request,
};
use crate::vhost::queue::{Queue, Running};
use crate::vhost::reason::DisconnectReason;
use crate::vhost::watches::{Source, Watches};
use cinnabar_engine::seam::units::Instant;
use rustix::fd::OwnedFd;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

type Result<T> = std::result::Result<T, DisconnectReason>;

/// What is to be done after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::vhost) enum After {
    /// Go on with the next.
    Next,
    /// Flush the volume, then [`Connection::flushed`].
    Flush,
}

/// How a message is answered.
enum Answer {
    /// It has no answer of its own: acknowledge it, if that is asked for.
    Ack,
    /// Likewise, but it was not obeyed.
    Refuse,
    Payload(Vec<u8>),
    WithFd(Vec<u8>, OwnedFd),
    /// It was answered.
    None,
    /// The answer comes later.
    Wait(Waiting),
}

impl Connection {
    /// Obeys a message.
    pub(in crate::vhost) fn hear(
        &mut self,
        key: u64,
        export: &Export,
        message: Message,
        watches: &mut Watches,
        now: Instant,
    ) -> Result<After> {
        let Message { header, payload, fds } = message;
        let kind = header.request;
        let answer = if fds.is_empty() {
            self.obey(kind, &payload, export)
        } else {
            self.obey_with_fds(key, kind, &payload, fds, watches)
        };
        let answer = match answer? {
            Some(answer) => answer,
            None => self.obey_about_fds(key, kind, &payload, watches)?,
        };
        // Agreeing on acknowledgements is acknowledged already.
        let acks = self.protocol_features & protocol_feature::REPLY_ACK != 0;
        let wanted = header.need_reply && acks;
        match answer {
            Answer::Ack => self.acknowledge(wanted.then_some(kind), true),
            Answer::Refuse => self.acknowledge(wanted.then_some(kind), false),
            Answer::Payload(payload) => self.channel.answer(proto::reply(kind, &payload), None),
            Answer::WithFd(payload, fd) => {
                self.channel.answer(proto::reply(kind, &payload), Some(fd));
            }
            Answer::Wait(Waiting::Flush { .. }) => {
                let answer = wanted.then_some(kind);
                self.waiting = Some((Waiting::Flush { answer }, now));
                return Ok(After::Flush);
            }
            Answer::None => {}
            Answer::Wait(Waiting::Mark { marked, answer }) => {
                let answer = answer.or(wanted.then_some(kind));
                self.waiting = Some((Waiting::Mark { marked, answer }, now));
            }
            Answer::Wait(waiting) => self.waiting = Some((waiting, now)),
        }
        Ok(After::Next)
    }

    fn acknowledge(&mut self, wanted: Option<u32>, fine: bool) {
        if let Some(kind) = wanted {
            let code = u64::from(!fine);
            self.channel.answer(proto::reply(kind, &code.to_ne_bytes()), None);
        }
    }

    /// The flush asked for with [`After::Flush`] is over.
    pub(in crate::vhost) fn flushed(&mut self, fine: bool) {
        if let Some((Waiting::Flush { answer }, _)) = self.waiting {
            self.waiting = None;
            self.acknowledge(answer, fine);
        }
    }

    /// Answers a stop that was waited for, if the queue is idle. True if that was it.
    pub(in crate::vhost) fn finish_stop(&mut self) -> bool {
        let Some((Waiting::Stop(index), _)) = self.waiting else { return false };
        let queue = &mut self.queues[usize::from(index)];
        if !queue.running.as_ref().is_none_or(Running::is_idle) {
            return false;
        }
        queue.stop();
        self.waiting = None;
        self.answer_base(index);
        true
    }

    /// Goes on marking all memory, if that is under way: so many pieces at most, which are counted down. True if
    /// there is more.
    pub(in crate::vhost) fn mark_more(&mut self, windows: &mut u32) -> bool {
        let Some((Waiting::Mark { marked, answer }, _)) = &mut self.waiting else { return false };
        let Some(log) = &self.log else { return false };
        if !self.memory.mark_all(log, marked, windows) {
            return true;
        }
        let answer = *answer;
        self.waiting = None;
        self.acknowledge(answer, true);
        false
    }

    fn answer_base(&mut self, index: u16) {
        let value = u32::from(self.queues[usize::from(index)].base);
        let payload = RingState { index: index.into(), value }.encode();
        self.channel.answer(proto::reply(request::GET_VRING_BASE, &payload), None);
    }

    /// Messages that never have descriptors; `None`: another kind.
    fn obey(&mut self, kind: u32, payload: &[u8], export: &Export) -> Result<Option<Answer>> {
        let empty = || if payload.is_empty() { Ok(()) } else { Err(DisconnectReason::Payload) };
        let number = |value: u64| Ok(Some(Answer::Payload(value.to_ne_bytes().to_vec())));
        match kind {
            request::GET_FEATURES => empty().and(number(device::features(export))),
            request::SET_FEATURES => {
                self.features = subset(payload, device::features(export))?;
                self.log_rings()?;
                Ok(Some(Answer::Ack))
            }
            request::GET_PROTOCOL_FEATURES => empty().and(number(protocol_feature::OFFERED)),
            request::SET_PROTOCOL_FEATURES => {
                self.protocol_features = subset(payload, protocol_feature::OFFERED)?;
                Ok(Some(Answer::Ack))
            }
            // Deprecated the one, without meaning the other, for who is connected is the owner.
            request::SET_OWNER | request::RESET_OWNER => empty().and(Ok(Some(Answer::Ack))),
            request::GET_QUEUE_NUM => empty().and(number(export.queues_max.into())),
            request::GET_MAX_MEM_SLOTS => empty().and(number(REGIONS_MAX as u64)),
            request::GET_CONFIG => self.get_config(payload, export).map(Some),
            request::SET_CONFIG => self.set_config(payload).map(Some),
            request::GET_INFLIGHT_FD => self.make_inflight(payload).map(Some),
            request::SET_VRING_NUM => {
                let (index, value) = self.ring_state(payload)?;
                let size = u16::try_from(value).ok().filter(|size| size.is_power_of_two());
                let size = size.filter(|size| *size <= QUEUE_SIZE_MAX);
                self.stopped(index)?.size = size.ok_or(DisconnectReason::RingSize)?;
                Ok(Some(Answer::Ack))
            }
            request::SET_VRING_BASE => {
                let (index, value) = self.ring_state(payload)?;
                let base = u16::try_from(value).map_err(|_| DisconnectReason::Payload)?;
                self.stopped(index)?.base = base;
                Ok(Some(Answer::Ack))
            }
            request::SET_VRING_ENABLE => {
                let (index, value) = self.ring_state(payload)?;
                self.queues[index].enabled = value != 0;
                Ok(Some(Answer::Ack))
            }
            request::SET_VRING_ADDR => {
                let addresses = RingAddresses::decode(payload).ok_or(DisconnectReason::Payload)?;
                self.set_addresses(addresses.0, addresses.1)
            }
            _ => Ok(None),
        }
    }

    /// Messages that may come with or without descriptors, but came without.
    fn obey_about_fds(
        &mut self,
        key: u64,
        kind: u32,
        payload: &[u8],
        watches: &mut Watches,
    ) -> Result<Answer> {
        match kind {
            request::GET_VRING_BASE => {
                let (index, _) = self.ring_state(payload)?;
                Ok(self.stop(index, watches))
            }
            request::REM_MEM_REG => self.remove_region(payload),
            // Eventfds may be absent; the other kinds may not.
            request::SET_VRING_KICK | request::SET_VRING_CALL | request::SET_VRING_ERR => {
                self.set_eventfd(key, kind, payload, None, watches)
            }
            request::SET_MEM_TABLE => self.set_table(payload, &[]),
            request::ADD_MEM_REG
            | request::SET_INFLIGHT_FD
            | request::SET_LOG_BASE
            | request::SET_LOG_FD => Err(DisconnectReason::Descriptors),
            _ => Err(DisconnectReason::UnknownMessage),
        }
    }

    /// Messages that came with descriptors.
    fn obey_with_fds(
        &mut self,
        key: u64,
        kind: u32,
        payload: &[u8],
        mut fds: Vec<OwnedFd>,
        watches: &mut Watches,
    ) -> Result<Option<Answer>> {
        if kind == request::SET_MEM_TABLE {
            return self.set_table(payload, &fds).map(Some);
        }
        let fd = fds.pop().filter(|_| fds.is_empty()).ok_or(DisconnectReason::Descriptors)?;
        match kind {
            request::SET_VRING_KICK | request::SET_VRING_CALL | request::SET_VRING_ERR => {
                self.set_eventfd(key, kind, payload, Some(fd), watches)
            }
            request::ADD_MEM_REG => {
                let spec = RegionSpec::decode_one(payload).ok_or(DisconnectReason::Payload)?;
                let memory = self.with_region(&self.memory, spec, &fd)?;
                self.set_memory(memory)
            }
            // QEMU sends one, which means nothing.
            request::REM_MEM_REG => self.remove_region(payload),
            request::SET_INFLIGHT_FD => {
                let spec = InflightSpec::decode(payload).ok_or(DisconnectReason::Payload)?;
                let inflight = Inflight::open(&self.account, &spec, fd.as_fd())?;
                self.set_inflight(inflight);
                Ok(Answer::Ack)
            }
            request::SET_LOG_BASE => self.set_log(payload, &fd),
            request::SET_LOG_FD if payload.is_empty() => {
                self.log_call = Some(Arc::new(bell::adopt(fd)?));
                Ok(Answer::Ack)
            }
            request::SET_LOG_FD => Err(DisconnectReason::Payload),
            _ => Err(DisconnectReason::Descriptors),
        }
        .map(Some)
    }

    fn get_config(&self, payload: &[u8], export: &Export) -> Result<Answer> {
        let (span, _) = ConfigSpan::decode(payload).ok_or(DisconnectReason::Payload)?;
        let space = device::space(export, self.writeback);
        let (from, len) = (span.offset as usize, span.size as usize);
        let bytes = from.checked_add(len).and_then(|end| space.get(from..end));
        // No such bytes: an empty answer says so.
        Ok(Answer::Payload(bytes.map_or_else(Vec::new, |bytes| span.encode(bytes))))
    }

    fn set_config(&mut self, payload: &[u8]) -> Result<Answer> {
        let (span, bytes) = ConfigSpan::decode(payload).ok_or(DisconnectReason::Payload)?;
        let end = u64::from(span.offset) + u64::from(span.size);
        if end > SPACE_BYTES_MAX as u64 {
            return Err(DisconnectReason::Payload);
        }
        // Write-back is the only thing that is the driver's to choose.
        if span.offset != WRITEBACK_AT || self.features & feature::CONFIG_WCE == 0 {
            return Ok(Answer::Refuse);
        }
        let [value @ (0 | 1)] = bytes else { return Ok(Answer::Refuse) };
        let before = std::mem::replace(&mut self.writeback, *value == 1);
        if let Some(inflight) = &self.inflight {
            inflight.set_writeback(self.writeback);
        }
        if before && !self.writeback {
            // From now on the driver relies on what it wrote before, too.
            return Ok(Answer::Wait(Waiting::Flush { answer: None }));
        }
        Ok(Answer::Ack)
    }

    fn make_inflight(&mut self, payload: &[u8]) -> Result<Answer> {
        let asked = InflightSpec::decode(payload).ok_or(DisconnectReason::Payload)?;
        if self.channel.has_unread_fd() {
            return Err(DisconnectReason::Unread);
        }
        let (spec, fd) = Inflight::create(asked.queues, asked.queue_size)?;
        Ok(Answer::WithFd(spec.encode(payload.len()), fd))
    }

    fn set_inflight(&mut self, inflight: Inflight) {
        match inflight.writeback() {
            Some(writeback) => self.writeback = writeback,
            None => inflight.set_writeback(self.writeback),
        }
        self.inflight = Some(inflight);
    }

    /// Pages are marked there from now on, those of requests under way as well. Front-ends wait for
    /// the answer before they look at what the log before it has.
    fn set_log(&mut self, payload: &[u8], fd: &OwnedFd) -> Result<Answer> {
        let spec = LogSpec::decode(payload).ok_or(DisconnectReason::Payload)?;
        let log = Log::open(&self.account, &spec, fd.as_fd())?;
        if !log.covers(self.memory.end()) {
            return Err(DisconnectReason::LogTooSmall);
        }
        self.log = Some(Arc::new(log));
        let unlogged = std::mem::take(&mut self.unlogged);
        self.log_rings()?;
        // The answer has no payload by the protocol's text, and a number in its reference server; those
        // who ask for an acknowledgement take the number for it.
        let answered = self.protocol_features & protocol_feature::LOG_SHMFD != 0;
        let answer = answered.then_some(request::SET_LOG_BASE);
        if unlogged {
            let marked = Marked::default();
            return Ok(Answer::Wait(Waiting::Mark { marked, answer }));
        }
        self.acknowledge(answer, true);
        Ok(if answered { Answer::None } else { Answer::Ack })
    }

    fn set_addresses(&mut self, index: u32, addresses: RingAddresses) -> Result<Option<Answer>> {
        let memory = Arc::clone(&self.memory);
        let index = self.index(index)?;
        let queue = &mut self.queues[index];
        if let Some(running) = &mut queue.running {
            running.ring.place(&memory, &addresses)?;
        }
        queue.addresses = Some(addresses);
        self.log_rings()?;
        Ok(Some(Answer::Ack))
    }

    fn stop(&mut self, index: usize, watches: &mut Watches) -> Answer {
        let queue = &mut self.queues[index];
        if let Some((fd, watch)) = queue.kick.take() {
            watches.remove(watch, fd);
        }
        if let Some(running) = &mut queue.running {
            running.stopping = true;
        }
        // If it is idle already, the answer goes out with the end of this turn.
        Answer::Wait(Waiting::Stop(index as u16))
    }

    fn set_eventfd(
        &mut self,
        key: u64,
        kind: u32,
        payload: &[u8],
        fd: Option<OwnedFd>,
        watches: &mut Watches,
    ) -> Result<Answer> {
        let RingFd { index, absent } = RingFd::decode(payload).ok_or(DisconnectReason::Payload)?;
        let index = self.index(index)?;
        if fd.is_some() == absent {
            return Err(DisconnectReason::Descriptors);
        }
        let fd = fd.map(bell::adopt).transpose()?;
        let queue = &mut self.queues[index];
        match kind {
            request::SET_VRING_KICK => {
                let fd = fd.ok_or(DisconnectReason::NoKick)?;
                if let Some((old, watch)) = queue.kick.take() {
                    watches.remove(watch, old);
                }
                let watch = watches.add(fd.as_raw_fd(), Source::Kick(key, index as u16));
                queue.kick = Some((fd, watch));
            }
            request::SET_VRING_CALL => {
                // A call that went to its predecessor may have been missed.
                queue.call_due = true;
                if let Some(running) = &mut queue.running {
                    running.ring.forget_calls();
                }
                queue.call = fd.map(Arc::new);
            }
            // Nothing is ever signalled on it: an error in a ring ends the connection.
            _ => {}
        }
        Ok(Answer::Ack)
    }

    fn set_table(&mut self, payload: &[u8], fds: &[OwnedFd]) -> Result<Answer> {
        let specs = RegionSpec::decode_table(payload).ok_or(DisconnectReason::Payload)?;
        if specs.len() != fds.len() {
            return Err(DisconnectReason::Descriptors);
        }
        let mut regions = specs.into_iter().zip(fds);
        let memory = regions.try_fold(GuestMemory::default(), |memory, (spec, fd)| {
            self.with_region(&memory, spec, fd)
        })?;
        self.set_memory(memory)
    }

    fn with_region(
        &self,
        memory: &GuestMemory,
        spec: RegionSpec,
        fd: &OwnedFd,
    ) -> Result<GuestMemory> {
        if memory.len() >= REGIONS_MAX {
            return Err(DisconnectReason::Region);
        }
        if memory.bytes().saturating_add(spec.len) > self.memory_bytes_max {
            return Err(DisconnectReason::MemoryMax);
        }
        let region = Region::new(&self.account, spec, fd.as_fd()).map_err(|error| match error {
            MappingError::NotShared => DisconnectReason::NotShared,
            MappingError::TooShort => DisconnectReason::TooShort,
            MappingError::Length => DisconnectReason::Region,
            MappingError::Refused | MappingError::TooMuch => DisconnectReason::CannotMap,
        })?;
        memory.with(region).ok_or(DisconnectReason::Region)
    }

    fn remove_region(&mut self, payload: &[u8]) -> Result<Answer> {
        let spec = RegionSpec::decode_one(payload).ok_or(DisconnectReason::Payload)?;
        let memory = self.memory.without(&spec).ok_or(DisconnectReason::Region)?;
        self.set_memory(memory)
    }

    /// New requests use this memory; requests under way keep the old one.
    fn set_memory(&mut self, memory: GuestMemory) -> Result<Answer> {
        for queue in &mut self.queues {
            if let (Some(running), Some(addresses)) = (&mut queue.running, &queue.addresses) {
                running.ring.place(&memory, addresses)?;
            }
        }
        self.memory = Arc::new(memory);
        self.log_rings()?;
        Ok(Answer::Ack)
    }

    fn index(&self, index: u32) -> Result<usize> {
        let index = index as usize;
        if index < self.queues.len() { Ok(index) } else { Err(DisconnectReason::NoQueue) }
    }

    fn ring_state(&self, payload: &[u8]) -> Result<(usize, u32)> {
        let RingState { index, value } =
            RingState::decode(payload).ok_or(DisconnectReason::Payload)?;
        Ok((self.index(index)?, value))
    }

    /// A queue that does not run.
    fn stopped(&mut self, index: usize) -> Result<&mut Queue> {
        let queue = &mut self.queues[index];
        if queue.running.is_some() { Err(DisconnectReason::RingRuns) } else { Ok(queue) }
    }
}

/// Bits of which each was offered.
fn subset(payload: &[u8], offered: u64) -> Result<u64> {
    let mut fields = Fields(payload);
    let bits = fields.u64().and_then(|bits| fields.end(bits)).ok_or(DisconnectReason::Payload)?;
    if bits & !offered == 0 { Ok(bits) } else { Err(DisconnectReason::Features) }
}
