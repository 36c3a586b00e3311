//! The service manager's watchdog: it hears of the daemon while all threads turn, and of nothing else.

use super::daemon::VM1;
use super::nbd::Client;
use super::rig::{MIB, PATIENCE, Running, Site, pattern};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

/// `WatchdogSec=`: a thread is late after half of it.
const WATCHDOG: Duration = Duration::from_secs(6);
const STUCK: &str = "threads do not turn: their guests and operators wait threads=";

struct Manager {
    site: Site,
    socket: UnixDatagram,
    daemon: Running,
}

impl Manager {
    /// Serves `c.toml`.
    fn serve(site: Site) -> Self {
        let socket = UnixDatagram::bind(site.path("notify.sock")).expect("a socket");
        let mut command = site.command(&["serve", "--config", "c.toml"]);
        command.env("NOTIFY_SOCKET", site.path("notify.sock"));
        command.env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
        let daemon = site.start(&mut command);
        let manager = Self { site, socket, daemon };
        assert!(manager.hears("READY=1", PATIENCE), "{}", manager.daemon.log());
        manager
    }

    /// Whether this is heard within that time.
    fn hears(&self, part: &str, within: Duration) -> bool {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.socket.set_read_timeout(Some(left)).expect("a time-out");
            let mut bytes = [0; 4096];
            let len = self.socket.recv(&mut bytes).unwrap_or(0);
            if String::from_utf8_lossy(&bytes[..len]).contains(part) {
                return true;
            }
        }
    }

    /// Waits for a line of the log, which is written by a thread of its own.
    fn logs(&self, part: &str) {
        let begun = Instant::now();
        while !self.daemon.log().contains(part) {
            assert!(begun.elapsed() < PATIENCE, "no {part:?}: {}", self.daemon.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// It is heard of as often as the manager wants, for a while.
    fn lives(&self, periods: u32) {
        let until = Instant::now() + WATCHDOG * periods;
        while Instant::now() < until {
            assert!(self.hears("WATCHDOG=1", WATCHDOG), "{}", self.daemon.log());
        }
    }

    /// Stops one thread of it; the others go on.
    fn freeze(&self, thread: &str) -> Frozen {
        let tasks = format!("/proc/{}/task", self.daemon.pid().as_raw_nonzero());
        let named = std::fs::read_dir(tasks).expect("it lives").flatten().find(|task| {
            let name = std::fs::read_to_string(task.path().join("comm"));
            name.is_ok_and(|name| name.trim_end() == thread)
        });
        let number = named.expect("there is one").file_name();
        Frozen::new(number.to_str().and_then(|text| text.parse().ok()).expect("a number"))
    }
}

/// A thread of another process that does not run until this is dropped.
struct Frozen(libc::pid_t);

impl Frozen {
    fn new(thread: libc::pid_t) -> Self {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: no address is read or written.
        let done = unsafe {
            [
                libc::ptrace(libc::PTRACE_SEIZE, thread, none, none),
                libc::ptrace(libc::PTRACE_INTERRUPT, thread, none, none),
                libc::c_long::from(libc::waitpid(thread, std::ptr::null_mut(), libc::__WALL)),
            ]
        };
        assert_eq!(done, [0, 0, thread.into()], "{}", std::io::Error::last_os_error());
        Self(thread)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: no address is read or written.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, none, none) };
    }
}

fn ready(site: &Site) -> u16 {
    super::http::get(&site.path("control.sock"), "/v1/ready").expect("it answers").code
}

#[test]
fn a_thread_that_does_not_turn_is_told_to_the_service_manager() {
    let site = Site::new();
    site.disk("vm1.raw", 8 * MIB);
    site.config(&format!("threads = 2\n{VM1}"));
    let mut manager = Manager::serve(site);
    // Idle as they are.
    manager.lives(2);
    let control = super::binary().file_name().expect("a name").to_str().expect("text");
    for (thread, name) in [
        ("cinnabar-data", "cinnabar-data"),
        ("cinnabar-data-1", "cinnabar-data-1"),
        (control, "control"),
    ] {
        let frozen = manager.freeze(thread);
        // The first thread may wait for it, with a question about the status.
        let alone = format!("{STUCK}\"{name}\"");
        let both = format!("{STUCK}\"cinnabar-data, {name}\"");
        let told = |log: &str| [&alone, &both].map(|words| log.matches(words.as_str()).count());
        manager.logs(&format!("{name}\"\n"));
        // What was said before that.
        manager.hears("nothing of the kind", Duration::from_millis(100));
        assert!(!manager.hears("WATCHDOG=1", WATCHDOG), "{name}: {}", manager.daemon.log());
        let times = told(&manager.daemon.log());
        assert!([[1, 0], [0, 1], [1, 1]].contains(&times), "{}", manager.daemon.log());
        if name != "control" {
            assert_eq!(ready(&manager.site), 503);
        }
        drop(frozen);
        assert!(manager.hears("WATCHDOG=1", PATIENCE), "{name}: {}", manager.daemon.log());
        let line = format!("a thread turns again thread=\"{name}\"");
        manager.logs(&line);
        assert_eq!(ready(&manager.site), 200);
    }
    manager.daemon.terminate();
    assert!(manager.hears("STOPPING=1", PATIENCE), "{}", manager.daemon.log());
    assert_eq!(manager.daemon.wait().code(), Some(0), "{}", manager.daemon.log());
}

/// What waits for a disk is not stuck.
#[test]
fn a_silent_disk_is_no_thread_that_does_not_turn() {
    let site = Site::new();
    site.disk("vm1.raw", 8 * MIB);
    site.disk("vm2.raw", 8 * MIB);
    let volume = |name: &str, backend: &str| {
        format!("[[volume]]\nname = \"{name}\"\nbackend = \"{backend}\"\n")
    };
    let slow = volume("vm1", "sim:ssd,read=20s,write=20s:file:vm1.raw");
    site.config(&format!("threads = 2\n{slow}{}", volume("vm2", "file:vm2.raw")));
    let mut manager = Manager::serve(site);
    let attach = |name: &str| {
        Client::attach(&manager.site.path(&format!("{name}.sock")), name).expect("it is let in")
    };
    let (mut slow, mut other) = (attach("vm1"), attach("vm2"));
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || slow.read(0, 4096));
        manager.lives(2);
        assert_eq!(other.read(0, 4096).expect("it is served"), pattern(0, 4096));
        assert_eq!(ready(&manager.site), 200);
        // By a second signal at once.
        manager.daemon.terminate();
        manager.hears("STOPPING=1", PATIENCE);
        manager.daemon.terminate();
        let _cut_off = reader.join().expect("it ends");
    });
    assert_eq!(manager.daemon.wait().code(), Some(1), "{}", manager.daemon.log());
    assert!(!manager.daemon.log().contains("do not turn"), "{}", manager.daemon.log());
}
