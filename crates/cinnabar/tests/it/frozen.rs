//! Commands that ask a daemon which does not answer: stopped, or stuck.

use super::rig::{Ended, Site, finish_within};
use rustix::process::{Signal, kill_process};
use std::time::{Duration, Instant};

/// Beyond the longest wait of any command, on a slow machine.
const ALL: Duration = Duration::from_secs(90);

#[test]
fn commands_do_not_wait_for_a_daemon_that_is_stopped() {
    let site = Site::with_vm1();
    let daemon = site.serve();
    kill_process(daemon.pid(), Signal::STOP).expect("it is our child");
    let commands = [
        "status",
        "status --json",
        "status --watch",
        "status --timeout 1",
        "volume list",
        "history",
        "migrate status",
        "policy plan",
        "policy history",
        "policy explain vm1",
        "reload",
        "volume flush vm1",
        "volume set vm1 --mode write-around --timeout 1",
        "volume remove vm1 --timeout 1",
        "cache abandon --timeout 1",
        "trace record vm1 --out t.csv",
    ];
    let ask = |line: &str| -> (Ended, Duration) {
        let args: Vec<&str> = line.split(' ').collect();
        let begun = Instant::now();
        (finish_within(&mut site.command(&args), ALL), begun.elapsed())
    };
    let all: Vec<_> = std::thread::scope(|scope| {
        let asked = commands.map(|line| (line, scope.spawn(move || ask(line))));
        asked.into_iter().map(|(line, ended)| (line, ended.join())).collect()
    });
    let report = site.run(&["report", "--output", "report.tar.gz"]);
    kill_process(daemon.pid(), Signal::CONT).expect("it is our child");
    for (line, ended) in all {
        let (ended, took) = ended.expect("it ends");
        assert_eq!(ended.code, Some(1), "{line}: {ended:?}");
        assert!(ended.stderr.contains("no answer of the daemon at control.sock"), "{ended:?}");
        assert!(ended.stderr.contains("\nhint: "), "{line}: {ended:?}");
        let usual = if line.contains("--timeout") { 10 } else { 45 };
        assert!(took < Duration::from_secs(usual), "{line}: {took:?}");
    }
    assert_eq!(report.code, Some(0), "what is there without the daemon: {report:?}");
    // What was asked of it meanwhile is done, or was given up; it serves on.
    site.status();
    daemon.stop();
}

/// A recording that has begun.
#[test]
fn a_recording_does_not_wait_for_a_daemon_that_is_stopped() {
    let site = Site::with_vm1();
    let daemon = site.serve();
    let mut recording =
        site.start(&mut site.command(&["trace", "record", "vm1", "--out", "t.csv"]));
    let begun = Instant::now();
    while !recording.log().contains("recording vm1 to") {
        assert!(begun.elapsed() < ALL, "{}", recording.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(daemon.pid(), Signal::STOP).expect("it is our child");
    let begun = Instant::now();
    let status = recording.wait_within(ALL);
    kill_process(daemon.pid(), Signal::CONT).expect("it is our child");
    assert_eq!(status.code(), Some(1), "{}", recording.log());
    assert!(recording.log().contains("lost the daemon"), "{}", recording.log());
    assert!(begun.elapsed() < Duration::from_secs(45), "{:?}", begun.elapsed());
    daemon.stop();
}
