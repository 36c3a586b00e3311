//! What one front-end can do to the process and to its neighbours: nothing, however it behaves.

use crate::vhost_guest::{EVENT_INDEX, FEATURES, NEXT, PROTOCOL, USER, WRITE};
use crate::vhost_guest::{Link, Memory, descriptor, message, numbers, pair};
use crate::vhost_host::{Host, export};
use crate::vhost_pair::{DATA, HEADER, Pair, STATUS, kind};
use cinnabar_frontend::vhost::{DisconnectReason as Why, Export, ExportId, Limits, SocketSpec};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, OFlags, fcntl_setfl, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Runs `work`; if it has not come back after a long while, `rescue` gets it out, and the test fails.
fn unblocked(work: impl FnOnce(), rescue: impl FnOnce() + Send + 'static) {
    let (done, waits) = channel::<()>();
    let rescued = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&rescued);
    let watch = std::thread::spawn(move || {
        if waits.recv_timeout(Duration::from_secs(20)) == Err(RecvTimeoutError::Timeout) {
            flag.store(true, Ordering::Relaxed);
            rescue();
        }
    });
    work();
    drop(done);
    watch.join().expect("no panic");
    assert!(!rescued.load(Ordering::Relaxed), "the loop was held up");
}

fn make_blocking(fd: &OwnedFd) {
    fcntl_setfl(fd, OFlags::RDWR).expect("it shares the flags");
}

#[test]
fn a_kick_that_blocks_and_is_drained_holds_up_nobody() {
    let mut pair = Pair::new();
    make_blocking(&pair.rings[0].kick);
    let (kick, other) = (pair.rings[0].kick.as_fd(), pair.rings[0].kick.try_clone().expect("one"));
    rustix::io::write(kick, &1_u64.to_ne_bytes()).expect("room");
    let drain = || {
        rustix::io::read(kick, &mut [0; 8]).expect("it was rung");
    };
    let host = &mut pair.host;
    unblocked(
        || {
            host.turn_with(0, drain);
        },
        move || {
            let _ = rustix::io::write(&other, &1_u64.to_ne_bytes());
        },
    );
}

#[test]
fn a_call_that_blocks_and_is_full_holds_up_nobody() {
    let mut pair = Pair::new();
    let other = pair.rings[0].call.try_clone().expect("a handle");
    let _ = pair.rings[0].was_called();
    make_blocking(&pair.rings[0].call);
    rustix::io::write(&pair.rings[0].call, &(u64::MAX - 1).to_ne_bytes()).expect("room");
    unblocked(
        || assert_eq!(pair.write(0, &[1; 512]), 0),
        move || {
            let _ = rustix::io::read(&other, &mut [0; 8]);
        },
    );
}

#[test]
fn a_kick_while_a_queue_is_disabled_is_not_forgotten() {
    let mut pair = Pair::new();
    pair.tell(18, &self::pair(0, 0), &[]);
    pair.offer(kind::FLUSH, 0, &[]);
    pair.kick();
    assert_eq!(pair.rings[0].take_used(&pair.memory), []);
    pair.tell(18, &self::pair(0, 1), &[]);
    assert_eq!(pair.rings[0].take_used(&pair.memory).len(), 1);
    // The driver has to kick for the next one; the ring's flags say so.
    pair.offer(kind::FLUSH, 0, &[]);
    assert!(pair.rings[0].wants_kick(&pair.memory, true));
}

#[test]
fn a_kick_that_is_replaced_while_it_is_pending_is_not_forgotten() {
    let mut pair = Pair::new();
    pair.offer(kind::FLUSH, 0, &[]);
    let new = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("eventfd");
    pair.link.send(&message(12, 0, &numbers(&[0])), &[new.as_fd()]);
    // The kick comes after the loop polled: the message is handled first.
    let (link, kick) = (&pair.link, &pair.rings[0].kick);
    assert!(!link.is_closed());
    pair.host.turn_with(0, || {
        let _ = rustix::io::write(kick, &1_u64.to_ne_bytes());
    });
    pair.host.settle();
    assert_eq!(pair.rings[0].take_used(&pair.memory).len(), 1);
}

/// A region of one sparse file: guest address, bytes.
fn sparse_table(bytes: u64) -> Vec<u8> {
    [pair(1, 0), numbers(&[0, bytes, USER, 0])].concat()
}

pub(crate) fn sparse(bytes: u64) -> OwnedFd {
    let file = memfd_create("sparse", MemfdFlags::CLOEXEC).expect("a memfd");
    ftruncate(&file, bytes).expect("it takes no memory");
    file
}

/// Whether this process has room for a mapping of `bytes` bytes.
fn has_addresses(bytes: usize) -> bool {
    let null = std::ptr::null_mut();
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice, unmapped at once.
    unsafe {
        let Ok(at) = mmap_anonymous(null, bytes, ProtFlags::empty(), flags) else { return false };
        munmap(at, bytes).is_ok()
    }
}

#[test]
fn sparse_memory_of_many_front_ends_leaves_addresses_to_the_process() {
    const HUGE: u64 = 16 << 40;
    let mut host = Host::new(Limits::default());
    let directory = tempfile::tempdir().expect("a folder");
    let file = sparse(HUGE);
    let mut links = Vec::new();
    // Eight of the largest size, then ever smaller ones: together they would take every address.
    for id in 1..=25 {
        let bytes = if id <= 8 { HUGE } else { HUGE >> (id - 8).min(16) };
        let socket = SocketSpec {
            path: directory.path().join(format!("{id}.sock")),
            mode: None,
            group: None,
        };
        let export = Export { id: ExportId(id), name: format!("v{id}"), ..export() };
        host.server.add(export, socket).expect("a valid export");
        if id == 25 {
            break;
        }
        let link = host.connect(ExportId(id));
        link.send(&message(16, 0, &numbers(&[PROTOCOL])), &[]);
        link.send(&message(5, 0, &sparse_table(bytes)), &[file.as_fd()]);
        links.push(link);
        host.settle();
        assert!(has_addresses(16 << 40), "after {id} front-ends");
    }
    let refused = host.server.stats().disconnects(Why::CannotMap);
    assert!((1..8).contains(&refused), "{refused}");
    // One of an ordinary size comes along all the same.
    let small = host.connect(ExportId(25));
    small.send(&message(5, 0, &sparse_table(64 << 30)), &[file.as_fd()]);
    host.settle();
    assert!(!small.is_closed());
}

#[test]
fn requests_of_the_past_pin_no_more_than_one_table() {
    const HUGE: u64 = 12 << 40;
    let mut host = Host::serving(Limits::default(), export());
    host.hold = true;
    let mut guests = Vec::new();
    for round in 0..12 {
        let file = sparse(HUGE);
        // The guest's own view of the first megabytes of it, rings included.
        let memory = Memory::over(&file);
        let link = host.connect(ExportId(1));
        let mut guest = Pair::around(host, memory, link);
        guest.features = FEATURES | EVENT_INDEX;
        guest.start_with(&sparse_table(HUGE), &[file.as_fd()]);
        guest.offer(kind::WRITE, round, &[(DATA, 512, false)]);
        guest.kick();
        guests.push(file);
        host = guest.apart().0;
        assert!(has_addresses(16 << 40), "after {round} connections");
    }
    let refused = host.server.stats().disconnects(Why::CannotMap);
    assert!(refused > 0, "the tables of slow requests count");
    host.answer_held(false);
    host.settle();
    assert!(host.is_clear());
}

#[test]
fn coming_back_in_a_loop_does_not_widen_the_bound() {
    let limits = Limits { connection_requests_max: 4, ..Limits::default() };
    let mut pair = Pair::with(limits, export(), 1, FEATURES | EVENT_INDEX);
    pair.host.hold = true;
    for _ in 0..6 {
        for sector in 0..3 {
            pair.offer(kind::WRITE, sector, &[(DATA, 512, false)]);
        }
        pair.kick();
        let held = pair.host.server.stats().held_requests;
        assert!(held <= 4, "{held} requests of one volume");
        pair.rings = vec![crate::vhost_guest::Rings::new(0)];
        pair.memory = Memory::new();
        // The first comes while its predecessor is there still.
        pair.reconnect();
        pair.reconnect();
        pair.set_up(|_| 0);
    }
    // Once they are answered there is room again.
    for _ in 0..4 {
        pair.host.answer_held(false);
        pair.host.settle();
    }
    pair.host.hold = false;
    assert_eq!(pair.write(0, &[7; 512]), 0);
    assert!(pair.host.is_clear());
}

#[test]
fn flushes_of_front_ends_that_come_and_go_are_bounded() {
    let limits = Limits { connection_requests_max: 4, ..Limits::default() };
    let mut host = Host::serving(limits, export());
    host.hold = true;
    for _ in 0..10 {
        let link = host.connect(ExportId(1));
        link.send(&message(2, 0, &numbers(&[FEATURES])), &[]);
        // Write-back off: what was written is to be made durable.
        link.send(&message(25, 0, &[pair(32, 1), vec![0; 4], vec![0]].concat()), &[]);
        host.settle();
        assert!(host.held.len() <= 5, "{} flushes of one volume", host.held.len());
        drop(link);
        host.settle();
    }
    assert!(!host.held.is_empty());
    host.answer_held(false);
    host.settle();
    assert!(host.is_clear());
}

#[test]
fn a_volume_that_was_removed_and_added_waits_for_old_reads_too() {
    let mut pair = Pair::new();
    pair.host.pool.direct = true;
    pair.host.hold = true;
    pair.offer(kind::READ, 8, &[(DATA, 4096, true)]);
    pair.kick();
    assert_eq!(pair.host.held.len(), 1);
    let path = pair.host.socket();
    let (name, elsewhere) = (export().name, std::path::PathBuf::from("/elsewhere"));
    assert!(!pair.host.server.has_left_behind(&name, &path), "it is served");
    assert!(pair.host.server.remove(ExportId(1), &mut pair.host.pool));
    assert!(pair.host.server.has_left_behind(&name, &elsewhere), "by its name");
    assert!(pair.host.server.has_left_behind("another", &path), "by its socket");
    assert!(!pair.host.server.has_left_behind("another", &elsewhere));
    let socket = SocketSpec { path: path.clone(), mode: None, group: None };
    let again = Export { id: ExportId(7), ..export() };
    pair.host.server.add(again, socket).expect("the name is free");
    pair.link = pair.host.connect(ExportId(7));
    pair.host.settle();
    pair.set_up(|_| 0);
    assert_eq!(pair.host.held.len(), 1, "the old read is still under way");
    pair.host.answer_held(false);
    pair.host.settle();
    assert_eq!(pair.host.held.len(), 1, "now it is taken");
    assert!(!pair.host.server.has_left_behind(&name, &path), "the old read has ended");
    pair.host.answer_held(false);
    pair.host.settle();
    assert!(pair.host.is_clear());
}

#[test]
fn memory_for_notes_is_not_piled_up_unread() {
    let mut pair = Pair::strangers(Host::serving(Limits::default(), export()), 1);
    let asked = numbers(&[0, 0, 1024 << 16 | 16]);
    for _ in 0..20 {
        pair.tell(31, &asked, &[]);
    }
    let stats = pair.host.server.stats();
    assert_eq!(stats.disconnects(Why::Unread), 1);
}

#[test]
fn memory_for_notes_costs_nothing_before_it_is_used() {
    let mut pair = Pair::strangers(Host::serving(Limits::default(), export()), 1);
    for _ in 0..3 {
        let (_, fd) = pair.ask(31, &numbers(&[0, 0, 1024 << 16 | 16]));
        let stat = fstat(fd.expect("memory for the notes")).expect("a file");
        assert_eq!(stat.st_blocks, 0);
    }
}

/// Guests of volumes of their own, all at one host.
struct Crowd {
    host: Option<Host>,
    guests: Vec<(Memory, Link, Vec<crate::vhost_guest::Rings>)>,
    directory: tempfile::TempDir,
}

impl Crowd {
    fn new(limits: Limits, count: u32) -> Self {
        let directory = tempfile::tempdir().expect("a folder");
        let mut crowd = Self { host: Some(Host::new(limits)), guests: Vec::new(), directory };
        for id in 1..=count {
            crowd.join(&Export { id: ExportId(id), ..export() });
        }
        crowd
    }

    /// One more, with a volume of its own.
    fn join(&mut self, export: &Export) {
        let mut host = self.host.take().expect("it is put back");
        let id = export.id;
        let path = self.directory.path().join(format!("{}.sock", id.0));
        let socket = SocketSpec { path, mode: None, group: None };
        let export = Export { name: format!("v{}", id.0), ..export.clone() };
        host.server.add(export, socket).expect("a valid export");
        let link = host.connect(id);
        let mut guest = Pair::around(host, Memory::new(), link);
        guest.features = FEATURES | EVENT_INDEX;
        guest.set_up(|_| 0);
        let (host, memory, link, rings) = guest.apart();
        self.host = Some(host);
        self.guests.push((memory, link, rings));
    }

    /// Lets one guest do something.
    fn with<T>(&mut self, at: usize, act: impl FnOnce(&mut Pair) -> T) -> T {
        let host = self.host.take().expect("it is put back");
        let (memory, link, rings) = self.guests.remove(at);
        let mut pair = Pair::around(host, memory, link);
        pair.rings = rings;
        let result = act(&mut pair);
        let (host, memory, link, rings) = pair.apart();
        self.host = Some(host);
        self.guests.insert(at, (memory, link, rings));
        result
    }

    fn host(&mut self) -> &mut Host {
        self.host.as_mut().expect("it is put back")
    }
}

#[test]
fn a_large_request_is_served_however_busy_the_others_are() {
    // Room for two longest requests, which is the least there can be.
    let limits = Limits { bytes_max: 1, connection_bytes_max: 1, ..Limits::default() };
    let mut crowd = Crowd::new(limits, 4);
    crowd.host().hold = true;
    let busy = |crowd: &mut Crowd, at: usize| {
        crowd.with(at, |guest| {
            guest.offer(kind::WRITE, 0, &[(0, 1 << 20, false)]);
            guest.kick();
        });
    };
    for _ in 0..12 {
        (0..3).for_each(|at| busy(&mut crowd, at));
    }
    // 32 pieces of a mebibyte.
    crowd.host().disk.resize(64 << 20, 0);
    crowd.join(&Export { id: ExportId(9), size_bytes: 64 << 20, ..export() });
    crowd.with(4, |guest| {
        guest.offer(kind::WRITE, 0, &vec![(0, 1 << 20, false); 32]);
        guest.kick();
    });
    // The other connections continue: as soon as one of their requests is answered, they send the
    // next.
    for round in 0..400 {
        if crowd.host().seen.iter().any(|seen| seen.2 == 32 << 20) {
            return;
        }
        let oldest = crowd.host().held.remove(0);
        crowd.host().answer(oldest);
        busy(&mut crowd, round % 3);
    }
    panic!("the large one is never served");
}

/// Guests of which the first and the second have large disks, and room for no more than two longest
/// requests. The first one's hangs, the second one waits for room, and so does a third for a second
/// request of its own.
fn crowd_behind_one_that_hangs() -> Crowd {
    let mut crowd = Crowd::new(Limits { bytes_max: 1, ..Limits::default() }, 0);
    crowd.host().hold = true;
    crowd.host().disk.resize(64 << 20, 0);
    for id in 1..=3 {
        crowd.join(&Export { id: ExportId(id), size_bytes: 64 << 20, ..export() });
    }
    for (at, sector, pieces) in [(0, 0, 30), (1, 8, 30)] {
        crowd.with(at, |guest| {
            guest.offer(kind::WRITE, sector, &vec![(0, 1 << 20, false); pieces]);
            guest.kick();
        });
    }
    assert_eq!(crowd.host().held.len(), 1, "what is left is not enough for another one");
    crowd.with(2, |guest| {
        for sector in 100..105 {
            guest.offer(kind::WRITE, sector, &[(DATA, 512, false)]);
        }
        guest.kick();
    });
    assert_eq!(crowd.host().held.len(), 2, "one at a time, behind the one that waits longest");
    crowd
}

#[test]
fn a_queue_that_waits_in_vain_does_not_hold_up_others_for_as_long_as_back_ends_hang() {
    let mut crowd = crowd_behind_one_that_hangs();
    // Though nothing else happens.
    crowd.host().now = crowd.host().now.plus_ns(11_000_000_000);
    crowd.host().settle();
    assert_eq!(crowd.host().held.len(), 6, "all that it asks for");
    // As soon as the hung one is answered there is room, in its turn.
    crowd.host().answer_held(false);
    crowd.host().settle();
    assert_eq!(crowd.host().seen.last(), Some(&('w', 8 * 512, 30 << 20, false)));
    crowd.host().answer_held(false);
    crowd.host().settle();
    assert!(crowd.host().is_clear());
}

#[test]
fn a_front_end_that_leaves_while_it_waits_holds_up_nobody_and_asks_for_nothing() {
    let mut crowd = crowd_behind_one_that_hangs();
    let (memory, link, _rings) = crowd.guests.remove(1);
    drop(link);
    crowd.host().settle();
    assert_eq!(crowd.host().held.len(), 6, "the hung one, and all that the third asks for");
    // Its memory is there still, and what it asked for, too.
    crowd.host().answer_held(false);
    crowd.host().settle();
    assert!(crowd.host().seen.iter().all(|seen| seen.1 != 8 * 512));
    assert!(crowd.host().is_clear());
    drop(memory);
}

/// Its successor's requests may be answered before: what came late would undo them.
#[test]
fn what_a_front_end_that_left_did_not_get_through_never_reaches_its_successors_disk() {
    let limits = Limits { connection_requests_max: 4, ..Limits::default() };
    let mut pair = Pair::with(limits, export(), 1, FEATURES | EVENT_INDEX);
    pair.host.hold = true;
    for sector in 0..8 {
        pair.offer(kind::WRITE, sector, &[(DATA, 512, false)]);
    }
    pair.kick();
    assert_eq!(pair.host.held.len(), 4, "the others wait in the ring");
    // Another kick is pending when it leaves.
    pair.rings[0].ring_bell();
    let old = std::mem::replace(&mut pair.rings, vec![crate::vhost_guest::Rings::new(0)]);
    let memory = std::mem::replace(&mut pair.memory, Memory::new());
    pair.reconnect();
    pair.reconnect();
    pair.set_up(|_| 0);
    pair.memory.write(DATA, &[9; 512]);
    pair.offer(kind::WRITE, 7, &[(DATA, 512, false)]);
    pair.kick();
    assert_eq!(pair.host.held.len(), 4, "the bound is their guest's");
    let oldest = pair.host.held.remove(0);
    pair.host.answer(oldest);
    pair.host.settle();
    assert_eq!(pair.host.seen[4..], [('w', 7 * 512, 512, false)], "behind what the engine had");
    old[0].ring_bell();
    pair.host.answer_held(false);
    pair.host.settle();
    assert_eq!(pair.host.seen.len(), 5, "nothing of the old one's comes after it");
    assert_eq!(pair.disk(7, 512), [9; 512]);
    assert!(pair.host.is_clear());
    drop((old, memory));
}

#[test]
fn a_turn_is_bounded_in_descriptors() {
    let mut pair = Pair::new();
    // Tables of a thousand empty pieces, each a request.
    let table = HEADER + 0x20_000;
    let mut entries = descriptor(HEADER, 16, NEXT, 1);
    for next in 2..1023 {
        entries.extend(descriptor(DATA, 0, NEXT, next));
    }
    entries.extend(descriptor(STATUS, 1, WRITE, 0));
    pair.memory.write(table, &entries);
    pair.memory.write(HEADER, &crate::vhost_guest::header(kind::FLUSH, 0));
    for index in 0..64 {
        pair.rings[0].describe(&pair.memory, index, table, entries.len() as u32, 4, 0);
        pair.rings[0].push(&pair.memory, index);
    }
    pair.rings[0].ring_bell();
    pair.host.turn(0);
    let taken = pair.host.seen.len();
    // A turn looks twice: when it is kicked, and at what it left.
    assert!((1..=10).contains(&taken), "{taken} requests of a thousand descriptors in one turn");
    pair.host.settle();
    assert_eq!(pair.host.seen.len(), 64);
}

#[test]
fn a_turn_is_bounded_in_bytes() {
    let mut pair = Pair::new();
    for _ in 0..20 {
        pair.offer(kind::WRITE, 0, &[(0, 1 << 20, false)]);
    }
    pair.rings[0].ring_bell();
    pair.host.turn(0);
    let taken = pair.host.seen.len();
    assert!((1..=10).contains(&taken), "{taken} mebibytes were copied in one turn");
    pair.host.settle();
    assert_eq!(pair.host.seen.len(), 20);
}

#[test]
fn completions_that_make_too_little_room_walk_no_chain() {
    let limits = Limits { bytes_max: 1, connection_bytes_max: 1, ..Limits::default() };
    let mut crowd = Crowd::new(limits, 3);
    crowd.host().hold = true;
    for at in [0, 1] {
        crowd.with(at, |guest| {
            for _ in 0..21 {
                guest.offer(kind::WRITE, 0, &[(0, 1 << 20, false)]);
            }
            guest.kick();
            // It is full, and has more in its ring.
            for _ in 0..10 {
                guest.offer(kind::WRITE, 0, &[(0, 1 << 20, false)]);
            }
            guest.kick();
        });
    }
    assert!(crowd.host().server.stats().pauses >= 2);
    let before = crowd.host().server.stats().chains;
    // Requests without a buffer come and go; each of their completions lets go of something.
    for _ in 0..20 {
        crowd.with(2, |guest| {
            guest.offer(kind::FLUSH, 0, &[]);
            guest.kick();
            let flush = guest.host.held.pop().expect("it was taken");
            guest.host.answer(flush);
            guest.host.settle();
        });
    }
    assert_eq!(crowd.host().server.stats().chains, before + 20, "only the flushes themselves");
}

#[test]
fn a_guest_has_no_more_memory_than_its_volume_allows() {
    let limited = Export { memory_bytes_max: 1 << 30, ..export() };
    let mut host = Host::serving(Limits::default(), limited);
    let file = sparse(2 << 30);
    for (bytes, is_cut_off) in [(1 << 30, false), ((1 << 30) + 4096, true)] {
        let link = host.connect(ExportId(1));
        link.send(&message(5, 0, &sparse_table(bytes)), &[file.as_fd()]);
        host.settle();
        assert_eq!(link.is_closed(), is_cut_off, "{bytes}");
        drop(link);
        host.settle();
    }
    assert_eq!(host.server.stats().disconnects(Why::MemoryMax), 1);
}

/// Each of 64 front ends of an image had a depth of its own, at the expense of all guests of the data thread.
#[test]
fn front_ends_of_a_read_only_disk_share_its_depth_and_each_has_one() {
    let limits = Limits { connection_requests_max: 8, ..Limits::default() };
    let mut host = Host::serving(limits, Export { read_only: true, ..export() });
    host.hold = true;
    let mut guests = Vec::new();
    for held in [6, 8, 9] {
        let link = host.connect(ExportId(1));
        let mut pair = Pair::around(host, Memory::new(), link);
        pair.features = FEATURES & !(3 << 13);
        pair.set_up(|_| 0);
        for _ in 0..6 {
            pair.offer(kind::READ, 0, &[(DATA, 4096, true)]);
        }
        pair.kick();
        assert_eq!(pair.host.held.len(), held);
        let (back, memory, link, rings) = pair.apart();
        host = back;
        guests.push((memory, link, rings));
    }
    let mut answered = 0;
    while !host.held.is_empty() {
        answered += host.held.len();
        assert!(host.held.len() <= 9, "{}", host.held.len());
        host.answer_held(false);
        host.settle();
    }
    assert_eq!(answered, 18, "what waited goes on");
}
