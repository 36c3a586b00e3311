//! An independent front-end: the `vhost` crate's, over a real socket, against a server in a thread.

use crate::vhost_guest::{HALF, Memory, Rings, SECOND, SIZE, USER, header};
use crate::vhost_host::{Host, export};
use crate::vhost_pair::{DATA, HEADER, STATUS, kind};
use cinnabar_frontend::vhost::Limits;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

/// A guest's data and rings, set up through the library.
fn start(front: &mut Frontend, memory: &Memory, rings: &Rings) -> (EventFd, EventFd) {
    let features = front.get_features().expect("features");
    front.set_features(features).expect("agreed");
    let offered = front.get_protocol_features().expect("features of the protocol");
    let wanted = VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::INFLIGHT_SHMFD
        | VhostUserProtocolFeatures::LOG_SHMFD;
    assert!(offered.contains(wanted));
    front.set_protocol_features(wanted).expect("agreed");
    front.set_hdr_flags(vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY);
    front.set_owner().expect("the owner is set");
    assert_eq!(front.get_queue_num().expect("queues"), 4);
    let region = |guest, offset| VhostUserMemoryRegionInfo {
        guest_phys_addr: guest,
        memory_size: HALF,
        userspace_addr: USER + offset,
        mmap_offset: offset,
        mmap_handle: memory.file.as_raw_fd(),
    };
    front.set_mem_table(&[region(0, 0), region(SECOND, HALF)]).expect("mapped");
    let config = VringConfigData {
        queue_max_size: SIZE,
        queue_size: SIZE,
        flags: 0,
        desc_table_addr: USER + rings.descriptors(),
        used_ring_addr: USER + rings.used(),
        avail_ring_addr: USER + rings.available(),
        log_addr: None,
    };
    front.set_vring_num(0, SIZE).expect("set");
    front.set_vring_base(0, 0).expect("set");
    front.set_vring_addr(0, &config).expect("set");
    let (kick, call) = (EventFd::new(0).expect("kick"), EventFd::new(0).expect("call"));
    front.set_vring_kick(0, &kick).expect("set");
    front.set_vring_call(0, &call).expect("set");
    front.set_vring_enable(0, true).expect("set");
    (kick, call)
}

fn serve(mut host: Host, end: &Receiver<()>) {
    while end.try_recv() == Err(TryRecvError::Empty) {
        host.turn(5);
    }
    host.settle();
    assert!(host.is_clear());
}

#[test]
fn a_guest_of_the_vhost_crate_reads_and_writes() {
    let host = Host::serving(Limits::default(), export());
    let socket = host.socket();
    let (stop, end) = channel();
    // The host is made here, and moves: a server is no prisoner of its thread.
    let thread = std::thread::spawn(move || serve(host, &end));
    let mut front = Frontend::connect(&socket, 4).expect("it listens");
    let (memory, mut rings) = (Memory::new(), Rings::new(0));
    let (kick, call) = start(&mut front, &memory, &rings);
    let space =
        front.get_config(0, 60, VhostUserConfigFlags::WRITABLE, &[0; 60]).expect("config").1;
    assert_eq!(space[..8], (((1 << 20) + 512_u64) / 512).to_le_bytes());
    let wanted =
        VhostUserInflight { mmap_size: 0, mmap_offset: 0, num_queues: 1, queue_size: SIZE };
    let (inflight, file) = front.get_inflight_fd(&wanted).expect("memory for notes");
    assert!(inflight.mmap_size >= 16 + 16 * u64::from(SIZE));
    front.set_inflight_fd(&inflight, file.into_raw_fd()).expect("taken back");
    memory.write(DATA, &[7; 1024]);
    let requests = [(kind::WRITE, DATA, false), (kind::READ, DATA + 0x1000, true)];
    for (event, (kind, at, writable)) in (0..).zip(requests) {
        rings.want_call_after(&memory, event);
        memory.write(HEADER, &header(kind, 6));
        memory.write(STATUS, &[0xff]);
        rings.offer(&memory, &[(HEADER, 16, false), (at, 1024, writable), (STATUS, 1, true)]);
        kick.write(1).expect("kicked");
        let deadline = Instant::now() + Duration::from_secs(10);
        while rings.take_used(&memory).is_empty() {
            // The server has made it non-blocking.
            // SAFETY: `call` is open until the end of the test.
            let fd = unsafe { BorrowedFd::borrow_raw(call.as_raw_fd()) };
            let mut polls = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
            let wait = Timespec { tv_sec: 10, tv_nsec: 0 };
            assert_eq!(poll(&mut polls, Some(&wait)), Ok(1), "a call comes");
            assert!(Instant::now() < deadline);
            call.read().expect("the guest was called");
        }
        assert_eq!(memory.read(STATUS, 1), [0]);
    }
    assert_eq!(memory.read(DATA + 0x1000, 1024), vec![7; 1024]);
    assert_eq!(front.get_vring_base(0).expect("stopped"), 2);
    drop(front);
    stop.send(()).expect("it runs");
    thread.join().expect("no panic");
}
