//! Limits on open files: raised at the start, and when they are reached operators are answered.

use super::rig::{Running, Site};
use rustix::process::{Resource, Rlimit, prlimit};
use std::os::unix::net::UnixStream;
use std::process::Command;

/// Soft and hard limit of a process.
fn limits(daemon: &Running) -> (u64, u64) {
    let path = format!("/proc/{}/limits", daemon.pid().as_raw_nonzero());
    let text = std::fs::read_to_string(path).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
    let mut numbers = line.expect("there is a line").split_ascii_whitespace();
    let mut number = || numbers.next().and_then(|number| number.parse().ok()).expect("a number");
    (number(), number())
}

/// A shell gives 1024, and one tenant's connections were enough to reach that.
#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    let site = Site::with_vm1();
    let daemon = |hard: u64| {
        let mut shell = Command::new("sh");
        let plain = site.command(&["serve", "--config", "c.toml"]);
        let script = format!("ulimit -Sn 256; ulimit -Hn {hard}; exec \"$0\" \"$@\"");
        shell.arg("-c").arg(script).arg(plain.get_program()).args(plain.get_args());
        shell.current_dir(site.path(""));
        site.serve_by(&mut shell)
    };
    let running = daemon(4096);
    assert_eq!(limits(&running), (4096, 4096));
    assert!(!running.stop().contains("files may be open"), "that is enough");
    let running = daemon(512);
    assert_eq!(limits(&running), (512, 512));
    assert!(running.stop().contains("no more than 512 files may be open"));
}

/// A tenant that waits for each descriptor took those of operators whose commands had ended.
#[test]
fn without_a_free_descriptor_operators_are_answered() {
    let site = Site::with_vm1();
    let daemon = site.serve();
    let open = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid().as_raw_nonzero()))
        .expect("it runs")
        .count();
    let full = Rlimit { current: Some(open as u64), maximum: Some(open as u64) };
    prlimit(Some(daemon.pid()), Resource::Nofile, full).expect("it may be lowered");
    let connect = || UnixStream::connect(site.path("vm1.sock")).expect("it waits in the kernel");
    let _greedy: Vec<UnixStream> = (0..32).map(|_| connect()).collect();
    for _ in 0..40 {
        assert_eq!(site.status()["volumes"][0]["name"], "vm1");
    }
    daemon.stop();
}
