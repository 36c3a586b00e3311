//! The ring itself: set-up with fall-backs, its table of files, a queue that is never full, waiting.

use super::PortError;
use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::time::Duration;

/// Submissions of one system call.
const SQ_ENTRIES: u32 = 256;
/// Completions between two calls; the kernel keeps what goes beyond, at a price.
const CQ_ENTRIES: u32 = 4096;
/// Pause when the kernel is out of memory for the moment.
const PAUSE: Duration = Duration::from_millis(1);

/// See the module.
pub(super) struct Ring {
    inner: IoUring,
    /// What the submission queue had no room for, in order.
    waiting: VecDeque<squeue::Entry>,
    /// Places in its table of files; `None`: it has none, and every I/O names a descriptor.
    files_max: Option<u32>,
}

/// A completion, copied out of the queue.
pub(super) struct Completion {
    pub(super) user_data: u64,
    /// As a system call's, errors negative.
    pub(super) result: i32,
    /// Others of the same submission follow.
    pub(super) more: bool,
}

impl Ring {
    pub(super) fn new() -> Result<Self, PortError> {
        // Before Linux 6.13 a file that leaves the table stays open until every I/O that was under
        // way has ended, those of other files, too; and its lock stays with it.
        Self::with_table(is_linux(6, 13))
    }

    /// One with a table of files, or one whose I/Os name a descriptor each.
    pub(super) fn with_table(table: bool) -> Result<Self, PortError> {
        let ring = build()?;
        let params = ring.params();
        // Completions are never lost, waits have time-outs, and lists of buffers are copied at
        // submission: Linux 5.11.
        if !(params.is_feature_nodrop()
            && params.is_feature_ext_arg()
            && params.is_feature_submit_stable())
        {
            return Err(PortError { during: "io_uring of this kernel", errno: Errno::NOSYS });
        }
        check_opcodes(&ring)?;
        let files_max = if table { Some(register_files(&ring)?) } else { None };
        Ok(Self { inner: ring, waiting: VecDeque::new(), files_max })
    }

    /// Puts an open file in a slot of the table, or with -1 empties it.
    pub(super) fn set_file(&self, slot: u32, fd: RawFd) -> rustix::io::Result<()> {
        if slot >= self.files_max.unwrap_or(super::super::FILES_MAX) {
            return Err(Errno::NFILE);
        }
        if self.files_max.is_none() {
            return Ok(());
        }
        self.inner
            .submitter()
            .register_files_update(slot, &[fd])
            .map(drop)
            .map_err(|error| errno_of(&error))
    }

    /// The submission that `entry` makes, for the file of this slot.
    pub(super) fn entry_on(
        &self,
        slot: u32,
        fd: BorrowedFd<'_>,
        entry: impl FnOnce(types::Fd) -> squeue::Entry,
    ) -> squeue::Entry {
        if self.files_max.is_some() {
            let slot = slot.cast_signed();
            entry(types::Fd(slot)).flags(squeue::Flags::FIXED_FILE)
        } else {
            entry(types::Fd(fd.as_raw_fd()))
        }
    }

    /// Lets the kernel start so many threads for I/O that it can't start without waiting.
    pub(super) fn allow_threads(&self, count: u32) {
        // Not before Linux 5.15; then it is four a CPU.
        let _ = self.inner.submitter().register_iowq_max_workers(&mut [count, 0]);
    }

    /// Queues a submission; it starts with the next [`enter`](Self::enter).
    pub(super) fn push(&mut self, entry: squeue::Entry) {
        if !self.waiting.is_empty() || !self.try_push(&entry) {
            self.waiting.push_back(entry);
        }
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: buffers named by an entry belong to a task, which is kept until the completion,
        // or to the port, which outlives the ring's work; lists of buffers don't move until the
        // submission, for they are on the heap.
        unsafe { self.inner.submission().push(entry) }.is_ok()
    }

    fn refill(&mut self) {
        while let Some(entry) = self.waiting.pop_front() {
            if !self.try_push(&entry) {
                self.waiting.push_front(entry);
                break;
            }
        }
    }

    /// Nothing is queued, and nothing has come.
    pub(super) fn is_idle(&mut self) -> bool {
        self.waiting.is_empty()
            && self.inner.submission().is_empty()
            && self.inner.completion().is_empty()
    }

    /// Starts what is queued and waits for a completion, `timeout` or a signal. Usually one system
    /// call, and none when there is nothing to start and no waiting.
    pub(super) fn enter(&mut self, timeout: Option<Duration>) -> rustix::io::Result<()> {
        loop {
            self.refill();
            // More is to be started: not yet the time to wait.
            let more = !self.waiting.is_empty();
            let ready = more || !self.inner.completion().is_empty();
            let result = match timeout {
                _ if ready => self.start(),
                Some(Duration::ZERO) => self.start(),
                Some(timeout) => {
                    let time =
                        types::Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
                    let args = types::SubmitArgs::new().timespec(&time);
                    self.inner
                        .submitter()
                        .submit_with_args(1, &args)
                        .map_err(|error| errno_of(&error))
                }
                None => self.inner.submitter().submit_and_wait(1).map_err(|error| errno_of(&error)),
            };
            match result {
                Ok(_) if more => {}
                Ok(_) | Err(Errno::TIME | Errno::INTR) => return Ok(()),
                // Completions must be taken before more can be started.
                Err(Errno::BUSY) if !self.inner.completion().is_empty() => return Ok(()),
                Err(Errno::BUSY | Errno::AGAIN | Errno::NOMEM) => {
                    std::thread::sleep(PAUSE);
                    return Ok(());
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    fn start(&mut self) -> rustix::io::Result<usize> {
        let queue = self.inner.submission();
        let idle = queue.is_empty() && !queue.taskrun() && !queue.cq_overflow();
        drop(queue);
        if idle {
            return Ok(0);
        }
        self.inner.submitter().submit().map_err(|error| errno_of(&error))
    }

    /// Takes the completions that are there.
    pub(super) fn completions(&mut self, list: &mut Vec<Completion>) {
        list.extend(self.inner.completion().map(|entry| Completion {
            user_data: entry.user_data(),
            result: entry.result(),
            more: cqueue::more(entry.flags()),
        }));
    }

    /// Ends whatever still waits in the kernel, and lets go of all files now: closing the ring does
    /// so only some time later, and locks would be held until then.
    pub(super) fn cancel_all(&mut self) {
        self.waiting.clear();
        let submitter = self.inner.submitter();
        let _ = submitter.register_sync_cancel(None, types::CancelBuilder::any());
        let _ = submitter.unregister_files();
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn failed(during: &'static str) -> impl Fn(std::io::Error) -> PortError {
    move |error| PortError { during, errno: errno_of(&error) }
}

/// Tries the quickest way first; the flags came with Linux 6.1, 6.0 and 5.19.
fn build() -> Result<IoUring, PortError> {
    let deferred = IoUring::builder()
        .setup_clamp()
        .setup_cqsize(CQ_ENTRIES)
        .setup_submit_all()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(SQ_ENTRIES);
    deferred
        .or_else(|_| {
            IoUring::builder()
                .setup_clamp()
                .setup_cqsize(CQ_ENTRIES)
                .setup_coop_taskrun()
                .setup_taskrun_flag()
                .build(SQ_ENTRIES)
        })
        .or_else(|_| IoUring::builder().setup_clamp().setup_cqsize(CQ_ENTRIES).build(SQ_ENTRIES))
        .map_err(failed("io_uring_setup"))
}

fn check_opcodes(ring: &IoUring) -> Result<(), PortError> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(failed("io_uring probe"))?;
    let needed = [
        opcode::Read::CODE,
        opcode::Readv::CODE,
        opcode::Write::CODE,
        opcode::Writev::CODE,
        opcode::PollAdd::CODE,
        opcode::PollRemove::CODE,
    ];
    if needed.iter().all(|&code| probe.is_supported(code)) {
        Ok(())
    } else {
        Err(PortError { during: "io_uring operations of this kernel", errno: Errno::NOSYS })
    }
}

/// Makes an empty table of files, as large as the limit on open files allows.
fn register_files(ring: &IoUring) -> Result<u32, PortError> {
    let mut size = super::super::FILES_MAX;
    loop {
        let table = vec![-1; size as usize];
        match ring.submitter().register_files(&table) {
            Ok(()) => return Ok(size),
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) && size > 16 => size /= 2,
            Err(error) => return Err(failed("io_uring file table")(error)),
        }
    }
}

/// Whether the kernel is at least this one.
fn is_linux(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    version(&release).is_some_and(|known| known >= (major, minor))
}

/// `6.8.0-45-generic` is 6.8.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_apart() {
        assert_eq!(version("6.8.0-45-generic"), Some((6, 8)));
        assert_eq!(version("6.13-rc1"), Some((6, 13)));
        assert_eq!(version("5.15.167.4-microsoft-standard"), Some((5, 15)));
        assert!(version("next").is_none());
        assert!(is_linux(4, 0) && !is_linux(1000, 0));
    }
}
