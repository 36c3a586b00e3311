//! A daemon's life: readiness, clean stops, crashes, what a service manager hears.

use super::daemon::VM1;
use super::nbd::Client;
use super::rig::{MIB, PATIENCE, Running, Site, pattern};
use rustix::process::{Signal, kill_process};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

/// Reads the first MiB twice, so that it is cached.
fn warm_up(site: &Site) {
    let mut client = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    for _ in 0..2 {
        for block in 0..256 {
            let data = client.read(block * 4096, 4096).expect("it reads");
            assert_eq!(data, pattern(block * 4096, 4096));
        }
    }
}

#[test]
fn a_clean_stop_restarts_warm() {
    let site = Site::with_vm1();
    let daemon = site.serve();
    assert_eq!(site.status()["volumes"][0]["warmth"]["state"], "new");
    let mode = std::fs::metadata(site.path("control.sock")).expect("it").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the control socket is for its owner");
    warm_up(&site);
    let log = daemon.stop();
    assert!(log.contains("stopped clean"), "{log}");
    assert!(!site.path("control.sock").exists() && !site.path("vm1.sock").exists());

    let daemon = site.serve();
    let warmth = site.status()["volumes"][0]["warmth"].clone();
    assert_eq!(warmth["state"], "kept", "{warmth}");
    assert!(warmth["blocks"].as_u64().is_some_and(|blocks| blocks >= 250), "{warmth}");
    assert!(site.ask(&["status"]).contains("vm1: kept"));
    warm_up(&site);
    let volume = site.status()["volumes"][0].clone();
    assert!(volume["misses"].as_u64().is_some_and(|misses| misses <= 6), "{volume}");
    daemon.stop();
}

#[test]
fn a_changed_backend_is_not_served_from_the_cache() {
    let site = Site::with_vm1();
    let daemon = site.serve();
    warm_up(&site);
    daemon.stop();
    // The same size, other bytes.
    std::fs::write(site.path("vm1.raw"), vec![9; 8 << 20]).expect("it is ours");
    let daemon = site.serve();
    let mut client = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    assert_eq!(client.read(0, 4096).expect("it reads"), [9; 4096]);
    let volume = site.status()["volumes"][0].clone();
    assert_eq!(volume["warmth"]["state"], "dropped", "{volume}");
    let table = site.ask(&["status"]);
    assert!(table.contains("vm1: dropped") && table.contains("the backend was changed"), "{table}");
    drop(client);
    daemon.stop();
}

#[test]
fn after_a_crash_it_starts_again_and_nothing_is_stale() {
    let site = Site::with_vm1();
    let daemon = site.serve();
    warm_up(&site);
    let mut client = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    client.write(0, &[3; 4096]).expect("it writes");
    client.flush().expect("it flushes");
    daemon.crash();
    assert!(site.path("control.sock").exists(), "a crash leaves its sockets");
    site.config(&format!("{VM1}exclusive = true\n").replace("lock_wait_s = 0", ""));
    let text = std::fs::read_to_string(site.path("c.toml")).expect("it");
    site.write("c.toml", &text.replace("lock_wait_s = 0", "lock_wait_s = 20"));
    let daemon = site.serve();
    let mut client = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    assert_eq!(client.read(0, 4096).expect("it reads"), [3; 4096]);
    assert_eq!(client.read(4096, 4096).expect("it reads"), pattern(4096, 4096));
    drop(client);
    daemon.stop();
}

/// No operator's word needed: the file's own change time proves that nobody else wrote it.
#[test]
fn after_a_crash_it_is_warm() {
    let site = Site::with_vm1();
    let text = std::fs::read_to_string(site.path("c.toml")).expect("it");
    site.write("c.toml", &text.replace("lock_wait_s = 0", "lock_wait_s = 20"));
    let daemon = site.serve();
    let mut client = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    // More than stays in RAM.
    for block in 0..1024 {
        client.read(block * 4096, 4096).expect("it reads");
    }
    client.write(0, &[3; 4096]).expect("it writes");
    client.flush().expect("it flushes");
    // A chunk is written when it is a second old, and the heartbeat is as often.
    std::thread::sleep(Duration::from_millis(2500));
    let blocks = |status: &serde_json::Value, key: &str| status["cache"][key].as_u64();
    let before = site.status();
    let on_flash = blocks(&before, "cached_blocks").zip(blocks(&before, "ram_blocks"));
    let on_flash = on_flash.map(|(all, ram)| all - ram).expect("counts");
    assert!(on_flash >= 800, "{before}");
    daemon.crash();

    let mut daemon = site.serve();
    daemon.wait_until("loaded", || !site.status()["cache"]["loaded"].is_null());
    let status = site.status();
    assert_eq!(status["cache"]["loaded"]["start"], "crashed", "{status}");
    // All but half a per cent, and the one that was written.
    let back = blocks(&status, "cached_blocks").expect("a count");
    assert!(back + on_flash / 200 + 1 >= on_flash, "{back} of {on_flash}: {status}");
    assert_eq!(status["volumes"][0]["warmth"]["state"], "kept", "{status}");
    let table = site.ask(&["status"]);
    assert!(table.contains("after a crash, ") && table.contains("vm1: kept"), "{table}");
    let mut client = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    assert_eq!(client.read(0, 4096).expect("it reads"), [3; 4096]);
    for block in 1..1024 {
        let data = client.read(block * 4096, 4096).expect("it reads");
        assert_eq!(data, pattern(block * 4096, 4096));
    }
    let volume = site.status()["volumes"][0].clone();
    assert!(volume["read_hits"].as_u64().is_some_and(|hits| hits + 1 >= back), "{volume}");
    drop(client);
    daemon.stop();
}

#[test]
fn each_of_the_usual_signals_stops_it_clean() {
    let site = Site::with_vm1();
    for signal in [Signal::TERM, Signal::INT] {
        let mut daemon = site.serve();
        let _client = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
        kill_process(daemon.pid(), signal).expect("it is our child");
        assert_eq!(daemon.wait().code(), Some(0), "{signal:?}: {}", daemon.log());
    }
}

#[test]
fn a_hangup_ends_a_demonstration_alone() {
    let site = Site::with_vm1();
    let mut daemon = site.serve();
    kill_process(daemon.pid(), Signal::HUP).expect("it is our child");
    let read = "the configuration was read again";
    let begun = Instant::now();
    while !daemon.log().contains(read) {
        assert!(daemon.is_running() && begun.elapsed() < PATIENCE, "{}", daemon.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    daemon.stop();
    let mut demo = site.start(&mut site.command(&["serve", "--demo", "--dir", "demo"]));
    let begun = Instant::now();
    while !demo.log().contains("ready volumes=4") {
        assert!(demo.is_running() && begun.elapsed() < PATIENCE, "{}", demo.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(demo.pid(), Signal::HUP).expect("it is our child");
    assert_eq!(demo.wait().code(), Some(0), "{}", demo.log());
}

/// Waits for a message of the service manager's socket that contains `part`.
fn hear(socket: &UnixDatagram, part: &str) {
    let start = Instant::now();
    let mut heard = String::new();
    while start.elapsed() < PATIENCE {
        let mut bytes = [0; 4096];
        let len = socket.recv(&mut bytes).unwrap_or(0);
        heard += &String::from_utf8_lossy(&bytes[..len]);
        heard.push('\n');
        if heard.contains(part) {
            return;
        }
    }
    panic!("not told {part}: {heard}");
}

#[test]
fn the_service_manager_hears_of_it() {
    let site = Site::with_vm1();
    let socket = UnixDatagram::bind(site.path("notify.sock")).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a time-out");
    let mut command = site.command(&["serve", "--config", "c.toml"]);
    command.env("NOTIFY_SOCKET", site.path("notify.sock"));
    let mut daemon = site.start(&mut command);
    hear(&socket, "READY=1");
    let ready = super::http::get(&site.path("control.sock"), "/v1/ready").expect("an answer");
    assert_eq!(ready.code, 200, "ready means ready");
    daemon.terminate();
    hear(&socket, "STOPPING=1");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
}

/// A stop that can't finish is cut short by a second signal.
#[test]
fn a_second_signal_ends_it_at_once() {
    let site = Site::new();
    site.disk("vm1.raw", 8 * MIB);
    // Writes take so long that a stop would wait for them.
    let volume = VM1.replace("file:vm1.raw", "sim:ssd,read=20s:file:vm1.raw");
    site.config(&volume);
    let mut daemon: Running = site.serve();
    let mut client = Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in");
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || client.read(0, 4096));
        daemon.wait_until("reading", || site.status()["volumes"][0]["reads"] == 1);
        daemon.terminate();
        let ready = || super::http::get(&site.path("control.sock"), "/v1/ready");
        daemon.wait_until("stopping", || ready().is_ok_and(|answer| answer.code == 503));
        let start = Instant::now();
        daemon.terminate();
        assert_eq!(daemon.wait().code(), Some(1), "{}", daemon.log());
        assert!(start.elapsed() < Duration::from_secs(5), "at once");
        reader.join().expect("it ends").expect_err("it was cut off");
    });
    let log = daemon.log();
    assert!(log.trim_end().lines().last().is_some_and(|line| line.starts_with("hint: ")), "{log}");
}
