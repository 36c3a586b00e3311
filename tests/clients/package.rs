//! The Debian package on a bare Debian 12: installed, started as systemd would, upgraded under a client
//! that goes on, restarted, removed, purged.
//!
//! Needs root and, once, the network; elsewhere it says that it was left out.

use crate::Case;
use anyhow::{Context, Result, ensure};
use e2e::debian::{Root, obstacle};
use e2e::nbd::{Client, is_gone};
use e2e::process::{Running, outcome, output};
use e2e::tools::{LINTIAN, MMDEBSTRAP};
use e2e::unit::Unit;
use e2e::{MIB, Site, Status, binary, rng::Rng, stamps};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const CASES: [Case; 2] = [
    Case::new("package_lives_on_a_bare_debian", &[MMDEBSTRAP], lives),
    Case::new("package_is_clean", &[LINTIAN], is_clean),
];

/// A first version, and one that follows.
const FIRST: &str = "0.1.0";
const NEXT: &str = "0.1.0+next";
const LIMIT: Duration = Duration::from_mins(1);
const DISK: u64 = 32 * MIB;
const BLOCK: u64 = 4096;
const BLOCKS: u64 = DISK / BLOCK;
const SECTORS: u64 = BLOCK / stamps::SECTOR as u64;
const CONFIG: &str = "\
[cache]
device = \"/var/lib/cinnabar/cache.img\"
size = \"96MiB\"
[control]
socket = \"/run/cinnabar/control.sock\"
[[volume]]
name = \"vm1\"
backend = \"file:/srv/vm1.raw\"
nbd = \"unix:/run/cinnabar/vm1.sock\"
";

/// Builds a package of the daemon under test.
fn package(version: &str, folder: &Path) -> Result<PathBuf> {
    let mut xtask = Command::new(binary::program("xtask")?);
    // Hardly compressed: that takes most of the time otherwise.
    xtask.args(["package", "--compress", "1", "--version", version]);
    xtask.arg("--binary").arg(binary::cinnabar()?).arg("--lab").arg(binary::lab()?);
    xtask.arg("--output").arg(folder);
    let said = output(xtask.env("SOURCE_DATE_EPOCH", "1700000000"))?;
    Ok(PathBuf::from(said.lines().last().context("it prints the path")?))
}

fn is_clean() -> Result<()> {
    let site = Site::new()?;
    let built = package(FIRST, &site.path("a"))?;
    let again = package(FIRST, &site.path("b"))?;
    ensure!(fs::read(&built)? == fs::read(&again)?, "two packages of one program differ");
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--no-cfg", "--fail-on", "error,warning"]).arg(&built);
    let done = outcome(&mut lintian, LIMIT)?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    ensure!(done.status.success(), "lintian:\n{said}{}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

fn lives() -> Result<()> {
    if let Some(reason) = obstacle() {
        eprintln!("skipped: package_lives_on_a_bare_debian {reason}");
        return Ok(());
    }
    let site = Site::new()?;
    let (first, next) = (package(FIRST, &site.path("a"))?, package(NEXT, &site.path("b"))?);
    let root = Root::new()?;
    let before = root.files()?;
    installed(&root, &first)?;
    let daemon = start(&root)?;
    let load = Load::default();
    let daemon = thread::scope(|scope| {
        let client = scope.spawn(|| load.run(&root.at("run/cinnabar/vm1.sock")));
        let done = upgraded(&root, &next, &load, daemon);
        load.stop.store(true, SeqCst);
        let client = client.join().expect("it does not panic").context("the client");
        // What the client says explains the rest.
        client.and(done)
    })?;
    let own = root.run(&["dpkg", "-L", "cinnabar"])?;
    removed(&root, daemon)?;
    purged(&root, &before, &own)
}

/// A fresh installation starts nothing, and says what to do.
fn installed(root: &Root, package: &Path) -> Result<()> {
    let said = root.install(package)?;
    ensure!(said.contains("not started: fill in [cache]"), "no word of what to do: {said}");
    let asked = root.asked_of_systemd()?;
    ensure!(asked == ["--system daemon-reload"], "asked of systemd: {asked:?}");
    let check = ["/usr/bin/cinnabar", "config", "check", "/etc/cinnabar/cinnabar.toml"];
    let refused = outcome(&mut root.command(&check), LIMIT)?;
    ensure!(refused.status.code() == Some(2), "the default configuration is not refused");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(said.contains("hint: ") && said.contains("[cache]"), "{said}");
    for file in [
        "usr/share/man/man1/cinnabar-volume-add.1.gz",
        "usr/share/man/man1/cinnabar-lab-trace-info.1.gz",
        "usr/share/bash-completion/completions/cinnabar",
        "usr/share/bash-completion/completions/cinnabar-lab",
        "usr/share/cinnabar/grafana-dashboard.json",
        "usr/share/doc/cinnabar/docs/guide/upgrading.md",
    ] {
        ensure!(root.at(file).is_file(), "{file} is missing");
    }
    // Each program is there, and the first one finds the other.
    let info = ["/usr/bin/cinnabar", "trace", "info", "--help"];
    ensure!(root.run(&info)?.contains("cinnabar-lab trace info"), "no laboratory");
    fs::write(root.at("etc/cinnabar/cinnabar.toml"), CONFIG)?;
    fs::File::create(root.at("srv/vm1.raw"))?.set_len(DISK)?;
    root.run(&check).map(drop)
}

/// Starts the daemon as systemd would: the unit's folders, restrictions and program; ready when it says so.
fn start(root: &Root) -> Result<Running> {
    let unit = Unit::read(&root.at("lib/systemd/system/cinnabar.service"))?;
    let folders = [("RuntimeDirectory", "run"), ("StateDirectory", "var/lib")];
    for (key, parent) in folders {
        let name = unit.all(key).last().with_context(|| format!("the unit has no {key}"))?;
        let folder = root.at(parent).join(name);
        fs::create_dir_all(&folder)?;
        fs::set_permissions(
            &folder,
            fs::Permissions::from_mode(unit.mode(&format!("{key}Mode"))?),
        )?;
    }
    let notify = root.at("run/notify");
    // It is there from an earlier start.
    let _ = fs::remove_file(&notify);
    let socket = UnixDatagram::bind(&notify)?;
    socket.set_read_timeout(Some(LIMIT))?;
    for line in unit.all("ExecStartPre") {
        root.run(&line.split(' ').collect::<Vec<_>>())?;
    }
    let line = unit.all("ExecStart").last().context("the unit starts nothing")?;
    let words: Vec<&str> = line.split(' ').collect();
    let mut command = root.command(&words);
    command.env("NOTIFY_SOCKET", "/run/notify").env("STATE_DIRECTORY", "/var/lib/cinnabar");
    // After the change of the root, which the restrictions forbid.
    unit.confine(&mut command)?;
    let daemon = Running::start(&mut command, &root.at("var/log/cinnabar.log"))?;
    let begun = Instant::now();
    let mut message = [0; 4096];
    loop {
        let said = socket.recv(&mut message);
        let said = said.with_context(|| format!("it is not ready:\n{}", daemon.log()))?;
        if String::from_utf8_lossy(&message[..said]).lines().any(|line| line == "READY=1") {
            break;
        }
        ensure!(begun.elapsed() < LIMIT, "it is not ready:\n{}", daemon.log());
    }
    root.set_daemon(Some(&daemon))?;
    Ok(daemon)
}

/// The program that a process runs.
fn program(daemon: &Running) -> Result<String> {
    Ok(fs::read_link(format!("/proc/{}/exe", daemon.pid()))?.display().to_string())
}

/// The package changes under the client, which notices nothing; it waits while the daemon is restarted.
fn upgraded(root: &Root, package: &Path, load: &Load, daemon: Running) -> Result<Running> {
    load.advance(200)?;
    let said = root.install(package)?;
    load.advance(200)?;
    ensure!(load.lost.load(SeqCst) == 0, "the upgrade cost the client its connection");
    ensure!(said.contains("systemctl restart cinnabar"), "no word of what to do: {said}");
    let asked = root.asked_of_systemd()?;
    let harmless = |line: &String| line.contains("daemon-reload") || line.contains("is-active");
    ensure!(asked.iter().all(harmless), "asked of systemd: {asked:?}");
    let version = root.run(&["dpkg-query", "-W", "-f", "${Version} ${Status}", "cinnabar"])?;
    ensure!(version == format!("{NEXT} install ok installed"), "it is {version}");
    ensure!(fs::read_to_string(root.at("etc/cinnabar/cinnabar.toml"))? == CONFIG, "config changed");
    ensure!(program(&daemon)?.ends_with("(deleted)"), "the old program does not run any more");

    let cached = status(root)?.count("vm1", "cached_blocks")?;
    ensure!(cached > 0, "nothing is cached");
    end(root, daemon, e2e::Running::ask_to_end)?;
    let daemon = start(root)?;
    ensure!(program(&daemon)?.ends_with("/usr/bin/cinnabar"), "it is {}", program(&daemon)?);
    load.advance(200)?;
    ensure!(load.lost.load(SeqCst) == 1, "{} connections lost", load.lost.load(SeqCst));
    let warmth = status(root)?.volume("vm1")?["warmth"]["state"].to_string();
    ensure!(warmth.contains("kept"), "the restart is {warmth}");
    Ok(daemon)
}

fn status(root: &Root) -> Result<Status> {
    let words = ["cinnabar", "status", "--json", "--socket", "/run/cinnabar/control.sock"];
    Status::parse(&root.run(&words)?)
}

/// Waits for a clean end of the daemon, which `ask` asks for.
fn end(root: &Root, mut daemon: Running, ask: impl FnOnce(&Running) -> Result<()>) -> Result<()> {
    ask(&daemon)?;
    let status = daemon.wait(LIMIT)?;
    ensure!(status.success(), "ended with {status}:\n{}", daemon.log());
    root.set_daemon(None)
}

/// A removal stops the daemon, and keeps the configuration.
fn removed(root: &Root, daemon: Running) -> Result<()> {
    let mut command = root.command(&["apt-get", "remove", "-q", "-y", "cinnabar"]);
    let mut removal = Running::start(&mut command, &root.at("var/log/removal.log"))?;
    end(root, daemon, |_| Ok(()))?;
    let done = removal.wait(LIMIT)?;
    ensure!(done.success(), "the removal:\n{}", removal.log());
    let asked = root.asked_of_systemd()?;
    ensure!(asked.iter().any(|line| line.ends_with("stop cinnabar.service")), "{asked:?}");
    ensure!(!root.at("usr/bin/cinnabar").exists(), "the program is still there");
    ensure!(root.at("etc/cinnabar/cinnabar.toml").is_file(), "the configuration is gone");
    Ok(())
}

/// A purge leaves nothing of the package's, and everything else. The packages that it needs stay.
fn purged(root: &Root, before: &[String], own: &str) -> Result<()> {
    let said = root.run(&["apt-get", "purge", "-q", "-y", "cinnabar"])?;
    ensure!(said.contains("/var/lib/cinnabar/cache.img"), "no word of the cache device: {said}");
    ensure!(root.at("var/lib/cinnabar/cache.img").is_file(), "the cache device is gone");
    ensure!(root.at("srv/vm1.raw").metadata()?.len() == DISK, "the disk is gone");
    let after = root.files()?;
    let was_there = |file: &str| before.binary_search_by(|one| (**one).cmp(file)).is_ok();
    ensure!(own.lines().count() > 50, "few files: {own}");
    for file in own.lines().filter(|file| *file != "/.") {
        let is_there = root.at(file).symlink_metadata().is_ok();
        ensure!(
            !is_there || was_there(&format!(".{file}")) || of_base(root, file),
            "{file} is left"
        );
    }
    let state = |file: &str| file.starts_with("./var/lib/cinnabar");
    let left = after.iter().find(|file| file.contains("cinnabar") && !state(file));
    ensure!(left.is_none(), "{left:?} is left");
    let lost: Vec<_> = before.iter().filter(|file| after.binary_search(file).is_err()).collect();
    ensure!(lost.is_empty(), "gone with it: {lost:?}");
    Ok(())
}

/// Whether another package has a folder of this name, too; `/lib` is `/usr/lib`.
fn of_base(root: &Root, file: &str) -> bool {
    root.at(file).is_dir() && !file.contains("cinnabar")
}

/// A client that writes and reads, and knows what it must find.
#[derive(Default)]
struct Load {
    done: AtomicU64,
    lost: AtomicU64,
    stop: AtomicBool,
}

impl Load {
    /// Waits until so many more requests were answered.
    fn advance(&self, count: u64) -> Result<()> {
        let (begun, goal) = (Instant::now(), self.done.load(SeqCst) + count);
        while self.done.load(SeqCst) < goal {
            ensure!(begun.elapsed() < LIMIT, "the client hangs");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Goes on until it is stopped, then reads all of it.
    fn run(&self, socket: &Path) -> Result<()> {
        let result = self.drive(socket);
        // Others wait for progress no longer.
        self.done.fetch_add(u64::from(result.is_err()) << 32, SeqCst);
        result
    }

    fn drive(&self, socket: &Path) -> Result<()> {
        let mut client = Client::connect(socket, "vm1")?;
        let mut versions = vec![stamps::ZEROS; BLOCKS as usize];
        let mut rng = Rng::new(7);
        let mut next = 0;
        while !self.stop.load(SeqCst) {
            next += 1;
            let block = rng.below(BLOCKS);
            let data = stamps::made(1, block * SECTORS, SECTORS, next);
            let other = rng.below(BLOCKS);
            let mut step = |client: &mut Client| {
                client.write(block * BLOCK, &data)?;
                versions[block as usize] = next;
                check(client, other, versions[other as usize])
            };
            while let Err(error) = step(&mut client) {
                ensure!(is_gone(&error), "{error:#}");
                client = self.again(socket)?;
            }
            self.done.fetch_add(1, SeqCst);
        }
        (0..BLOCKS)
            .zip(versions)
            .try_for_each(|(block, version)| check(&mut client, block, version))
    }

    /// As QEMU does with `reconnect-delay`: the request under way is made again.
    fn again(&self, socket: &Path) -> Result<Client> {
        self.lost.fetch_add(1, SeqCst);
        let begun = Instant::now();
        loop {
            match Client::connect(socket, "vm1") {
                Ok(client) => return Ok(client),
                Err(error) => ensure!(begun.elapsed() < LIMIT, "not served again: {error:#}"),
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Reads a block and compares it.
fn check(client: &mut Client, block: u64, version: u64) -> Result<()> {
    let found = client.read(block * BLOCK, BLOCK as usize)?;
    let expected = stamps::made(1, block * SECTORS, SECTORS, version);
    ensure!(found == expected, "block {block} is not version {version}");
    Ok(())
}
