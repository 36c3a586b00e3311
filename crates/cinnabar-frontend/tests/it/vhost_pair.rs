//! A guest and a host in one thread: messages, requests, and turns of the loop between them.

use super::vhost_guest::{
    EVENT_INDEX, FEATURES, Link, Memory, PROTOCOL, Rings, header, message, numbers, set_up,
};
use super::vhost_host::{Host, export};
use cinnabar_frontend::vhost::{DisconnectReason, Export, ExportId, Limits};
use rustix::fd::OwnedFd;
use std::os::fd::BorrowedFd;

/// Where requests keep their header, their status and their data, unless they say otherwise.
pub(crate) const HEADER: u64 = 0x10_0000;
pub(crate) const STATUS: u64 = HEADER + 0x800;
pub(crate) const DATA: u64 = 0x11_0000;

/// Kinds of requests.
pub(crate) mod kind {
    pub(crate) const READ: u32 = 0;
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const FLUSH: u32 = 4;
    pub(crate) const GET_ID: u32 = 8;
    pub(crate) const DISCARD: u32 = 11;
    pub(crate) const WRITE_ZEROES: u32 = 13;
}

/// Both sides.
pub(crate) struct Pair {
    pub(crate) host: Host,
    pub(crate) memory: Memory,
    pub(crate) link: Link,
    pub(crate) rings: Vec<Rings>,
    pub(crate) features: u64,
    /// Requests made: each has a header and a status of its own.
    made: u64,
}

impl Pair {
    /// A guest that is set up, with one queue.
    pub(crate) fn new() -> Self {
        Self::with(Limits::default(), export(), 1, FEATURES | EVENT_INDEX)
    }

    pub(crate) fn with(limits: Limits, export: Export, queues: u32, features: u64) -> Self {
        let mut pair = Self::strangers(Host::serving(limits, export), queues);
        pair.features = features;
        pair.set_up(|_| 0);
        pair
    }

    /// A guest that is connected and has said nothing yet.
    pub(crate) fn strangers(mut host: Host, queues: u32) -> Self {
        let link = host.connect(ExportId(1));
        let rings = (0..queues).map(Rings::new).collect();
        let features = FEATURES | EVENT_INDEX;
        Self { host, memory: Memory::new(), link, rings, features, made: 0 }
    }

    /// A guest with memory and a connection of its own, at a host that has others; one queue.
    #[allow(dead_code, reason = "tests only")]
    pub(crate) fn around(host: Host, memory: Memory, link: Link) -> Self {
        let features = FEATURES | EVENT_INDEX;
        Self { host, memory, link, rings: vec![Rings::new(0)], features, made: 0 }
    }

    /// Starts the device over this memory table, whatever the answers are.
    #[allow(dead_code, reason = "tests only")]
    pub(crate) fn start_with(&mut self, table: &[u8], fds: &[BorrowedFd<'_>]) {
        let Self { host, memory, link, rings, features, .. } = self;
        set_up(link, memory, rings, *features, |_| 0, &mut |link, kind, payload, own| {
            let (payload, fds) = if kind == 5 { (table, fds) } else { (payload, own) };
            link.send(&message(kind, 0, payload), fds);
            host.settle();
        });
    }

    /// Its parts, to be put together again with [`Self::around`].
    #[allow(dead_code, reason = "tests only")]
    pub(crate) fn apart(self) -> (Host, Memory, Link, Vec<Rings>) {
        let Self { host, memory, link, rings, .. } = self;
        (host, memory, link, rings)
    }

    /// The messages of a front-end that starts its device.
    pub(crate) fn set_up(&mut self, base: impl Fn(u32) -> u32) {
        self.ack(16, &numbers(&[PROTOCOL]), &[]);
        let Self { host, memory, link, rings, features, .. } = self;
        set_up(link, memory, rings, *features, base, &mut |link, kind, payload, fds| {
            link.send(&message(kind, 8, payload), fds);
            host.settle();
            let answer = link.receive().expect("an acknowledgement");
            assert_eq!((answer.0, answer.1), (kind, numbers(&[0])));
        });
    }

    /// Another connection of the same guest.
    pub(crate) fn reconnect(&mut self) {
        self.link = self.host.connect(ExportId(1));
        self.host.settle();
    }

    /// Sends a message without caring for its answer.
    pub(crate) fn tell(&mut self, kind: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) {
        self.link.send(&message(kind, 0, payload), fds);
        self.host.settle();
    }

    /// Sends a message that has an answer.
    pub(crate) fn ask(&mut self, kind: u32, payload: &[u8]) -> (Vec<u8>, Option<OwnedFd>) {
        self.tell(kind, payload, &[]);
        let (answered, payload, fd) = self.link.receive().expect("an answer");
        assert_eq!(answered, kind);
        (payload, fd)
    }

    pub(crate) fn ask_number(&mut self, kind: u32) -> u64 {
        let payload = self.ask(kind, &[]).0;
        u64::from_ne_bytes(payload.try_into().expect("eight bytes"))
    }

    /// Sends a message and waits for its acknowledgement.
    pub(crate) fn ack(&mut self, kind: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) {
        self.link.send(&message(kind, 8, payload), fds);
        self.host.settle();
        // The features of the protocol come into force with this very message.
        let (answered, code, _) = self.link.receive().expect("an acknowledgement");
        assert_eq!((answered, code), (kind, numbers(&[0])));
    }

    /// Offers a request of queue 0 with these data pieces; returns where its status will be.
    pub(crate) fn offer(&mut self, kind: u32, sector: u64, data: &[(u64, u32, bool)]) -> u64 {
        self.offer_in(0, kind, sector, data)
    }

    pub(crate) fn offer_in(
        &mut self,
        queue: usize,
        kind: u32,
        sector: u64,
        data: &[(u64, u32, bool)],
    ) -> u64 {
        let place = self.made % 64;
        self.made += 1;
        let (at, status) = (HEADER + 16 * place, STATUS + place);
        self.memory.write(at, &header(kind, sector));
        self.memory.write(status, &[0xff]);
        let mut pieces = vec![(at, 16, false)];
        pieces.extend(data);
        pieces.push((status, 1, true));
        self.rings[queue].offer(&self.memory, &pieces);
        status
    }

    /// Kicks queue 0 and lets the host work.
    pub(crate) fn kick(&mut self) {
        self.rings[0].ring_bell();
        self.host.settle();
    }

    /// A request carried out; its status.
    pub(crate) fn request(&mut self, kind: u32, sector: u64, data: &[(u64, u32, bool)]) -> u8 {
        let status = self.offer(kind, sector, data);
        self.kick();
        assert_eq!(self.rings[0].take_used(&self.memory).len(), 1, "it was given back");
        self.status(status)
    }

    pub(crate) fn status(&self, at: u64) -> u8 {
        self.memory.read(at, 1)[0]
    }

    /// Writes `data` from one piece of memory.
    pub(crate) fn write(&mut self, sector: u64, data: &[u8]) -> u8 {
        self.memory.write(DATA, data);
        self.request(kind::WRITE, sector, &[(DATA, data.len() as u32, false)])
    }

    /// Reads into one piece of memory that begins at `at`.
    pub(crate) fn read_to(&mut self, at: u64, sector: u64, len: u32) -> Vec<u8> {
        assert_eq!(self.request(kind::READ, sector, &[(at, len, true)]), 0);
        self.memory.read(at, len.into())
    }

    /// What the disk has there.
    pub(crate) fn disk(&self, sector: u64, len: u64) -> Vec<u8> {
        let at = (sector * 512) as usize;
        self.host.disk[at..at + len as usize].to_vec()
    }

    /// Whether the guest was cut off for this reason, and nothing was lost.
    #[track_caller]
    pub(crate) fn is_cut_off(&mut self, reason: DisconnectReason) {
        self.host.settle();
        let stats = self.host.server.stats();
        let why: Vec<_> = DisconnectReason::ALL
            .into_iter()
            .filter(|reason| stats.disconnects(*reason) > 0)
            .collect();
        assert_eq!(why, [reason]);
        assert!(self.link.is_closed());
        self.host.answer_held(false);
        self.host.settle();
        assert!(self.host.is_clear(), "something was lost: {:?}", self.host.server.stats());
    }
}
