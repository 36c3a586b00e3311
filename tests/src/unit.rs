//! A service file of systemd's, and a process under its restrictions without systemd: capabilities,
//! system calls, no new privileges, file mode mask.
//!
//! Name spaces (`ProtectSystem=` and the like) are left out.

use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Numbers of the capabilities that the shipped unit may keep.
const CAPABILITIES: [(&str, u32); 4] =
    [("CAP_CHOWN", 0), ("CAP_DAC_OVERRIDE", 1), ("CAP_DAC_READ_SEARCH", 2), ("CAP_FOWNER", 3)];
/// The kernel refuses numbers beyond its last.
const CAPABILITY_MAX: u32 = 63;
/// `AUDIT_ARCH_X86_64`.
const ARCHITECTURE: u32 = 0xc000_003e;
/// Where the kernel's headers list the numbers of system calls.
const NUMBERS: &str = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";

/// The settings of a service file, each key with all of its values.
#[derive(Debug)]
pub struct Unit(BTreeMap<String, Vec<String>>);

impl Unit {
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let mut settings: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with(['#', '[', ';'])) {
            if let Some((key, value)) = line.split_once('=') {
                settings.entry(key.trim().into()).or_default().push(value.trim().into());
            }
        }
        Ok(Self(settings))
    }

    /// The values of a key.
    pub fn all(&self, key: &str) -> &[String] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }

    /// A file mode.
    pub fn mode(&self, key: &str) -> Result<u32> {
        let text = self.all(key).last().with_context(|| format!("the unit has no {key}"))?;
        u32::from_str_radix(text, 8).with_context(|| format!("{key}={text}"))
    }

    /// Has a command run as systemd would run it. System calls are filtered if their names can be
    /// looked up here; false if not.
    pub fn confine(&self, command: &mut Command) -> Result<bool> {
        let kept = self.capabilities()?;
        let no_new_privileges = self.all("NoNewPrivileges").iter().any(|value| value == "yes");
        let mask = self.mode("UMask")?;
        let filter = self.filter()?;
        let has_filter = filter.is_some();
        let set_up = move || {
            for capability in (0..=CAPABILITY_MAX).filter(|number| !kept.contains(number)) {
                // SAFETY: takes numbers only; those beyond the last of the kernel are refused.
                unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
            }
            // SAFETY: takes numbers only.
            unsafe { libc::umask(mask) };
            if no_new_privileges {
                rustix::thread::set_no_new_privs(true)?;
            }
            if let Some(filter) = &filter {
                let program = libc::sock_fprog {
                    len: filter.len() as libc::c_ushort,
                    filter: filter.as_ptr().cast_mut(),
                };
                // SAFETY: the kernel copies the program, which lives as long as this closure.
                let done = unsafe {
                    libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
                };
                if done != 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: the closure makes system calls and allocates nothing.
        unsafe { command.pre_exec(set_up) };
        Ok(has_filter)
    }

    fn capabilities(&self) -> Result<BTreeSet<u32>> {
        let names = self.all("CapabilityBoundingSet").iter().flat_map(|v| v.split_whitespace());
        let number = |name: &str| {
            let known = CAPABILITIES.iter().find(|(known, _)| *known == name);
            known.map(|known| known.1).with_context(|| format!("{name} is not known here"))
        };
        names.map(number).collect()
    }

    /// The program that lets the unit's system calls pass and kills for all others.
    fn filter(&self) -> Result<Option<Vec<libc::sock_filter>>> {
        let lines = self.all("SystemCallFilter");
        let numbers = if cfg!(target_arch = "x86_64") { numbers() } else { None };
        let (Some(numbers), false) = (numbers, lines.is_empty()) else { return Ok(None) };
        ensure!(!lines[0].starts_with('~'), "a list of what is allowed comes first");
        let mut allowed = BTreeSet::new();
        for line in lines {
            let (denies, names) = line.strip_prefix('~').map_or((false, &**line), |l| (true, l));
            for name in names.split_whitespace() {
                let Some(group) = members(name)? else { return Ok(None) };
                if denies {
                    allowed = &allowed - &group;
                } else {
                    allowed.extend(group);
                }
            }
        }
        let Some(always) = members("@default")? else { return Ok(None) };
        allowed.extend(always);
        let allowed: Vec<u32> =
            allowed.iter().filter_map(|name| numbers.get(name).copied()).collect();
        ensure!(allowed.len() > 100, "only {} system calls are allowed", allowed.len());
        Ok(Some(program(&allowed)))
    }
}

/// Numbers of system calls by name.
fn numbers() -> Option<BTreeMap<String, u32>> {
    let text = std::fs::read_to_string(NUMBERS).ok()?;
    let number = |line: &str| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    };
    Some(text.lines().filter_map(number).collect())
}

/// The system calls that a name stands for, as systemd has it; `None` where it is not installed.
fn members(name: &str) -> Result<Option<BTreeSet<String>>> {
    if !name.starts_with('@') {
        return Ok(Some(BTreeSet::from([name.to_owned()])));
    }
    let asked =
        Command::new("systemd-analyze").args(["--no-pager", "syscall-filter", name]).output();
    let Ok(output) = asked else { return Ok(None) };
    if !output.status.success() {
        bail!("systemd-analyze does not know {name}");
    }
    let text = String::from_utf8(output.stdout)?;
    let mut all = BTreeSet::new();
    for member in text.lines().skip(1).map(str::trim).filter(|line| !line.starts_with('#')) {
        let Some(below) = members(member)? else { return Ok(None) };
        all.extend(below);
    }
    Ok(Some(all))
}

/// Classic BPF: the architecture, then one comparison for each number.
fn program(allowed: &[u32]) -> Vec<libc::sock_filter> {
    const LOAD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const KILL: u32 = 0x8000_0000;
    // Offsets in `seccomp_data`.
    const NUMBER: u32 = 0;
    const ARCH: u32 = 4;
    let one = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = vec![
        one(LOAD, 0, 0, ARCH),
        one(JUMP_IF_EQUAL, 1, 0, ARCHITECTURE),
        one(RETURN, 0, 0, KILL),
        one(LOAD, 0, 0, NUMBER),
    ];
    for number in allowed {
        program.push(one(JUMP_IF_EQUAL, 0, 1, *number));
        program.push(one(RETURN, 0, 0, ALLOW));
    }
    program.push(one(RETURN, 0, 0, KILL));
    program
}
