//! A guest at a vhost-user socket that comes back: what its last connection asked for is still under
//! way, and must not undo what it writes now.

use super::rig::{Rig, both, pattern};
use super::vhost_guest::{FEATURES, Link, Memory, Rings, header, message, set_up};
use rustix::fs::{OFlags, fcntl_setfl};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

const READ: u32 = 0;
const WRITE: u32 = 1;
/// Where requests keep header, status and data.
const HEADER: u64 = 0x10_0000;
const STATUS: u64 = HEADER + 0x800;
const DATA: u64 = 0x11_0000;

/// A virtual machine with one queue.
pub(super) struct Guest {
    memory: Memory,
    rings: Rings,
    /// Its front end's connection.
    _link: Link,
    made: u64,
}

impl Guest {
    pub(super) fn start(socket: &Path) -> Self {
        let link = OwnedFd::from(UnixStream::connect(socket).expect("the daemon listens"));
        fcntl_setfl(&link, OFlags::NONBLOCK).expect("a socket");
        let (link, memory, rings) = (Link(link), Memory::new(), Rings::new(0));
        let rings = [rings];
        set_up(&link, &memory, &rings, FEATURES, |_| 0, &mut |link, kind, payload, fds| {
            link.send(&message(kind, 0, payload), fds);
        });
        let [rings] = rings;
        Self { memory, rings, _link: link, made: 0 }
    }

    /// Asks for something; returns where its status will be.
    fn offer(&mut self, kind: u32, sector: u64, len: u32) -> u64 {
        let (at, status) = (HEADER + 16 * self.made, STATUS + self.made);
        self.made += 1;
        self.memory.write(at, &header(kind, sector));
        self.memory.write(status, &[0xff]);
        let pieces = [(at, 16, false), (DATA, len, kind == READ), (status, 1, true)];
        self.rings.offer(&self.memory, &pieces);
        self.rings.ring_bell();
        status
    }

    /// Waits for the only request under way; its status.
    fn finish(&mut self, status: u64) -> u8 {
        let until = Instant::now() + Duration::from_mins(1);
        while self.rings.take_used(&self.memory).is_empty() {
            assert!(Instant::now() < until, "it is not answered");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.memory.read(status, 1)[0]
    }

    fn write(&mut self, sector: u64, data: &[u8]) -> u8 {
        self.memory.write(DATA, data);
        let status = self.offer(WRITE, sector, data.len() as u32);
        self.finish(status)
    }

    pub(super) fn read(&mut self, sector: u64, len: u32) -> Vec<u8> {
        let status = self.offer(READ, sector, len);
        assert_eq!(self.finish(status), 0);
        self.memory.read(DATA, len.into())
    }
}

#[test]
fn a_write_of_a_connection_that_is_gone_never_lands_on_its_successors() {
    both(|io| {
        let mut rig = Rig::new(io, &["vm1"]);
        let socket = rig.path("vm1.vhost");
        let volume = &mut rig.config.volumes[0];
        volume.backend = format!("sim:network,packet=300ms:{}", volume.backend);
        (volume.nbd, volume.vhost_user) = (None, Some(socket.clone()));
        volume.backend_timeout = Duration::ZERO;
        rig.start();
        let mut first = Guest::start(&socket);
        first.memory.write(DATA, &[7; 8192]);
        // Parts of blocks at both ends, and a whole one between.
        first.offer(WRITE, 9, 8192);
        while rig.status().volumes[0].oldest.is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(first);
        let mut second = Guest::start(&socket);
        assert_eq!(second.write(9, &[8; 512]), 0);
        assert_eq!(second.write(16, &[9; 4096]), 0);
        let expected = [&[8; 512][..], &[7; 3072], &[9; 4096], &[7; 512]].concat();
        for _ in 0..2 {
            assert_eq!(second.read(8, 512), pattern(4096, 512));
            assert!(second.read(9, 8192) == expected, "the newest acknowledged writes");
        }
        drop(second);
        assert!(rig.stop().clean);
        let file = std::fs::read(rig.path("vm1.raw")).expect("it is there");
        assert!(file[9 * 512..][..8192] == expected, "on the back end, too");
    });
}
