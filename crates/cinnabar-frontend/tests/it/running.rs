//! A [`Host`] in a thread of its own, listening at a socket in a temporary directory.

use crate::host::{Disk, Host};
use cinnabar_frontend::nbd::{Address, DisconnectReason, Export, Limits, Stats};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

type Job = Box<dyn FnOnce(&mut Host) + Send>;

/// Stops when dropped.
pub(crate) struct Running {
    pub(crate) socket: PathBuf,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

/// Disks of the exports, all zeros.
pub(crate) fn memory(export: &Export) -> Disk {
    Disk::Memory(vec![0; usize::try_from(export.size_bytes).expect("small")])
}

/// Disks that answer on command.
pub(crate) fn held(export: &Export) -> Disk {
    Disk::Held(vec![0; usize::try_from(export.size_bytes).expect("small")])
}

/// A server for each way of polling.
pub(crate) fn both(limits: &Limits, exports: &[Export], disk: fn(&Export) -> Disk) -> [Running; 2] {
    let (level, edge) = (limits.clone(), limits.clone());
    [
        Running::start_host(move || Host::new(level), exports.to_vec(), disk),
        Running::start_host(move || Host::edge_triggered(edge), exports.to_vec(), disk),
    ]
}

impl Running {
    /// Serves `exports`, all at one socket.
    pub(crate) fn start(limits: Limits, exports: Vec<Export>, disk: fn(&Export) -> Disk) -> Self {
        Self::start_host(move || Host::new(limits), exports, disk)
    }

    /// The same on a host made by `make`.
    pub(crate) fn start_host(
        make: impl FnOnce() -> Host + Send + 'static,
        exports: Vec<Export>,
        disk: fn(&Export) -> Disk,
    ) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("nbd.sock");
        let address = Address::Unix(socket.clone());
        let (jobs, queue) = channel::<Job>();
        let thread = std::thread::spawn(move || serve(make(), &queue));
        let running =
            Self { socket, jobs: Some(jobs), thread: Some(thread), _directory: directory };
        running.run(move |host| {
            let ids: Vec<_> = exports.iter().map(|export| export.id).collect();
            for export in exports {
                let disk = disk(&export);
                host.add(export, disk);
            }
            host.server.listen(&address, &ids).expect("the socket is free");
        });
        running
    }

    /// Does something in the server's thread.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Host) -> T + Send + 'static,
    ) -> T {
        let (done, result) = channel();
        let job: Job = Box::new(move |host| done.send(job(host)).expect("the test waits"));
        self.jobs.as_ref().expect("it runs").send(job).expect("the thread runs");
        result.recv_timeout(Duration::from_secs(20)).expect("the thread answers")
    }

    pub(crate) fn stats(&self) -> Stats {
        self.run(|host| host.server.stats())
    }

    /// Waits until `condition` holds; false if it does not within seconds.
    pub(crate) fn until(
        &self,
        condition: impl Fn(&mut Host) -> bool + Clone + Send + 'static,
    ) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if self.run(condition.clone()) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    /// Waits until nothing is held: every buffer came back, every request is accounted for.
    pub(crate) fn nothing_is_held(&self) -> bool {
        self.until(|host| {
            let stats = host.server.stats();
            host.pool.out() == 0 && stats.held_requests == 0 && stats.held_bytes == 0
        })
    }

    /// Waits until `count` connections ended for `reason`.
    pub(crate) fn ended(&self, reason: DisconnectReason, count: u64) -> bool {
        self.until(move |host| host.server.stats().disconnects(reason) == count)
    }
}

fn serve(mut host: Host, queue: &Receiver<Job>) {
    loop {
        loop {
            match queue.try_recv() {
                Ok(job) => job(&mut host),
                Err(std::sync::mpsc::TryRecvError::Empty) => break,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
            }
        }
        host.turn(1);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.jobs = None;
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(ended, Some(Ok(()))), "the server's thread panicked");
        }
    }
}
