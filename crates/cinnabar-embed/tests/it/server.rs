//! A volume that lives on an NBD server which is killed and comes back.
//!
//! The server is nbdkit; without it the test says so and passes.

use crate::rig::{MIB, Rig, stamp};
use anyhow::{Context, Result, ensure};
use cinnabar_embed::{Buffer, Error, Request, VolumeOptions};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SIZE: u64 = 2 * MIB;

/// nbdkit over a file, ended when dropped.
struct Server(Child);

impl Server {
    /// `None`: there is no nbdkit here.
    fn start(file: &Path, socket: &Path) -> Result<Option<Self>> {
        let _ = std::fs::remove_file(socket);
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--unix"]).arg(socket).arg("file").arg(file);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut server = match child {
            Ok(child) => Self(child),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let until = Instant::now() + Duration::from_secs(20);
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            ensure!(Instant::now() < until, "nbdkit does not listen");
            ensure!(server.0.try_wait()?.is_none(), "nbdkit ended");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(server))
    }

    /// Stops it as a debugger does (`SIGSTOP`), or lets it go on.
    fn stop(&self, stopped: bool) -> Result<()> {
        let pid = Pid::from_child(&self.0);
        Ok(kill_process(pid, if stopped { Signal::STOP } else { Signal::CONT })?)
    }

    fn kill(mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Requests to other volumes are done while one is measured, and its own time-out ends that.
pub(crate) fn a_slow_server_that_is_measured_holds_up_no_others() -> Result<()> {
    let rig = Rig::new()?;
    let file = rig.file("data", SIZE)?;
    let other = rig.file("other", SIZE)?;
    let socket = rig.path("nbd.sock");
    let Some(server) = Server::start(&file, &socket)? else {
        println!("skipped: no nbdkit here (Debian: nbdkit)");
        return Ok(());
    };
    let mut cache = rig.open()?;
    let bound = Duration::from_secs(1);
    let export = VolumeOptions {
        backend_timeout: bound,
        ..VolumeOptions::new("data", format!("nbd:unix:{}", socket.display()))
    };
    let volume = cache.attach(&export)?;
    let quick = cache.attach(&rig.volume("other"))?;
    std::fs::File::options().write(true).open(&file)?.set_len(2 * SIZE)?;

    server.stop(true)?;
    let since = Instant::now();
    let silent = cache.resize(volume).expect_err("the server does not answer");
    ensure!(since.elapsed() < 4 * bound, "{:?}", since.elapsed());
    ensure!(matches!(silent, Error::Disk { .. }) && silent.to_string().contains("answer"));
    ensure!(cache.size_bytes(volume)? == SIZE);

    // It goes on once the write to the other file is seen there.
    let data = Buffer::copy_of(0, &[7; 4096]);
    cache.submit(quick, 1, Request::Write { offset: 0, data, durable: false })?;
    let seen = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let until = Instant::now() + 10 * bound;
            let mut seen = false;
            while !seen && Instant::now() < until {
                seen = std::fs::read(&other).is_ok_and(|read| read[..4096] == [7; 4096]);
                std::thread::sleep(Duration::from_millis(1));
            }
            server.stop(false).map(|()| seen)
        });
        let grown = cache.resize(volume);
        (watcher.join().expect("it does not panic"), grown)
    });
    ensure!(seen.0?, "the write waited for the other volume");
    ensure!(seen.1? == 2 * SIZE && cache.size_bytes(volume)? == 2 * SIZE);
    let mut block = [1; 4096];
    cache.read(volume, 2 * SIZE - 4096, &mut block)?;
    ensure!(block == [0; 4096]);
    let mut done = Vec::new();
    cache.poll(None, &mut done)?;
    ensure!(done.len() == 1 && done[0].result.is_ok(), "{done:?}");
    cache.close()?;
    server.kill()
}

pub(crate) fn what_a_server_lost_is_not_believed() -> Result<()> {
    let rig = Rig::new()?;
    let file = rig.file("data", SIZE)?;
    let socket = rig.path("nbd.sock");
    let Some(server) = Server::start(&file, &socket)? else {
        println!("skipped: no nbdkit here (Debian: nbdkit)");
        return Ok(());
    };
    let mut cache = rig.open()?;
    // Nothing else would have its blocks believed after it was detached.
    let export = VolumeOptions {
        exclusive: true,
        ..VolumeOptions::new("data", format!("nbd:unix:{}", socket.display()))
    };
    let volume = cache.attach(&export)?;
    let mut block = [0; 4096];
    cache.read(volume, 0, &mut block)?;
    ensure!(block == stamp(0));
    cache.write(volume, 0, &[1; 4096])?;
    cache.flush(volume)?;
    cache.write(volume, 4096, &[2; 4096])?;
    for (offset, expected) in [(0, [1; 4096]), (4096, [2; 4096])] {
        cache.read(volume, offset, &mut block)?;
        ensure!(block == expected);
    }

    cache.write(volume, MIB, &[4; 4096])?;
    // It dies, and what was not flushed is gone, as after a power cut. What is to be dropped of that
    // waits for a write beside it, and is none of the program's requests.
    server.kill()?;
    let data = Buffer::new(MIB, MIB);
    cache.submit(volume, 7, Request::Write { offset: MIB, data, durable: false })?;
    std::fs::File::options().write(true).open(&file)?.write_all_at(&stamp(1), 4096)?;
    let server = Server::start(&file, &socket)?.context("nbdkit was there before")?;
    let mut done = Vec::new();
    while done.is_empty() {
        cache.poll(Some(Duration::ZERO), &mut done)?;
        ensure!(cache.under_way() <= 1, "{} requests that nobody submitted", cache.under_way());
    }
    ensure!(done[0].result.is_ok() && cache.under_way() == 0);
    // A miss is what finds out.
    cache.read(volume, 65536, &mut block)?;
    ensure!(block == stamp(16));
    cache.read(volume, 4096, &mut block)?;
    ensure!(block == stamp(1), "the server has lost the write");
    cache.read(volume, 0, &mut block)?;
    ensure!(block == [1; 4096], "what was flushed is there");
    ensure!(cache.volume_counters(volume)?.invalidated_blocks > 0);

    // Once more, and the volume is on its way out when that is found.
    cache.write(volume, 8192, &[3; 4096])?;
    cache.read(volume, 8192, &mut block)?;
    server.kill()?;
    std::fs::File::options().write(true).open(&file)?.write_all_at(&stamp(2), 8192)?;
    let server = Server::start(&file, &socket)?.context("nbdkit was there before")?;
    cache.detach(volume)?;
    let volume = cache.attach(&export)?;
    cache.read(volume, 8192, &mut block)?;
    ensure!(block == stamp(2), "nothing of it was kept");
    cache.close()?;
    server.kill()
}
