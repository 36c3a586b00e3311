//! A server that dies, and the next one; a front-end that breaks the connection, and comes back.

use crate::vhost_guest::{EVENT_INDEX, FEATURES, Memory, PROTOCOL, numbers, pair};
use crate::vhost_host::{Host, export};
use crate::vhost_pair::{DATA, Pair, kind};
use cinnabar_frontend::vhost::{DisconnectReason, ExportId, Limits};
use rustix::fd::OwnedFd;
use std::os::fd::AsFd;

/// A guest whose front-end keeps notes of requests under way.
struct Noted {
    pair: Pair,
    notes: OwnedFd,
    spec: Vec<u8>,
}

impl Noted {
    fn new(queues: u32) -> Self {
        let mut pair = Pair::strangers(Host::serving(Limits::default(), export()), queues);
        pair.features = FEATURES | EVENT_INDEX;
        let asked = numbers(&[0, 0, 64 << 16 | u64::from(queues)]);
        let (spec, notes) = pair.ask(31, &asked);
        let notes = notes.expect("memory for the notes");
        let mut noted = Self { pair, notes, spec };
        noted.start(|_| 0);
        noted
    }

    fn start(&mut self, base: impl Fn(u32) -> u32) {
        let Self { pair, notes, spec } = self;
        pair.ack(16, &numbers(&[PROTOCOL]), &[]);
        pair.ack(32, spec, &[notes.as_fd()]);
        pair.set_up(base);
    }

    /// The server is gone from one moment to the next, and another one starts. What was in its hands
    /// is lost. The front-end does not know where the rings stand.
    fn kill(&mut self) {
        self.kill_for(Limits::default(), false);
    }

    /// Likewise; the next one has other limits, and may hold its answers back.
    fn kill_for(&mut self, limits: Limits, hold: bool) {
        let disk = std::mem::take(&mut self.pair.host.disk);
        self.pair.host = Host::serving(limits, export());
        (self.pair.host.disk, self.pair.host.hold) = (disk, hold);
        self.pair.reconnect();
        self.start(|_| 12345);
    }

    fn heads(&mut self) -> Vec<u32> {
        let used = self.pair.rings[0].take_used(&self.pair.memory);
        used.into_iter().map(|used| used.0).collect()
    }
}

#[test]
fn requests_under_way_are_taken_again_in_their_order_before_all_others() {
    let mut noted = Noted::new(1);
    let pair = &mut noted.pair;
    pair.host.hold = true;
    for (at, byte) in (0..5).zip(1_u8..) {
        pair.memory.write(DATA + 512 * at, &[byte; 512]);
        // All to one place: their order matters.
        pair.offer(kind::WRITE, 4, &[(DATA + 512 * at, 512, false)]);
    }
    pair.kick();
    // The third and the first are answered, out of order; the others never.
    for at in [2, 0] {
        let request = pair.host.held.remove(at);
        pair.host.answer(request);
    }
    pair.host.settle();
    assert_eq!(noted.heads(), [6, 0]);
    noted.pair.offer(kind::FLUSH, 0, &[]);
    noted.pair.host.held.clear();
    noted.kill();
    noted.pair.host.settle();
    assert_eq!(noted.heads(), [3, 9, 12, 15], "each once, the new one last");
    assert_eq!(noted.pair.disk(4, 512), vec![5; 512]);
    assert_eq!(noted.pair.host.server.stats().replayed_requests, 3);
    let order: Vec<char> = noted.pair.host.seen.iter().map(|seen| seen.0).collect();
    assert_eq!(order, ['w', 'w', 'w', 'f']);
    assert!(noted.pair.rings[0].was_called());
    // And it goes on as ever.
    assert_eq!(noted.pair.write(7, &[9; 512]), 0);
    noted.kill();
    assert_eq!(noted.pair.host.server.stats().replayed_requests, 0);
    assert_eq!(noted.pair.write(7, &[8; 512]), 0);
}

/// Kills the server at random moments; every request is given back exactly once, and the disk holds
/// what the replies to the guest said.
#[test]
fn no_request_is_lost_or_doubled_whenever_the_server_dies() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = move |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    let mut noted = Noted::new(1);
    let (mut offered, mut expected) = (0_u64, vec![0_u8; 16]);
    let mut waiting: Vec<(u16, u64, u8)> = Vec::new();
    let mut sectors = [false; 16];
    for round in 0..400_u64 {
        noted.pair.host.hold = true;
        for _ in 0..draw(4) {
            let sector = draw(16);
            // One at a time for each sector, so that it is known what must be there.
            if std::mem::replace(&mut sectors[sector as usize], true) || waiting.len() > 15 {
                continue;
            }
            let byte = (round % 255) as u8 + 1;
            let at = DATA + 512 * sector;
            noted.pair.memory.write(at, &[byte; 512]);
            let head = (offered * 3 % 64) as u16;
            noted.pair.offer(kind::WRITE, sector, &[(at, 512, false)]);
            offered += 1;
            waiting.push((head, sector, byte));
        }
        noted.pair.kick();
        for _ in 0..draw(5) {
            let held = &mut noted.pair.host.held;
            if !held.is_empty() {
                let request = held.remove(draw(held.len() as u64) as usize);
                noted.pair.host.answer(request);
            }
        }
        if draw(2) == 0 {
            noted.pair.host.settle();
        }
        if draw(4) == 0 {
            noted.pair.host.held.clear();
            noted.kill();
        }
        for head in noted.heads() {
            let found = waiting.iter().position(|(known, ..)| u32::from(*known) == head);
            let (_, sector, byte) = waiting.remove(found.expect("given back once"));
            sectors[sector as usize] = false;
            expected[sector as usize] = byte;
            assert_eq!(noted.pair.disk(sector, 512), vec![byte; 512]);
        }
        // Chains lie in a ring of 21 places: don't run into those under way.
        while waiting.iter().any(|(head, ..)| (offered * 3 % 64) as u16 / 3 == head / 3) {
            noted.pair.host.answer_held(true);
            noted.pair.host.settle();
            for head in noted.heads() {
                let found = waiting.iter().position(|(known, ..)| u32::from(*known) == head);
                let (_, sector, _) = waiting.remove(found.expect("given back once"));
                sectors[sector as usize] = false;
            }
        }
    }
    noted.pair.host.answer_held(false);
    noted.pair.host.settle();
    assert_eq!(noted.heads().len(), waiting.len());
    assert!(noted.pair.host.is_clear());
}

#[test]
fn the_drivers_choice_of_durability_is_remembered() {
    let mut noted = Noted::new(1);
    noted.pair.ack(25, &[self::pair(32, 1), vec![0; 4], vec![0]].concat(), &[]);
    noted.kill();
    assert_eq!(noted.pair.write(0, &[1; 512]), 0);
    assert_eq!(noted.pair.host.seen.last(), Some(&('w', 0, 512, true)));
}

#[test]
fn without_notes_it_goes_on_where_it_is_told() {
    let mut pair = Pair::new();
    for _ in 0..3 {
        assert_eq!(pair.write(0, &[1; 512]), 0);
    }
    pair.offer(kind::FLUSH, 0, &[]);
    let disk = std::mem::take(&mut pair.host.disk);
    pair.host = Host::serving(Limits::default(), export());
    pair.host.disk = disk;
    pair.reconnect();
    pair.set_up(|_| 3);
    assert_eq!(pair.rings[0].take_used(&pair.memory).len(), 1);
}

#[test]
fn a_connection_that_comes_back_waits_for_reads_into_its_memory() {
    let mut noted = Noted::new(1);
    noted.pair.host.pool.direct = true;
    noted.pair.host.hold = true;
    noted.pair.offer(kind::READ, 8, &[(DATA, 4096, true)]);
    noted.pair.kick();
    noted.pair.reconnect();
    assert!(noted.pair.link.is_closed(), "the old one was there still");
    noted.pair.reconnect();
    noted.start(|_| 0);
    noted.pair.kick();
    assert_eq!(noted.pair.host.held.len(), 1, "only the first connection's");
    assert!(!noted.pair.host.poll_rings());
    // The read lands, late; only then is it done once more.
    noted.pair.host.answer_held(false);
    noted.pair.host.settle();
    assert_eq!((noted.heads(), noted.pair.host.held.len()), (vec![], 1));
    noted.pair.host.answer_held(false);
    noted.pair.host.settle();
    assert_eq!(noted.heads(), [0]);
    assert_eq!(noted.pair.memory.read(DATA, 4096), noted.pair.disk(8, 4096));
    assert!(noted.pair.host.is_clear());
}

#[test]
fn writes_of_a_connection_that_is_gone_come_before_all_of_its_successors() {
    let mut noted = Noted::new(1);
    noted.pair.host.hold = true;
    let offer = |noted: &mut Noted, sector: u64, byte: u8| {
        let at = DATA + 4096 * u64::from(byte);
        noted.pair.memory.write(at, &[byte; 512]);
        noted.pair.offer(kind::WRITE, sector, &[(at, 512, false)]);
        noted.pair.kick();
    };
    offer(&mut noted, 0, 1);
    offer(&mut noted, 1, 2);
    noted.pair.reconnect();
    noted.pair.reconnect();
    noted.start(|_| 0);
    offer(&mut noted, 0, 3);
    // What was under way is done twice, and both times before the new one: the engine keeps that order.
    let sectors: Vec<u64> = noted.pair.host.seen.iter().map(|seen| seen.1 / 512).collect();
    assert_eq!(sectors, [0, 1, 0, 1, 0]);
    noted.pair.host.answer_held(false);
    noted.pair.host.settle();
    assert_eq!(noted.heads(), [0, 3, 6], "each is given back once, by the second connection");
    assert_eq!(noted.pair.disk(0, 1024), [[3; 512], [2; 512]].concat());
    assert!(noted.pair.host.is_clear());
}

#[test]
fn a_failed_read_of_a_connection_that_is_gone_holds_up_its_successor_too() {
    let mut noted = Noted::new(1);
    noted.pair.host.pool.direct = true;
    noted.pair.host.hold = true;
    noted.pair.offer(kind::READ, 8, &[(DATA, 4096, true)]);
    noted.pair.kick();
    let request = noted.pair.host.held.pop().expect("it was taken");
    let late = request.clone();
    let failure = cinnabar_engine::seam::Failure::Io(cinnabar_engine::seam::IoError::TimedOut);
    noted.pair.host.fail(request, failure);
    noted.pair.host.settle();
    let gone = std::mem::replace(&mut noted.pair.link, noted.pair.host.connect(ExportId(1)));
    drop(gone);
    noted.pair.reconnect();
    noted.start(|_| 0);
    assert_eq!(noted.pair.host.held.len(), 0);
    drop(late);
    noted.pair.host.settle();
    assert_eq!(noted.pair.host.held.len(), 1);
    noted.pair.host.answer_held(false);
    noted.pair.host.settle();
    assert_eq!(noted.heads(), [0]);
    assert!(noted.pair.host.is_clear());
}

#[test]
fn a_stop_finishes_what_is_left_to_be_replayed_of_a_disabled_queue() {
    let mut noted = Noted::new(1);
    noted.pair.host.hold = true;
    for sector in 0..2 {
        noted.pair.offer(kind::WRITE, sector, &[(DATA, 512, false)]);
    }
    noted.pair.kick();
    noted.kill_for(Limits { connection_requests_max: 1, ..Limits::default() }, true);
    assert_eq!(noted.pair.host.held.len(), 1, "the other one has no room yet");
    noted.pair.tell(18, &self::pair(0, 0), &[]);
    noted.pair.host.answer_held(false);
    noted.pair.host.settle();
    assert_eq!(noted.heads().len(), 1, "it is disabled: nothing more is taken");
    noted.pair.tell(11, &self::pair(0, 0), &[]);
    assert_eq!(noted.pair.host.held.len(), 1, "but it was taken by the server before");
    noted.pair.host.answer_held(false);
    noted.pair.host.settle();
    let base = noted.pair.link.receive().map(|answer| (answer.0, answer.1));
    assert_eq!(base, Some((11, self::pair(0, 2))));
    assert_eq!(noted.heads().len(), 1);
}

#[test]
fn notes_that_make_no_sense_cost_the_connection_only() {
    let mut noted = Noted::new(1);
    noted.pair.host.hold = true;
    noted.pair.offer(kind::FLUSH, 0, &[]);
    noted.pair.kick();
    // A used index far from the ring's, while a request is marked as under way.
    rustix::io::pwrite(&noted.notes, &0x7777_u16.to_le_bytes(), 14).expect("it is shared");
    noted.pair.host = Host::serving(Limits::default(), export());
    noted.pair.reconnect();
    let Noted { pair, notes, spec } = &mut noted;
    pair.ack(16, &numbers(&[PROTOCOL]), &[]);
    pair.ack(32, spec, &[notes.as_fd()]);
    let memory = Memory::new();
    let crate::vhost_pair::Pair { host, link, rings, .. } = pair;
    let features = FEATURES | EVENT_INDEX;
    crate::vhost_guest::set_up(
        link,
        &memory,
        rings,
        features,
        |_| 0,
        &mut |link, kind, payload, fds| {
            link.send(&crate::vhost_guest::message(kind, 0, payload), fds);
            host.settle();
        },
    );
    pair.is_cut_off(DisconnectReason::Inflight);
}
