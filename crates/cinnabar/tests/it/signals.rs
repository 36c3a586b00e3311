//! Signals that others send by mistake, and limits of the process, do not end a daemon.

use super::binary;
use super::nbd::Client;
use super::rig::{MIB, PATIENCE, Running, Site, finish, pattern};
use std::process::Command;
use std::time::{Duration, Instant};

fn send(daemon: &Running, signal: libc::c_int) {
    // SAFETY: it is our child, which was not waited for, so the number is its own.
    let sent = unsafe { libc::kill(daemon.pid().as_raw_nonzero().get(), signal) };
    assert_eq!(sent, 0, "it is our child");
}

#[test]
fn stray_signals_are_told_and_ignored() {
    let site = Site::with_vm1();
    let mut daemon = site.serve();
    let mut guest = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    for (signal, name) in [
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGUSR2, "SIGUSR2"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGVTALRM, "SIGVTALRM"),
        (libc::SIGPROF, "SIGPROF"),
        (libc::SIGIO, "SIGIO"),
        (libc::SIGPWR, "SIGPWR"),
        (libc::SIGSTKFLT, "SIGSTKFLT"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGRTMIN(), "signal 34"),
        (libc::SIGRTMAX(), "signal 64"),
    ] {
        send(&daemon, signal);
        let line = format!("{name} means nothing here, and is ignored");
        let begun = Instant::now();
        while !daemon.log().contains(&line) {
            assert!(daemon.is_running(), "{name}: {}", daemon.log());
            assert!(begun.elapsed() < PATIENCE, "{name}: {}", daemon.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // Nor does the same one again and again fill the log.
    for _ in 0..100 {
        send(&daemon, libc::SIGUSR1);
    }
    assert_eq!(guest.read(0, 4096).expect("it is served"), pattern(0, 4096));
    let log = daemon.stop();
    assert!(log.matches("SIGUSR1").count() <= 3, "{log}");
}

/// The program with files of so many KiB at most.
fn limited(site: &Site, kib: u64, args: &str) -> Command {
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("ulimit -f {kib}; exec {} {args}", binary().display()));
    let own = site.command(&[]);
    command.current_dir(own.get_current_dir().expect("it has one"));
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// `ulimit -f`, `LimitFSIZE=`.
#[test]
fn a_limit_on_the_size_of_files_is_an_error() {
    let site = Site::with_vm1();
    let ended = finish(&mut limited(&site, 20_000, "serve --config c.toml"));
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("there is no room for 67108864 bytes"), "{ended:?}");
    assert!(ended.stderr.contains("hint: "), "{ended:?}");
    // Commands are no different.
    std::fs::create_dir(site.path("pages")).expect("a folder");
    let ended = finish(&mut limited(&site, 1, "man pages"));
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("File too large"), "{ended:?}");
}

/// The disk is there, and the log: both are larger than they may become.
#[test]
fn a_daemon_whose_files_may_not_grow_serves() {
    let site = Site::with_vm1();
    site.serve().stop();
    let mut daemon = site.start(&mut limited(&site, 1, "serve --config c.toml"));
    let mut guest = None;
    daemon.wait_until("serving", || {
        guest = Client::attach(&site.path("vm1.sock"), "vm1").ok();
        guest.is_some()
    });
    let mut guest = guest.expect("it is let in");
    assert_eq!(guest.read(MIB, 4096).expect("it is served"), pattern(MIB, 4096));
    guest.write(MIB, &[7; 4096]).expect_err("the file may not be written there");
    assert!(daemon.is_running(), "{}", daemon.log());
    daemon.terminate();
    assert!(daemon.wait().code().is_some(), "it ends by itself: {}", daemon.log());
}
