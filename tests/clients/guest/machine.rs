//! A guest: QEMU without KVM, Debian's kernel, and a shell that runs commands.
//!
//! Emulation makes it slow and the machines of a CI are busy, so every wait is bounded generously,
//! and what the guest printed is part of each error.

use super::disk::Disk;
use super::initramfs;
use super::qmp::Qmp;
use anyhow::{Context, Result, bail, ensure};
use e2e::tools::{self, Tool};
use e2e::{Running, Site};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// From power-on to the shell; 3.5 s on an idle machine.
const BOOT_LIMIT: Duration = Duration::from_mins(2);
/// A line of the shell.
const LINE_LIMIT: Duration = Duration::from_mins(5);
/// When to look whether its kernel is the reason for which there is no answer.
const CRASH_LIMIT: Duration = Duration::from_secs(10);
/// 192 MiB, and 8 KiB more than a multiple of 256 KiB.
///
/// QEMU before 9.0 (Debian 12 has 7.2) loses writes of an emulated processor to memory of such a multiple while it
/// migrates: its fast way to gather dirty pages leaves them unwatched (mended by QEMU's commit 03bfc2188f06, "physmem:
/// Fix migration dirty bitmap coherency with TCG memory access"). Memory of another size goes the slow way, which is
/// right. Under KVM there is no such fault.
const MEMORY: &str = "196616K";
/// What a guest's kernel prints when a disk failed it.
const TROUBLE: [&str; 6] =
    ["I/O error", "EXT4-fs error", "EXT4-fs warning", "blocked for more than", "Oops", "panic"];

/// What its kernel writes when it has crashed: what runs on then answers nothing, or wrong.
const CRASHED: [&str; 3] = ["Oops", "general protection fault", "BUG: unable"];

/// A running guest, ended when dropped.
#[derive(Debug)]
pub(super) struct Guest {
    name: String,
    qemu: Running,
    qmp: Qmp,
    shell: UnixStream,
    /// What came over the shell's line and was not looked at yet.
    unread: String,
    console: PathBuf,
    progress: PathBuf,
}

/// What to start.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) disks: Vec<Disk>,
    /// Goes on from its first disk when it has the drivers.
    pub(super) boots_disk: bool,
    pub(super) cpus: u32,
    /// Programs that it has beside those of all guests.
    pub(super) programs: Vec<Tool>,
}

impl Plan {
    /// A guest with these disks.
    pub(super) fn new(name: &str, disks: &[Disk]) -> Self {
        Self {
            name: name.into(),
            disks: disks.to_vec(),
            boots_disk: false,
            cpus: 2,
            programs: Vec::new(),
        }
    }

    /// Starts it and waits for its shell. Several guests of one name follow one another; each
    /// starts with an empty console and no progress.
    pub(super) fn boot(&self, site: &Site) -> Result<Guest> {
        let mut guest = self.start(site, None)?;
        guest.ready()?;
        Ok(guest)
    }

    /// Starts the QEMU that is to receive it at this socket.
    pub(super) fn receive(&self, site: &Site, socket: &Path) -> Result<Guest> {
        let _ = std::fs::remove_file(socket);
        self.start(site, Some(&format!("unix:{}", socket.display())))
    }

    /// Starts QEMU for a guest of the same name and disks that was migrated to this file, and waits
    /// until the guest runs.
    pub(super) fn arrive(&self, site: &Site, stream: &Path) -> Result<Guest> {
        let mut guest = self.start(site, Some(&format!("exec:cat {}", stream.display())))?;
        guest.runs()?;
        Ok(guest)
    }

    fn start(&self, site: &Site, incoming: Option<&str>) -> Result<Guest> {
        let kernel = e2e::kernel::find().context("no kernel for guests")?;
        let file = |kind: &str| site.path(&format!("{}.{kind}", self.name));
        let (initramfs, console, progress) = (file("cpio"), file("console"), file("progress"));
        let mut tree = initramfs::tree(&kernel)?;
        for Tool { command, .. } in &self.programs {
            let program = tools::find(command).with_context(|| format!("no {command}"))?;
            initramfs::add_program(&mut tree, &format!("bin/{command}"), &program)?;
        }
        initramfs::pack(&tree, &initramfs)?;
        for old in [&console, &progress, &file("shell"), &file("qmp")] {
            // Mostly there is none.
            let _ = std::fs::remove_file(old);
        }
        let mut command = Command::new(tools::QEMU.command);
        command
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-machine", "pc,memory-backend=ram", "-accel", "tcg", "-m", MEMORY])
            .arg("-object")
            .arg(format!("memory-backend-memfd,id=ram,size={MEMORY},share=on"))
            .args(["-smp", &self.cpus.to_string(), "-kernel"])
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(&initramfs)
            .args(["-append", &self.kernel_line()])
            .args(["-serial", &format!("file:{}", console.display())])
            .args(["-serial", &format!("unix:{},server=on,wait=off", file("shell").display())])
            .args(["-serial", &format!("file:{}", progress.display())])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", file("qmp").display())]);
        for step in self.disks.iter().flat_map(Disk::attach) {
            command.args(step.option);
        }
        if let Some(uri) = incoming {
            command.args(["-incoming", uri]);
        }
        let mut qemu = Running::start(&mut command, &file("qemu"))?;
        let mut shell = None;
        qemu.wait_until(BOOT_LIMIT, || {
            shell = shell.take().or_else(|| UnixStream::connect(file("shell")).ok());
            shell.is_some() && file("qmp").exists()
        })?;
        let shell = shell.context("no shell")?;
        shell.set_read_timeout(Some(Duration::from_millis(200)))?;
        let qmp = Qmp::connect(&file("qmp"))?;
        let name = self.name.clone();
        Ok(Guest { name, qemu, qmp, shell, unread: String::new(), console, progress })
    }

    fn kernel_line(&self) -> String {
        let boot = if self.boots_disk { " boot=disk" } else { "" };
        // On a busy machine the emulated timer may be too late for the kernel's check of it.
        format!("console=ttyS0 loglevel=5 no_timer_check{boot}")
    }
}

impl Guest {
    /// Runs a line of shell and hands back what it printed.
    pub(super) fn run(&mut self, line: &str) -> Result<String> {
        self.run_within(line, LINE_LIMIT)
    }

    fn run_within(&mut self, line: &str, limit: Duration) -> Result<String> {
        self.shell.write_all(format!("{line}\n").as_bytes())?;
        let (text, status) = self.answer(limit).with_context(|| format!("`{line}`"))?;
        ensure!(status == "0", "{}: `{line}` ended with {status}:\n{text}", self.name);
        Ok(text)
    }

    /// Runs a command of QEMU's control socket.
    pub(super) fn qmp(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        self.qmp.execute(command, arguments)
    }

    /// Attaches a disk while it runs.
    pub(super) fn plug(&mut self, disk: &Disk) -> Result<()> {
        for step in disk.attach() {
            self.qmp.execute(step.command, &step.arguments)?;
        }
        Ok(())
    }

    /// Takes a disk away: the guest is asked, lets go, and then its host does.
    pub(super) fn unplug(&mut self, disk: &Disk) -> Result<()> {
        self.qmp.execute("device_del", &json!({ "id": disk.id }))?;
        self.qmp.wait("DEVICE_DELETED", "device", &disk.id)?;
        let (command, arguments) = disk.detach();
        self.qmp.execute(command, &arguments)?;
        Ok(())
    }

    /// Waits until it runs in the QEMU that has received it.
    pub(super) fn runs(&mut self) -> Result<()> {
        let start = Instant::now();
        while self.qmp.execute("query-status", &json!({}))?["running"] != true {
            ensure!(start.elapsed() < LINE_LIMIT, "{} does not run", self.name);
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Presses its reset button and waits for its shell.
    pub(super) fn reset(&mut self) -> Result<()> {
        self.qmp.execute("system_reset", &json!({}))?;
        self.unread.clear();
        self.ready()
    }

    /// Ends it as a crash of QEMU would. Its reports can still be read.
    pub(super) fn crash(&mut self) -> Result<()> {
        self.qemu.kill()
    }

    /// Shuts it down, the clean way.
    pub(super) fn power_off(mut self) -> Result<()> {
        self.shell.write_all(b"sync; poweroff -f\n")?;
        let ended = self.qemu.wait(LINE_LIMIT);
        let status = ended.with_context(|| format!("switching {} off", self.name))?;
        ensure!(status.success(), "QEMU ended with {status}:\n{}", self.qemu.log());
        Ok(())
    }

    /// Whether its kernel has complained so far.
    pub(super) fn check_console(&self) -> Result<()> {
        let console = read(&self.console);
        let complaint = console.lines().find(|line| TROUBLE.iter().any(|sign| line.contains(sign)));
        match complaint {
            Some(complaint) => bail!("{}: {complaint}\n{}", self.name, tail(&console)),
            None => Ok(()),
        }
    }

    /// Whether background work has failed so far.
    pub(super) fn check_work(&self) -> Result<()> {
        let text = read(&self.progress);
        match text.lines().find(|line| line.starts_with("failed: ")) {
            Some(failure) => bail!("{}: {failure}\n{}", self.name, tail(&read(&self.console))),
            None => Ok(()),
        }
    }

    /// The number in the last line that begins and ends with these words, 0 if there is none.
    pub(super) fn told(&self, begin: &str, end: &str) -> u64 {
        let text = read(&self.progress);
        // The last line may be on its way.
        let whole = text.rfind('\n').map_or("", |last| &text[..last]);
        whole
            .lines()
            .filter_map(|line| line.trim().strip_prefix(begin)?.strip_suffix(end)?.parse().ok())
            .next_back()
            .unwrap_or(0)
    }

    fn ready(&mut self) -> Result<()> {
        let ready = self.answer(BOOT_LIMIT).and_then(|(text, status)| {
            ensure!(status == "ready", "not ready, but {status}:\n{text}");
            Ok(())
        });
        ready.with_context(|| format!("booting {}", self.name))
    }

    /// Reads up to a line that begins with `=`; hands back what came before it, and its rest.
    fn answer(&mut self, limit: Duration) -> Result<(String, String)> {
        let start = Instant::now();
        let mut bytes = [0; 4096];
        loop {
            if let Some(answer) = self.take_answer() {
                return Ok(answer);
            }
            match self.shell.read(&mut bytes) {
                Ok(0) => bail!("QEMU is gone:\n{}", self.qemu.log()),
                Ok(count) => self.unread.push_str(&String::from_utf8_lossy(&bytes[..count])),
                // A read with a time limit ends so, too, when the process was stopped and goes on.
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error.into()),
            }
            if start.elapsed() > CRASH_LIMIT {
                let console = read(&self.console);
                let crash = console.lines().find(|line| CRASHED.iter().any(|c| line.contains(c)));
                if let Some(crash) = crash {
                    bail!("its kernel has crashed: {crash}\n{}", tail(&console));
                }
            }
            if start.elapsed() > limit {
                let console = tail(&read(&self.console)).to_owned();
                let log = self.qemu.log();
                bail!("nothing for {limit:?}; {}\nconsole:\n{console}\n{log}", self.unread);
            }
        }
    }

    fn take_answer(&mut self) -> Option<(String, String)> {
        let mut start = 0;
        for line in self.unread.split_inclusive('\n') {
            if let Some(rest) = line.strip_prefix('=')
                && line.ends_with('\n')
            {
                let answer = (self.unread[..start].to_owned(), rest.trim_end().to_owned());
                self.unread = self.unread[start + line.len()..].to_owned();
                return Some(answer);
            }
            start += line.len();
        }
        None
    }
}

/// Waits until `done` holds.
pub(super) fn wait_for(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !done()? {
        ensure!(start.elapsed() < LINE_LIMIT, "{what}: not within {LINE_LIMIT:?}");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn read(path: &Path) -> String {
    std::fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

fn tail(text: &str) -> &str {
    let start = text.len().saturating_sub(3000);
    text.get(start..).unwrap_or(text)
}
