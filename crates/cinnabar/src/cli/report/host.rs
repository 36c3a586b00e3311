//! What the host is: kernel, CPU, memory, block devices, mounts, limits.

use super::bundle::{Bundle, Content};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Longest wait for a program's answer: of the journal, of systemd, of an SSD.
const PROGRAM_WAIT_MAX: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// Facts of a block device, below `/sys/block/NAME`. Serial numbers are none.
const DEVICE_FACTS: [&str; 10] = [
    "size",
    "device/model",
    "device/vendor",
    "queue/rotational",
    "queue/logical_block_size",
    "queue/physical_block_size",
    "queue/scheduler",
    "queue/write_cache",
    "queue/nr_requests",
    "queue/discard_max_bytes",
];
/// Limits of a control group.
const GROUP_LIMITS: [&str; 8] = [
    "memory.max",
    "memory.high",
    "memory.current",
    "memory.swap.max",
    "cpu.max",
    "cpu.weight",
    "io.max",
    "pids.max",
];
/// The same of version 1, by controller.
const OLD_GROUP_LIMITS: [(&str, &[&str]); 3] = [
    ("memory", &["memory.limit_in_bytes", "memory.usage_in_bytes"]),
    ("cpu", &["cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares"]),
    ("pids", &["pids.max"]),
];

/// Adds them; of the daemon's process, or of this one if there is none.
pub(super) fn facts(bundle: &mut Bundle, pid: Option<u32>) {
    let uname = rustix::system::uname();
    let word = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let kernel = [uname.sysname(), uname.release(), uname.version(), uname.machine()].map(word);
    let release = read("/etc/os-release").unwrap_or_default();
    let text = format!("{}\n\n{release}", kernel.join(" "));
    bundle.add("host/system.txt", Ok(Content::Text(text)));
    bundle.add("host/cpu.txt", read("/proc/cpuinfo").map(|text| Content::Text(cpus(&text))));
    for (name, path) in [
        ("host/memory.txt", "/proc/meminfo"),
        ("host/mounts.txt", "/proc/self/mounts"),
        ("host/load.txt", "/proc/loadavg"),
    ] {
        bundle.add(name, read(path).map(Content::Text));
    }
    bundle.add("host/block-devices.txt", devices(Path::new("/sys/block")).map(Content::Text));
    let process = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let whose = if pid.is_some() { "the daemon" } else { "this command: no daemon answers" };
    for (name, file) in [("host/limits.txt", "limits"), ("host/process.txt", "status")] {
        let text = read(&format!("/proc/{process}/{file}"));
        bundle.add(name, text.map(|text| Content::Text(format!("Of {whose}\n\n{text}"))));
    }
    let groups = read(&format!("/proc/{process}/cgroup"));
    let groups = groups.map(|text| format!("Of {whose}\n\n{}", control_groups(&text)));
    bundle.add("host/cgroup.txt", groups.map(Content::Text));
}

/// A small file.
fn read(path: &str) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The first one, and how many there are: they are alike.
fn cpus(text: &str) -> String {
    let count = text.lines().filter(|line| line.starts_with("processor")).count();
    let first = text.split("\n\n").next().unwrap_or_default();
    format!("{count} of these:\n\n{}\n", first.trim_end())
}

fn devices(folder: &Path) -> Result<String, String> {
    let entries = std::fs::read_dir(folder);
    let entries = entries.map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut text = String::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Writing to a string does not fail.
        let _ok = writeln!(text, "{name}");
        for fact in DEVICE_FACTS {
            if let Ok(value) = std::fs::read_to_string(path.join(fact)) {
                let unit = if fact == "size" { " sectors of 512 bytes" } else { "" };
                let _ok = writeln!(text, "  {fact}: {}{unit}", value.trim());
            }
        }
    }
    Ok(text)
}

/// The limits of a process's control group and, in version 2, of those above it.
fn control_groups(text: &str) -> String {
    let mut found = text.to_owned();
    for (controller, limits) in OLD_GROUP_LIMITS {
        let path = text.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|one| one == controller).then_some(path)
        });
        let Some(path) = path else { continue };
        for limit in limits {
            let file = format!("/sys/fs/cgroup/{controller}{path}/{limit}");
            if let Ok(value) = std::fs::read_to_string(&file) {
                let _ok = writeln!(found, "{file}: {}", value.trim());
            }
        }
    }
    let Some(own) = text.lines().find_map(|line| line.strip_prefix("0::/")) else { return found };
    let top = Path::new("/sys/fs/cgroup");
    let folder = top.join(own);
    for group in folder.ancestors().take_while(|group| group.starts_with(top)) {
        for limit in GROUP_LIMITS {
            if let Ok(value) = std::fs::read_to_string(group.join(limit)) {
                let value = value.trim().replace('\n', "; ");
                let _ok = writeln!(found, "{}/{limit}: {value}", group.display());
            }
        }
    }
    found
}

/// What a program prints; why it does not. One that does not end is ended.
pub(super) fn said(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: &dyn std::fmt::Display| format!("{name}: {error}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| failed(&error))?;
    // Its number may be another's by the time that it is to be ended.
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let process = process.map_err(|error| failed(&error))?;
    let (done, ended) = std::sync::mpsc::channel();
    let wait = move || drop(done.send(child.wait_with_output()));
    std::thread::Builder::new().spawn(wait).map_err(|error| failed(&error))?;
    let Ok(done) = ended.recv_timeout(PROGRAM_WAIT_MAX) else {
        let _ends_or_hangs = pidfd_send_signal(&process, Signal::KILL);
        return Err(failed(&"it does not end"));
    };
    let done = done.map_err(|error| failed(&error))?;
    if !done.status.success() {
        let text = String::from_utf8_lossy(&done.stderr);
        let last = text.lines().next().unwrap_or("it says nothing");
        return Err(format!("{name}: {last}"));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_facts() {
        let mut bundle = Bundle::default();
        facts(&mut bundle, None);
        let found: Vec<&str> = bundle.files.iter().map(|(name, _)| &**name).collect();
        for name in ["host/system.txt", "host/cpu.txt", "host/limits.txt", "host/cgroup.txt"] {
            assert!(found.contains(&name), "{name} is missing: {:?}", bundle.missing);
        }
        assert!(said(&mut Command::new("/no/such/program")).is_err());
        let endless = said(Command::new("sleep").arg("1000"));
        assert_eq!(endless, Err("sleep: it does not end".to_owned()));
    }

    #[test]
    fn cpus_are_counted_and_one_is_shown() {
        let text = "processor\t: 0\nmodel name\t: A\n\nprocessor\t: 1\nmodel name\t: A\n\n";
        let shown = cpus(text);
        assert!(shown.starts_with("2 of these"), "{shown}");
        assert_eq!(shown.matches("model name").count(), 1);
    }
}
