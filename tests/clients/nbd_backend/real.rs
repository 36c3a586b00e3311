//! nbdkit and qemu-nbd as backends.

use super::{CACHE, DISK, client, read_all, volume};
use anyhow::{Context, Result, ensure};
use e2e::daemon::free_port;
use e2e::{Config, Daemon, Fio, MIB, Running, Site};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

const READY: Duration = Duration::from_secs(10);

/// Starts nbdkit on a unix socket.
fn start_nbdkit(site: &Site, socket: &str, arguments: &[&str]) -> Result<Running> {
    let path = site.path(socket);
    let _ = std::fs::remove_file(&path);
    let mut command = Command::new("nbdkit");
    command.args(["-f", "-U"]).arg(&path).args(arguments);
    let mut server = Running::start(&mut command, &site.path("nbdkit.log"))?;
    server.wait_until(READY, || e2e::nbd::listens(&path))?;
    Ok(server)
}

/// Starts nbdkit on a port of 127.0.0.1, which it gives.
pub(crate) fn start_nbdkit_over_tcp(site: &Site, arguments: &[&str]) -> Result<(Running, u16)> {
    let (port, pid) = (free_port()?, site.path("nbdkit.pid"));
    let mut command = Command::new("nbdkit");
    command.args(["-f", "-i", "127.0.0.1", "-p", &port.to_string(), "-P"]).arg(&pid);
    let mut server = Running::start(command.args(arguments), &site.path("nbdkit.log"))?;
    server.wait_until(READY, || pid.exists())?;
    Ok((server, port))
}

fn start_qemu_nbd(site: &Site, file: &Path) -> Result<Running> {
    let socket = site.path("server");
    let _ = std::fs::remove_file(&socket);
    let mut command = Command::new("qemu-nbd");
    command.args(["-t", "-e", "8", "-f", "raw", "-x", "vm1", "-k"]).arg(&socket).arg(file);
    let mut server = Running::start(&mut command, &site.path("qemu-nbd.log"))?;
    server.wait_until(READY, || e2e::nbd::listens(&socket))?;
    Ok(server)
}

/// Random writes of many sizes, all read back.
fn verify(site: &Site) -> Fio {
    Fio::nbd(&site.uri("vm1"))
        .arg("rw", "randwrite")
        .arg("bsrange", "512-96k")
        .arg("blockalign", 512)
        .arg("iodepth", 16)
        .arg("size", DISK)
        .arg("verify", "crc32c")
        .arg("verify_fatal", 1)
}

/// The clean stop brings everything to the server.
fn check_file(site: &Site, daemon: Daemon, file: &Path) -> Result<()> {
    let found = std::fs::read(file)?;
    read_all(site, "vm1", &found).context("the server has something else")?;
    daemon.stop()
}

pub(super) fn nbdkit() -> Result<()> {
    let filters: [&[&str]; 4] = [
        &[],
        &["--filter=multi-conn", "multi-conn-mode=disable"],
        &["--filter=fua", "fuamode=emulate"],
        &["--filter=delay", "wdelay=2ms", "rdelay=1ms"],
    ];
    for filter in filters {
        let site = Site::new()?;
        let file = site.filled("disk.raw", DISK, 1)?;
        let path = file.to_str().context("plain text")?;
        let (options, settings): (Vec<&str>, Vec<&str>) =
            filter.iter().partition(|word| word.starts_with("--"));
        let arguments = [&options[..], &["file", path], &settings[..]].concat();
        let _server = start_nbdkit(&site, "server", &arguments)?;
        let config = Config::new(CACHE).volume(volume("vm1", "nbd:unix:server"));
        let daemon = site.serve(&config)?;
        verify(&site).run().with_context(|| format!("{filter:?}"))?;
        let status = daemon.status()?;
        ensure!(status.count("vm1", "read_hits")? > 0, "nothing is cached: {}", status.0);
        ensure!(status.count("vm1", "backend_errors")? == 0, "{}", status.volume("vm1")?);
        check_file(&site, daemon, &file)?;
    }
    Ok(())
}

pub(super) fn nbdkit_over_tcp() -> Result<()> {
    let site = Site::new()?;
    let file = site.filled("disk.raw", DISK, 2)?;
    let path = file.to_str().context("plain text")?;
    let (_server, port) = start_nbdkit_over_tcp(&site, &["file", path])?;
    let backend = format!("sim:ssd,seed=1:nbd,connections=2:tcp:localhost:{port}:any");
    let daemon = site.serve(&Config::new(CACHE).volume(volume("vm1", &backend)))?;
    verify(&site).run()?;
    check_file(&site, daemon, &file)
}

/// A killed server has given all it answered for to the kernel: guests must not notice.
pub(super) fn killed_under_fio() -> Result<()> {
    let site = Site::new()?;
    let file = site.filled("disk.raw", DISK, 3)?;
    let mut server = start_qemu_nbd(&site, &file)?;
    let backend = "nbd:unix:server:vm1";
    let daemon = site.serve(&Config::new(CACHE).volume(volume("vm1", backend)))?;
    let job = verify(&site)
        .arg("verify_backlog", 256)
        .arg("fsync", 64)
        .arg("runtime", 10)
        .flag("time_based");
    let fio = thread::spawn(move || job.run());
    let mut kills = 0;
    for _ in 0..4 {
        thread::sleep(Duration::from_millis(1500));
        ensure!(!fio.is_finished(), "fio was too quick");
        server.kill()?;
        kills += 1;
        thread::sleep(Duration::from_millis(300));
        server = start_qemu_nbd(&site, &file)?;
    }
    fio.join().expect("the job does not panic").with_context(|| {
        format!("fio, while the server was killed {kills} times; {}", daemon.running.log())
    })?;
    let log = daemon.running.log();
    ensure!(log.contains("lost an NBD server"), "{kills} kills were not noticed: {log}");
    ensure!(daemon.status()?.count("vm1", "backend_errors")? == 0, "{log}");
    check_file(&site, daemon, &file)
}

/// A server proves nothing: only the operator's word keeps its blocks over a restart.
pub(super) fn warm_only_if_exclusive() -> Result<()> {
    let site = Site::new()?;
    let file = site.filled("disk.raw", DISK, 4)?;
    let contents = std::fs::read(&file)?;
    let path = file.to_str().context("plain text")?;
    let _server = start_nbdkit(&site, "server", &["file", path])?;
    for exclusive in [false, true] {
        let key = format!("exclusive = {exclusive}");
        let volume = || volume("vm1", "nbd:unix:server").key(&key);
        let config = Config::new(CACHE).volume(volume());
        let daemon = site.serve(&config)?;
        daemon.warm_up("vm1", DISK / 4096, || read_all(&site, "vm1", &contents))?;
        daemon.stop()?;
        let daemon = site.serve(&config)?;
        daemon.loaded()?;
        read_all(&site, "vm1", &contents)?;
        let hits = daemon.status()?.count("vm1", "read_hits")?;
        let warm = hits * 100 >= DISK / 4096 * 95;
        ensure!(if exclusive { warm } else { hits == 0 }, "exclusive = {exclusive}: {hits} hits");
        daemon.stop()?;
    }
    Ok(())
}

pub(super) fn mistakes() -> Result<()> {
    let site = Site::new()?;
    let refused = |config: Config, parts: &[&str]| -> Result<()> {
        let error = site.serve(&config).err().context("it was served")?;
        let told = format!("{error:#}");
        for part in parts {
            ensure!(told.contains(part), "no {part:?} in {told}");
        }
        Ok(())
    };
    let one = |backend: &str| Config::new(CACHE).volume(volume("vm1", backend));
    // What may pass is waited for, and others are served.
    let waits = |reason: &str| -> Result<()> {
        let daemon = site.serve(&one("nbd:unix:server"))?;
        let status = daemon.status()?;
        let told = status.volume("vm1")?;
        ensure!(told["state"] == "waiting", "it does not wait: {told}");
        let text = told["reason"].as_str().unwrap_or_default();
        ensure!(text.contains(reason), "no {reason:?} in {text}");
        daemon.stop()
    };
    waits("No such file")?;
    refused(one("nbd:udp:host:1"), &["is no address of an NBD server", "hint: write \"nbd"])?;
    let _server = start_nbdkit(&site, "server", &["-r", "memory", "16M"])?;
    waits("it can only be read")?;
    let _other = start_nbdkit(&site, "other", &["memory", "16M"])?;
    let twice = one("nbd:unix:other").volume(volume("vm2", "nbd,connections=1:unix:./other"));
    refused(twice, &["is the backend of volume \"vm1\" already"])?;
    // A golden image may be served as often as you like.
    let reader = |name| volume(name, "nbd:unix:server").key("read_only = true");
    let config = Config::new(CACHE).volume(reader("a")).volume(reader("b"));
    let daemon = site.serve(&config)?;
    for name in ["a", "b"] {
        ensure!(client(&site, name)?.read(MIB, 512)? == [0; 512], "not zeros");
    }
    daemon.stop()
}
