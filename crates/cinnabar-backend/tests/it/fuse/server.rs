//! The server of the test's file system: one thread, one request at a time, some kept for later.

use super::Knobs;
use super::proto::{Out, Request, opcode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Number of the folder; files have the ones behind it, by the order of their names' arrival.
const ROOT: u64 = 1;
/// Longest write, in bytes.
const WRITE_MAX: u32 = 128 << 10;

/// See the module.
pub(super) struct Server {
    device: OwnedFd,
    knobs: Arc<Knobs>,
    stop: Arc<AtomicBool>,
    /// By node number, from `ROOT + 1` on.
    names: Vec<String>,
    waiting: Vec<Request>,
}

impl Server {
    pub(super) fn new(device: OwnedFd, knobs: Arc<Knobs>, stop: Arc<AtomicBool>) -> Self {
        Self { device, knobs, stop, names: Vec::new(), waiting: Vec::new() }
    }

    pub(super) fn run(mut self) {
        let mut buffer = vec![0; 1 << 20];
        while !self.stop.load(SeqCst) {
            let pause = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
            let mut fds = [PollFd::new(&self.device, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&pause));
            match rustix::io::read(&self.device, &mut buffer) {
                Ok(len) => self.take(Request::parse(&buffer[..len])),
                Err(rustix::io::Errno::NODEV) => return,
                Err(_) => {}
            }
            self.release();
        }
    }

    /// Carries a request out, or keeps it.
    fn take(&mut self, request: Request) {
        let kept = matches!(
            request.opcode,
            opcode::READ | opcode::WRITE | opcode::FSYNC | opcode::FALLOCATE
        );
        if kept && self.knobs.hangs(&self.name_of(request.node)) {
            self.waiting.push(request);
            self.knobs.waiting.fetch_add(1, SeqCst);
        } else {
            self.answer(&request);
        }
    }

    /// Carries out what need not wait any more.
    fn release(&mut self) {
        for request in std::mem::take(&mut self.waiting) {
            if self.knobs.hangs(&self.name_of(request.node)) {
                self.waiting.push(request);
            } else {
                self.knobs.waiting.fetch_sub(1, SeqCst);
                self.answer(&request);
            }
        }
    }

    fn answer(&mut self, request: &Request) {
        let message = match self.carry_out(request) {
            Some(Ok(out)) => out.message(request.unique, 0),
            Some(Err(error)) => Out::default().message(request.unique, error),
            None => return,
        };
        // One that was interrupted is not waited for any more.
        let _ = rustix::io::write(&self.device, &message);
    }

    fn name_of(&self, node: u64) -> String {
        let index = node.checked_sub(ROOT + 1).map(|index| index as usize);
        index.and_then(|index| self.names.get(index)).cloned().unwrap_or_default()
    }

    fn node_of(&mut self, name: &str) -> u64 {
        let known = self.names.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        ROOT + 1 + index as u64
    }

    fn size_of(&self, name: &str) -> Option<u64> {
        self.knobs.files().get(name).map(|bytes| bytes.len() as u64)
    }

    /// The answer, or an error number; `None`: this request has none.
    fn carry_out(&mut self, request: &Request) -> Option<Result<Out, i32>> {
        let done = || Some(Ok(Out::default()));
        match request.opcode {
            opcode::INIT => {
                // Asynchronous reads, big writes, locks of descriptions, asynchronous direct I/O.
                let flags = 1 | 1 << 5 | 1 << 10 | 1 << 15;
                let out = Out::default().u32(7).u32(31).u32(WRITE_MAX).u32(flags);
                let out = out.u16(1024).u16(1024).u32(WRITE_MAX).u32(1).u16(32).u16(0);
                Some(Ok(out.bytes(&[0; 32])))
            }
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => None,
            opcode::RELEASE | opcode::FLUSH | opcode::RELEASEDIR | opcode::FSYNCDIR => done(),
            opcode::OPEN | opcode::OPENDIR => Some(Ok(Out::default().open())),
            opcode::FSYNC => {
                self.knobs.flushes.fetch_add(1, SeqCst);
                let fails = &self.knobs.failing_flushes;
                let failed = fails.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
                Some(if failed { Err(libc::EIO) } else { Ok(Out::default()) })
            }
            opcode::SETLK => {
                let locked = self.knobs.locked_elsewhere.load(SeqCst);
                Some(if locked { Err(libc::EAGAIN) } else { Ok(Out::default()) })
            }
            opcode::STATFS => Some(Ok(self.room())),
            _ => Some(self.on_files(request)),
        }
    }

    fn on_files(&mut self, request: &Request) -> Result<Out, i32> {
        let own = self.name_of(request.node);
        match request.opcode {
            opcode::LOOKUP => {
                let name = request.name(0);
                let size = self.size_of(&name).ok_or(libc::ENOENT)?;
                let node = self.node_of(&name);
                Ok(Out::default().entry(node, size))
            }
            opcode::CREATE => {
                let name = request.name(16);
                self.knobs.files().entry(name.clone()).or_default();
                let (node, size) = (self.node_of(&name), self.size_of(&name));
                Ok(Out::default().entry(node, size.unwrap_or(0)).open())
            }
            opcode::UNLINK => {
                self.knobs.files().remove(&request.name(0));
                Ok(Out::default())
            }
            opcode::GETATTR if request.node == ROOT => {
                Ok(Out::default().u64(0).u64(0).attributes(ROOT, None))
            }
            opcode::GETATTR => {
                let size = self.size_of(&own).unwrap_or(0);
                Ok(Out::default().u64(0).u64(0).attributes(request.node, Some(size)))
            }
            opcode::SETATTR => {
                let mut files = self.knobs.files();
                let bytes = files.entry(own).or_default();
                if request.u32(0) & 1 << 3 != 0 {
                    bytes.resize(request.u64(16) as usize, 0);
                }
                let size = bytes.len() as u64;
                Ok(Out::default().u64(0).u64(0).attributes(request.node, Some(size)))
            }
            opcode::READ | opcode::WRITE | opcode::FALLOCATE => self.transfer(request, &own),
            _ => Err(libc::ENOSYS),
        }
    }

    fn transfer(&self, request: &Request, name: &str) -> Result<Out, i32> {
        let mut files = self.knobs.files();
        let bytes = files.get_mut(name).ok_or(libc::ENOENT)?;
        let (at, len) = (request.u64(8) as usize, request.u32(16) as usize);
        match request.opcode {
            opcode::READ => {
                let start = at.min(bytes.len());
                Ok(Out::default().bytes(&bytes[start..(at + len).min(bytes.len())]))
            }
            opcode::WRITE => {
                let data = &request.body[40..40 + len];
                bytes.resize(bytes.len().max(at + len), 0);
                bytes[at..at + len].copy_from_slice(data);
                self.knobs.writes.fetch_add(1, SeqCst);
                Ok(Out::default().u32(len as u32).u32(0))
            }
            _ => {
                let (len, mode) = (request.u64(16) as usize, request.u32(24));
                // Punching and zeroing; making room needs no work in memory.
                if mode & 0x12 != 0 {
                    let end = (at + len).min(bytes.len());
                    bytes[at.min(end)..end].fill(0);
                }
                Ok(Out::default())
            }
        }
    }

    fn room(&self) -> Out {
        let blocks = if self.knobs.tells_no_room.load(SeqCst) { 0 } else { 1 << 20 };
        let out = Out::default().u64(blocks).u64(blocks).u64(blocks).u64(0).u64(0);
        out.u32(4096).u32(255).u32(4096).u32(0).bytes(&[0; 24])
    }
}
