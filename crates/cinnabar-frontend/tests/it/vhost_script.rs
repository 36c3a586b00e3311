//! A hostile front-end that follows a script of bytes, against a host that answers in any order.
//!
//! Whatever happens: no panic, no hang, no lost buffer, no request outside of the disk (the host
//! panics), and a neighbour that notices nothing.

use super::vhost_guest::{
    FEATURES, HALF, INDIRECT, LOG_ALL, LOG_BYTES, MEMORY, NEXT, PROTOCOL, SECOND, SIZE, USER,
    WRITE, log_file, message, numbers, pair, region,
};
use super::vhost_host::{Host, export};
use super::vhost_pair::{DATA, HEADER, Pair, STATUS};
use cinnabar_engine::seam::units::Instant;
use cinnabar_engine::seam::{Failure, IoError};
use cinnabar_frontend::vhost::{ExportId, Limits};
use rustix::fd::OwnedFd;
use rustix::fs::ftruncate;
use std::os::fd::{AsFd, BorrowedFd};

/// Steps of one script.
const STEPS_MAX: usize = 400;

/// Takes values off a script; zeros when it is over.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }

    fn number(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn bytes(&mut self, max: usize) -> Vec<u8> {
        let len = self.below(max + 1).min(self.0.len());
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken.to_vec()
    }

    /// A place in the guest's memory, or somewhere else.
    fn address(&mut self) -> u64 {
        let near = u64::from(self.byte()) << 4;
        let base = self.one_of(&[HEADER, STATUS, DATA, SECOND, HALF - 64, 0x10000, SECOND + HALF]);
        match self.byte() % 8 {
            0 => self.number(),
            1 => base.wrapping_add(near + u64::from(self.byte())),
            2 => USER + base,
            _ => base + near % 64,
        }
    }

    fn len(&mut self) -> u32 {
        match self.byte() % 8 {
            0 => self.number() as u32,
            1 => u32::from(self.byte()),
            2 => 1,
            3 => 4096,
            _ => self.one_of(&[16, 512, 1024, 8192, 48]),
        }
    }
}

struct Play<'a> {
    script: Script<'a>,
    pair: Pair,
    notes: Option<(Vec<u8>, OwnedFd)>,
    /// The log of dirty pages, known to the server or not.
    log: OwnedFd,
}

/// Plays a script; how many of its requests came to the disk of the last server.
pub(crate) fn play(script: &[u8]) -> usize {
    let mut script = Script(script);
    let limits = Limits { connection_requests_max: 8, ..Limits::default() };
    let host = Host::serving(limits, export());
    let mut pair = Pair::strangers(host, 2);
    pair.host.hold = true;
    pair.host.pool.direct = script.byte().is_multiple_of(2);
    let mut play = Play { script, pair, notes: None, log: log_file(LOG_BYTES).0 };
    if play.script.byte().is_multiple_of(2) {
        play.set_up();
    }
    for _ in 0..STEPS_MAX {
        if play.script.0.is_empty() {
            break;
        }
        play.step();
    }
    play.end()
}

impl Play<'_> {
    fn step(&mut self) {
        match self.script.byte() % 28 {
            0 => self.set_up(),
            1 => self.say_anything(),
            2 => self.say_something(),
            3 | 4 => self.scribble(),
            5 => self.reconnect(),
            6 => self.notes(),
            7 => {
                let value = self.script.byte().is_multiple_of(2);
                self.pair.host.server.set_polling(value);
            }
            8 => {
                self.pair.host.poll_rings();
            }
            9 => {
                self.pair.host.turn(0);
            }
            10 => self.pair.host.settle(),
            11 => self.truncate(),
            12 => {
                let later = u64::from(self.script.byte()) * 1_000_000_000;
                self.pair.host.now = Instant(self.pair.host.now.0 + later);
            }
            13 => self.restart(),
            14 | 15 => self.answer(),
            16 | 17 => self.offer_any(),
            18 | 19 => self.offer_request(),
            20 => while self.pair.link.receive().is_some() {},
            24 | 25 => self.log(),
            26 => self.truncate_log(),
            _ => {
                self.pair.rings[usize::from(self.script.byte() % 2)].ring_bell();
                self.pair.host.turn(0);
            }
        }
    }

    fn send(&mut self, kind: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) {
        let flags = u32::from(self.script.byte() % 2) * 8;
        self.pair.link.send(&message(kind, flags, payload), fds);
        self.pair.host.turn(0);
    }

    /// What a front-end says that means it, so that scripts get somewhere.
    fn set_up(&mut self) {
        let table = [pair(2, 0), region(0, 0), region(SECOND, HALF)].concat();
        let file = self.pair.memory.file.try_clone().expect("a handle");
        let mut features = FEATURES;
        if self.script.byte().is_multiple_of(2) {
            features |= 1 << 29;
        }
        self.send(16, &numbers(&[PROTOCOL]), &[]);
        if let Some((spec, fd)) = self.notes.take() {
            self.send(32, &spec, &[fd.as_fd()]);
            self.notes = Some((spec, fd));
        }
        self.send(2, &numbers(&[features]), &[]);
        self.send(5, &table, &[file.as_fd(), file.as_fd()]);
        for queue in 0..2 {
            let rings = &self.pair.rings[queue as usize];
            let addresses = rings.addresses(queue);
            let kick = rings.kick.try_clone().expect("a handle");
            let call = rings.call.try_clone().expect("a handle");
            self.send(8, &pair(queue, SIZE.into()), &[]);
            self.send(10, &pair(queue, 0), &[]);
            self.send(9, &addresses, &[]);
            self.send(12, &numbers(&[queue.into()]), &[kick.as_fd()]);
            self.send(13, &numbers(&[queue.into()]), &[call.as_fd()]);
            self.send(18, &pair(queue, 1), &[]);
        }
    }

    fn say_anything(&mut self) {
        let bytes = self.script.bytes(64);
        self.pair.link.send(&bytes, &[]);
        self.pair.host.turn(0);
    }

    /// A message of a known kind with a payload of about the right shape.
    fn say_something(&mut self) {
        let script = &mut self.script;
        let kind = script.one_of(&[
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 24, 25, 31, 32, 36, 37,
            38,
        ]);
        let index = u32::from(script.byte() % 5);
        let payload = match script.byte() % 5 {
            4 => numbers(&[script.address(), script.number() % 2 * 4096]),
            0 => script.bytes(80),
            1 => pair(index, script.len()),
            2 => {
                let places = [script.address(), script.address(), script.address()];
                let places = places.map(|at| USER.wrapping_add(at & !15));
                let (flags, log) = (u32::from(script.byte() % 2), script.address());
                [pair(index, flags), numbers(&places), numbers(&[log])].concat()
            }
            _ => {
                let at = [script.address() & !4095, HALF, USER, script.address() & !4095];
                [numbers(&[u64::from(index % 3)]), numbers(&at)].concat()
            }
        };
        let memory = self.pair.memory.file.try_clone().expect("a handle");
        let bell = self.pair.rings[0].call.try_clone().expect("a handle");
        let count = self.script.below(4);
        let fd = if self.script.byte().is_multiple_of(2) { memory.as_fd() } else { bell.as_fd() };
        self.send(kind, &payload, &vec![fd; count]);
    }

    /// Anything anywhere in guest memory, rings and notes.
    fn scribble(&mut self) {
        let bytes = self.script.bytes(32);
        let near = u64::from(self.script.byte()) * 2;
        let rings = &self.pair.rings[0];
        let places = [rings.descriptors(), rings.available(), rings.used(), HEADER, DATA];
        let at = self.script.one_of(&places) + near;
        self.pair.memory.write(at, &bytes);
        if let Some((_, notes)) = &self.notes
            && self.script.byte().is_multiple_of(4)
        {
            let _ = rustix::io::pwrite(notes, &bytes, near);
        }
    }

    fn reconnect(&mut self) {
        if self.script.byte().is_multiple_of(2) {
            let _ = rustix::net::shutdown(&self.pair.link.0, rustix::net::Shutdown::Both);
        }
        self.pair.reconnect();
    }

    /// Another server takes over; what was in the hands of the first is lost.
    fn restart(&mut self) {
        let disk = std::mem::take(&mut self.pair.host.disk);
        let direct = self.pair.host.pool.direct;
        self.pair.host = Host::serving(Limits::default(), export());
        self.pair.host.disk = disk;
        (self.pair.host.hold, self.pair.host.pool.direct) = (true, direct);
        self.pair.reconnect();
    }

    fn notes(&mut self) {
        while self.pair.link.receive().is_some() {}
        self.pair.link.send(&message(31, 0, &numbers(&[0, 0, 64 << 16 | 2])), &[]);
        self.pair.host.settle();
        if let Some((31, spec, Some(fd))) = self.pair.link.receive() {
            self.notes = Some((spec, fd));
        }
    }

    /// The file is shorter for a moment, as far as the host can see; its size comes back, its
    /// contents don't.
    fn truncate(&mut self) {
        let len = self.script.one_of(&[0, 4096, 0x1_8000, HALF]);
        ftruncate(&self.pair.memory.file, len).expect("it is not sealed");
        self.pair.rings[0].ring_bell();
        self.pair.host.poll_rings();
        self.pair.host.turn(0);
        self.answer();
        ftruncate(&self.pair.memory.file, MEMORY).expect("it is not sealed");
    }

    /// A front-end that migrates its guest says so, or that it is over, with a log that is large enough
    /// or not.
    fn log(&mut self) {
        let len = self.script.one_of(&[LOG_BYTES, LOG_BYTES, LOG_BYTES, LOG_BYTES - 1, 1, 0]);
        let log = self.log.try_clone().expect("a handle");
        if self.script.byte().is_multiple_of(2) {
            self.send(6, &numbers(&[len, 0]), &[log.as_fd()]);
        }
        if self.script.byte().is_multiple_of(8) {
            let call = self.pair.rings[1].call.try_clone().expect("a handle");
            self.send(7, &[], &[call.as_fd()]);
        }
        let features = if self.script.byte().is_multiple_of(4) { 0 } else { LOG_ALL };
        self.send(2, &numbers(&[FEATURES | features]), &[]);
        let queue = u32::from(self.script.byte() % 2);
        let rings = &mut self.pair.rings[queue as usize];
        rings.log = self.script.byte().is_multiple_of(2).then(|| self.script.address());
        let addresses = rings.addresses(queue);
        self.send(9, &addresses, &[]);
    }

    /// The log is shorter for a moment, as the memory may be.
    fn truncate_log(&mut self) {
        let len = self.script.one_of(&[0, 4096, LOG_BYTES - 1]);
        ftruncate(&self.log, len).expect("it is not sealed");
        self.pair.rings[0].ring_bell();
        self.pair.host.poll_rings();
        self.pair.host.turn(0);
        self.answer();
        ftruncate(&self.log, LOG_BYTES).expect("it is not sealed");
    }

    fn answer(&mut self) {
        if self.pair.host.held.is_empty() {
            return;
        }
        let at = self.script.below(self.pair.host.held.len());
        let request = self.pair.host.held.remove(at);
        match self.script.byte() % 4 {
            0 => self.pair.host.fail(request, Failure::Io(IoError::Io)),
            1 => {
                // It is answered while the I/O goes on, which ends later.
                let late = request.clone();
                self.pair.host.fail(request, Failure::Io(IoError::TimedOut));
                self.pair.host.turn(0);
                drop(late);
            }
            _ => self.pair.host.answer(request),
        }
    }

    /// Descriptors of any kind.
    fn offer_any(&mut self) {
        for _ in 0..self.script.below(5) {
            let index = u16::from(self.script.byte()) % SIZE;
            let (address, len) = (self.script.address(), self.script.len());
            let flags = self.script.one_of(&[0, NEXT, WRITE, NEXT | WRITE, INDIRECT, 7]);
            let next = u16::from(self.script.byte()) % (SIZE + 1);
            self.pair.rings[0].describe(&self.pair.memory, index, address, len, flags, next);
        }
        let head = u16::from(self.script.byte()) % (SIZE + 1);
        self.pair.rings[0].push(&self.pair.memory, head);
    }

    /// A request that nearly makes sense.
    fn offer_request(&mut self) {
        let kind = self.script.one_of(&[0, 0, 1, 1, 4, 8, 11, 13, 99]);
        let sector = match self.script.byte() % 4 {
            0 => self.script.number(),
            1 => 2048 - u64::from(self.script.byte() % 4),
            _ => u64::from(self.script.byte()) * 8,
        };
        let mut data = Vec::new();
        for _ in 0..self.script.below(4) {
            let place = DATA + 4096 * u64::from(self.script.byte());
            data.push((place, self.script.len(), kind != 1 && kind < 11));
        }
        let queue = self.script.below(2);
        self.pair.offer_in(queue, kind, sector, &data);
    }

    fn end(mut self) -> usize {
        self.pair.host.server.set_polling(false);
        let deadline = self.pair.host.now.0 + 200_000_000_000;
        let _ = rustix::net::shutdown(&self.pair.link.0, rustix::net::Shutdown::Both);
        for _ in 0..100 {
            self.pair.host.settle();
            if self.pair.host.held.is_empty() {
                break;
            }
            self.pair.host.answer_held(true);
        }
        self.pair.host.now = Instant(deadline);
        self.pair.host.settle();
        assert_eq!(self.pair.host.server.connections(ExportId(1)), 0);
        assert!(self.pair.host.is_clear(), "lost: {:?}", self.pair.host.server.stats());
        let requests = self.pair.host.seen.len();
        // The next front-end is served.
        let mut next = Pair::strangers(self.pair.host, 1);
        next.host.hold = false;
        next.set_up(|_| 0);
        assert_eq!(next.read_to(DATA, 8, 4096), next.disk(8, 4096));
        requests
    }
}
