//! Whose an exclusive lock is: what a daemon writes to the object that it locks.
//!
//! A daemon that was killed leaves its lock behind. The cluster notices after some 30 s; the next
//! daemon on the same host can tell at once that the process is gone. It says so of no process that
//! it can't see: of another boot, which may be another host's, or of another PID namespace.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::ffi::CStr;
use std::fmt;

/// The attribute of the header object.
pub const NAME: &CStr = c"cinnabar.owner";
/// Longest text that is looked at, in bytes.
pub const BYTES_MAX: usize = 512;

/// A process that opened an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its name in the cluster: the number of `client.4123`.
    pub client: u64,
    /// Name of the host, for people.
    host: String,
    /// The kernel's random id of this boot.
    boot: String,
    /// Inode number of the PID namespace.
    namespace: u64,
    pid: u32,
    /// When the process began, in clock ticks since the boot: PIDs come again.
    began: u64,
}

impl Owner {
    /// This process, under its name in the cluster. `None` if `/proc` does not tell.
    pub fn this(client: u64) -> Option<Self> {
        let host = line("/proc/sys/kernel/hostname")?;
        let host: String = host.chars().filter(|c| !c.is_whitespace()).collect();
        let pid = std::process::id();
        let (boot, namespace) = here()?;
        Some(Self { client, host, boot, namespace, pid, began: began(pid)? })
    }

    /// Whether it is known that the process is gone.
    pub fn is_dead(&self) -> bool {
        let Some(here) = here() else { return false };
        here == (self.boot.clone(), self.namespace) && is_gone(self.pid, self.began)
    }

    /// Reads what [`Display`](fmt::Display) wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut next = |key: &str| words.next()?.strip_prefix(key)?.strip_prefix('=');
        let owner = Self {
            client: next("client")?.parse().ok()?,
            host: next("host")?.to_owned(),
            boot: next("boot")?.to_owned(),
            namespace: next("namespace")?.parse().ok()?,
            pid: next("pid")?.parse().ok()?,
            began: next("began")?.parse().ok()?,
        };
        words.next().is_none().then_some(owner)
    }

    /// For the message that says who has the image.
    pub fn describe(&self) -> String {
        format!("Cinnabar, process {} on host {}", self.pid, self.host.escape_debug())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, host, boot, namespace, pid, began } = self;
        write!(
            f,
            "client={client} host={host} boot={boot} namespace={namespace} pid={pid} began={began}"
        )
    }
}

/// Whether a client of this address may live although its process is gone here. Virtual machines that were
/// restored from one snapshot of their memory have one boot id and the same processes; a cluster that such a
/// client reaches over the loopback interface was restored with it.
pub fn may_live_elsewhere(address: &str) -> bool {
    let is_bare = line("/proc/cpuinfo").is_some_and(|cpus| is_bare_metal(&cpus));
    !is_bare && !is_loopback(address)
}

/// Whether the processors say that they are real ones; not all kinds can.
fn is_bare_metal(cpus: &str) -> bool {
    let flags = cpus.lines().find_map(|line| line.strip_prefix("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().all(|flag| flag != "hypervisor"))
}

fn is_loopback(address: &str) -> bool {
    let bare = ["v1:", "v2:", "any:"].iter().find_map(|kind| address.strip_prefix(kind));
    let bare = bare.unwrap_or(address);
    bare.starts_with("127.") || bare.starts_with("[::1]:")
}

/// What tells this set of processes from all others; see [`may_live_elsewhere`].
fn here() -> Option<(String, u64)> {
    let boot = line("/proc/sys/kernel/random/boot_id")?;
    let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
    let namespace = namespace.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()?;
    Some((boot, namespace))
}

/// Whether the process that began then is gone for sure: there is none of that number, or another.
/// That `/proc` does not show it proves nothing: it may hide other users' (`hidepid`).
fn is_gone(pid: u32, began_then: u64) -> bool {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(number) = number else { return false };
    if test_kill_process(number) == Err(Errno::SRCH) {
        return true;
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| match State::parse(&stat) {
        Some(State::Dead) => true,
        Some(State::Since(began)) => began != began_then,
        None => false,
    })
}

/// What `/proc/PID/stat` says.
enum State {
    /// A zombie: it does no I/O any more.
    Dead,
    /// It began then.
    Since(u64),
}

impl State {
    fn parse(stat: &str) -> Option<Self> {
        // Behind the name, which may hold blanks and brackets: fields 3 and 22.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        match fields.next()? {
            "Z" | "X" => Some(Self::Dead),
            _ => Some(Self::Since(fields.nth(18)?.parse().ok()?)),
        }
    }
}

/// When a process began; `None`: there is none, or it can't be told.
fn began(pid: u32) -> Option<u64> {
    match State::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)? {
        State::Dead => None,
        State::Since(began) => Some(began),
    }
}

fn line(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn an_owner_is_read_as_it_was_written() {
        let owner = Owner::this(4123).expect("/proc tells");
        let text = owner.to_string();
        assert!(text.len() <= BYTES_MAX);
        assert_eq!(Owner::parse(&text), Some(owner));
        for other in ["", "client=1", &format!("{text} x"), &text.replace("pid=", "pid=x")] {
            assert_eq!(Owner::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_client_of_a_virtual_machine_may_live_elsewhere() {
        let real =
            "processor\t: 0\nvmx flags\t: ept\nflags\t\t: fpu sse2 rdtscp\nbugs\t\t: swapgs\n";
        assert!(is_bare_metal(real));
        assert!(!is_bare_metal(&real.replace("rdtscp", "hypervisor rdtscp")));
        for silent in ["", "processor\t: 0\nFeatures\t: fp asimd\n"] {
            assert!(!is_bare_metal(silent), "{silent}");
        }
        for here in ["127.0.0.1:0/1234", "v2:127.0.0.2:0/1", "[::1]:0/1", "any:127.0.0.1:0/1"] {
            assert!(is_loopback(here) && !may_live_elsewhere(here), "{here}");
        }
        for far in ["", "10.127.0.1:0/1234", "[fe80::1]:0/1", "[v2:127.0.0.1:0/1,v1:10.0.0.1:0/1]"]
        {
            assert!(!is_loopback(far), "{far}");
        }
    }

    #[test]
    fn only_a_process_that_would_be_seen_is_known_to_be_dead() {
        let this = Owner::this(1).expect("/proc tells");
        assert!(!this.is_dead());
        let mut child = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().expect("it");
        let pid = child.id();
        let other = Owner { pid, began: began(pid).expect("it runs"), ..this.clone() };
        assert!(!other.is_dead());
        child.kill().expect("it is killed");
        // It was waited for or not: it is gone both times.
        while began(pid).is_some() {
            std::thread::yield_now();
        }
        assert!(other.is_dead());
        child.wait().expect("it is gone");
        assert!(other.is_dead());
        // Its number was given to another process.
        assert!(Owner { began: this.began + 1, ..this.clone() }.is_dead());
        for elsewhere in [
            Owner { boot: "x".into(), ..other.clone() },
            Owner { namespace: this.namespace + 1, ..other },
        ] {
            assert!(!elsewhere.is_dead(), "{elsewhere}");
        }
    }
}
