//! A log that can't be written, or is not read: the daemon serves, and stops, as ever.

use super::nbd::{Client, greet};
use super::rig::{PATIENCE, Running, Site, pattern};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::io::ioctl_fionbio;
use rustix::process::{Signal, kill_process};
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A pipe without room for another byte.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    ioctl_fionbio(&writer, true).expect("it is a pipe");
    for piece in [&[b'.'; 4096][..], b"."] {
        while writer.write(piece).is_ok() {}
    }
    ioctl_fionbio(&writer, false).expect("it is a pipe");
    (reader, writer)
}

/// What makes lines of the log, and what must go on all the same.
fn check(site: &Site, daemon: &mut Running) {
    kill_process(daemon.pid(), Signal::HUP).expect("it is our child");
    let mut hostile = greet(&site.path("vm1.sock")).expect("it is greeted");
    // It may be thrown out before it has sent everything.
    let _gone = hostile.write_all(&[b'!'; 64]);
    let mut guest = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    assert_eq!(guest.read(0, 4096).expect("it is served"), pattern(0, 4096));
    guest.write(4096, &[7; 4096]).expect("it is served");
    assert_eq!(site.status()["volumes"][0]["writes"], 1);
    assert!(daemon.is_running());
}

#[test]
fn a_log_whose_reader_has_gone_costs_nothing_but_lines() {
    let site = Site::with_vm1();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut daemon = site.serve_into(writer);
    drop(reader);
    check(&site, &mut daemon);
    daemon.stop();
    // As the journal is one.
    let site = Site::with_vm1();
    let (reader, writer) = UnixStream::pair().expect("two sockets");
    let mut daemon = site.serve_into(OwnedFd::from(writer));
    drop(reader);
    check(&site, &mut daemon);
    daemon.stop();
}

#[test]
fn a_log_on_a_full_disk_costs_nothing_but_lines() {
    let site = Site::with_vm1();
    let full = File::options().write(true).open("/dev/full").expect("it is there");
    let mut daemon = site.serve_into(full);
    check(&site, &mut daemon);
    daemon.stop();
}

#[test]
fn a_log_that_nobody_reads_holds_nobody_up() {
    let site = Site::with_vm1();
    let (mut reader, writer) = full_pipe();
    let mut daemon = site.serve_into(writer);
    check(&site, &mut daemon);
    // Once it is read, what was said meanwhile is there.
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = reader.read(&mut bytes) {
            text += &String::from_utf8_lossy(&bytes[..len]);
            if text.contains("the configuration was read again") {
                // From here on nobody reads again.
                break;
            }
        }
        send.send((text, reader)).expect("it is waited for");
    });
    let (text, _reader) = receive.recv_timeout(PATIENCE).expect("the lines come");
    assert!(text.contains("ready volumes=1"), "{text}");
    daemon.stop();
}

#[test]
fn a_daemon_whose_log_nobody_reads_stops() {
    let site = Site::with_vm1();
    let (_reader, writer) = full_pipe();
    let daemon = site.serve_into(writer);
    let begun = Instant::now();
    daemon.stop();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    // What is wrong is not told, but the code is that of it.
    let (_reader, writer) = full_pipe();
    site.write("c.toml", "nonsense");
    let mut command = site.command(&["serve", "--config", "c.toml"]);
    let status = Running::new(&mut command, writer, site.path("no-log")).wait();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn lost_lines_are_counted_and_told() {
    let site = Site::with_vm1();
    let fifo = site.path("log.fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a named pipe");
    let read = || {
        // The daemon must not have it, too.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        File::from(rustix::fs::open(&fifo, flags, Mode::empty()).expect("it is there"))
    };
    let reader = read();
    let writer = File::options().write(true).open(&fifo).expect("it has a reader");
    let mut daemon = site.serve_into(writer);
    drop(reader);
    check(&site, &mut daemon);
    // They are lost by now, or soon.
    std::thread::sleep(Duration::from_millis(500));
    let mut reader = read();
    kill_process(daemon.pid(), Signal::HUP).expect("it is our child");
    let (begun, mut text) = (Instant::now(), String::new());
    while !text.contains("the configuration was read again") {
        let mut bytes = [0; 4096];
        if let Ok(len) = reader.read(&mut bytes) {
            text += &String::from_utf8_lossy(&bytes[..len]);
        }
        assert!(begun.elapsed() < PATIENCE, "{text}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let lost = "WARN lines of the log are lost: Broken pipe (os error 32) lines=";
    let told = text.lines().find_map(|line| line.split_once(lost));
    let (time, lines) = told.unwrap_or_else(|| panic!("{text}"));
    assert!(time.contains('T') && lines.parse::<u64>().is_ok_and(|lines| lines >= 2), "{text}");
    daemon.stop();
}

/// The address of its page and the rest go to stdout.
#[test]
fn a_demonstration_that_nobody_reads_serves() {
    let site = Site::new();
    let (_reader, writer) = full_pipe();
    let mut command = site.command(&["serve", "--demo", "--dir", "demo"]);
    let log = File::create(site.path("log")).expect("a file");
    let mut child = command.stdout(writer).stderr(log).spawn().expect("it starts");
    drop(command);
    let begun = Instant::now();
    let served = loop {
        let ended = site.run(&["status", "--json", "--socket", "demo/control.sock"]);
        if ended.code == Some(0) && ended.stdout.contains("\"desktops\"") {
            break true;
        }
        if begun.elapsed() > PATIENCE {
            break false;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let pid = rustix::process::Pid::from_child(&child);
    kill_process(pid, Signal::INT).expect("it is our child");
    let begun = Instant::now();
    while child.try_wait().expect("it is our child").is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().expect("it is our child");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let code = child.wait().expect("it is our child").code();
    let log = std::fs::read_to_string(site.path("log")).expect("text");
    assert!(served, "{log}");
    assert_eq!(code, Some(0), "{log}");
}

/// What a command says beside its data.
#[test]
fn a_command_whose_talk_nobody_reads_does_its_work() {
    let site = Site::new();
    for folder in ["fast", "slow"] {
        std::fs::create_dir(site.path(folder)).expect("a folder");
    }
    let pools = ["--fast", "fast", "--slow", "slow"];
    site.ask(&[&["hybrid", "create"][..], &pools, &["--size", "64MiB"]].concat());
    let full = File::options().write(true).open("/dev/full").expect("it is there");
    let mut command = site.command(&[&["hybrid", "probe"][..], &pools].concat());
    let status = command.stdout(Stdio::null()).stderr(full).status().expect("it starts");
    assert!(status.code().is_some(), "it ended by itself: {status}");
}
