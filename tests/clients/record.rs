//! `cinnabar trace record` beside real clients: the trace has just what they did.
//!
//! The trace is read here by its documented form, not by our own reader.

use crate::Case;
use anyhow::{Context, Result, ensure};
use e2e::process::CLIENT_LIMIT;
use e2e::tools::{FIO, QEMU_IO};
use e2e::{Config, Daemon, Fio, MIB, Running, Site, Volume, output};
use std::path::PathBuf;
use std::process::Command;

pub(crate) const CASES: [Case; 3] = [
    Case::new("record_fio_over_nbd", &[FIO], fio),
    Case::new("record_qemu_io_over_nbd", &[QEMU_IO], qemu_io),
    Case::new("record_vhost_user", &[], vhost_user).quick(),
];

const DISK: u64 = 32 * MIB;

/// A daemon with two data threads, and a recording of its volume.
struct Recorded {
    site: Site,
    daemon: Daemon,
    recorder: Running,
}

impl Recorded {
    fn start(volume: impl FnOnce(&Site) -> Volume) -> Result<Self> {
        let site = Site::new()?;
        site.filled("disk.raw", DISK, 1)?;
        let config = Config::new(64 * MIB).cache_key("shards = 2\nthreads = 2");
        let daemon = site.serve(&config.volume(volume(&site)))?;
        let mut command = Command::new(e2e::binary::cinnabar()?);
        command
            .args(["trace", "record", "vm1", "--json", "--socket"])
            .arg(site.path("control.sock"));
        command.arg("--out").arg(site.path("trace.csv"));
        let log = site.path("record.log");
        let mut recorder = Running::start(&mut command, &log)?;
        let records = || std::fs::read_to_string(&log).is_ok_and(|text| text.contains("recording"));
        recorder.wait_until(CLIENT_LIMIT, records)?;
        Ok(Self { site, daemon, recorder })
    }

    /// Ends the recording as a service manager would, and compares it with the daemon's own counters.
    fn end(mut self) -> Result<Vec<Line>> {
        self.recorder.ask_to_end()?;
        let status = self.recorder.wait(CLIENT_LIMIT)?;
        let log = self.recorder.log();
        ensure!(status.success(), "{status}: {log}");
        ensure!(log.contains("\"dropped\":0"), "{log}");
        let text = std::fs::read_to_string(self.site.path("trace.csv"))?;
        let (names, requests) = text.split_once('\n').context("an empty trace")?;
        ensure!(names == "# volume 0 vm1", "the volume's name comes first: {names:?}");
        let lines: Vec<Line> = requests.lines().map(Line::parse).collect::<Result<_>>()?;
        ensure!(lines.is_sorted_by_key(|line| line.ts_us), "time goes back");
        let status = self.daemon.status()?;
        for (op, keys) in [('R', &["reads"][..]), ('W', &["writes"]), ('D', &["trims", "zeroes"])] {
            let mut counted = 0;
            for key in keys {
                counted += status.count("vm1", key)?;
            }
            let recorded = count(&lines, op);
            ensure!(recorded == counted, "{op}: {recorded} recorded, {counted} served");
        }
        self.daemon.stop()?;
        Ok(lines)
    }
}

/// `ts_us,vol,op,offset_bytes,length_bytes`, behind the comment that names the volume.
#[derive(Debug)]
struct Line {
    ts_us: u64,
    op: char,
    offset: u64,
    len: u64,
}

impl Line {
    fn parse(text: &str) -> Result<Self> {
        let fields: Vec<&str> = text.split(',').collect();
        let [ts_us, volume, op, offset, len] = fields[..] else { anyhow::bail!("{text:?}") };
        ensure!(volume == "0", "another volume: {text:?}");
        let op = op.parse().with_context(|| format!("{text:?}"))?;
        Ok(Self { ts_us: ts_us.parse()?, op, offset: offset.parse()?, len: len.parse()? })
    }
}

fn count(lines: &[Line], op: char) -> u64 {
    lines.iter().filter(|line| line.op == op).count() as u64
}

fn nbd(_site: &Site) -> Volume {
    Volume::new("vm1", "file:disk.raw")
}

/// Reads and writes of four jobs at once, as many of each as fio says. Blocks of 4 KiB are never split
/// between shards, whose counters would count each part.
fn fio() -> Result<()> {
    let recorded = Recorded::start(nbd)?;
    let done = Fio::nbd(&recorded.site.uri("vm1"))
        .arg("rw", "randrw")
        .arg("rwmixread", 70)
        .arg("iodepth", 16)
        .arg("numjobs", 4)
        .arg("size", DISK / 4)
        .arg("offset_increment", DISK / 4)
        .run()?;
    let lines = recorded.end()?;
    for (op, direction) in [('R', done.read), ('W', done.write)] {
        let recorded = count(&lines, op);
        ensure!(recorded == direction.operations, "{op}: {recorded} of {}", direction.operations);
        ensure!(recorded > 500, "fio did nothing: {recorded}");
    }
    // Every byte was asked for once.
    let bytes: u64 = lines.iter().filter(|line| "RW".contains(line.op)).map(|line| line.len).sum();
    ensure!(bytes == DISK, "{bytes} bytes");
    Ok(())
}

/// Each kind of request, in the order of the commands.
fn qemu_io() -> Result<()> {
    let recorded = Recorded::start(nbd)?;
    let commands =
        ["write -P 5 64k 128k", "read 64k 4k", "discard 1M 64k", "write -z 2M 8k", "flush"];
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw", "-t", "writeback", "-d", "unmap"]);
    command.args(commands.iter().flat_map(|one| ["-c", one]));
    output(command.arg(recorded.site.uri("vm1")))?;
    let lines = recorded.end()?;
    let expected = [
        ('W', 64 << 10, 128 << 10),
        ('R', 64 << 10, 4 << 10),
        ('D', 1 << 20, 64 << 10),
        ('D', 2 << 20, 8 << 10),
    ];
    let after = lines.iter().position(|line| line.op == 'W').context("no write")?;
    let (head, asked) = lines.split_at(after);
    // It may look at the disk first, to find out what it is.
    ensure!(head.iter().all(|line| line.op == 'R'), "{head:?}");
    let data = asked.iter().filter(|line| line.op != 'F');
    let data: Vec<_> = data.map(|line| (line.op, line.offset, line.len)).collect();
    ensure!(data == expected, "{data:?}");
    ensure!(asked.last().is_some_and(|line| line.op == 'F'), "a flush at the end: {asked:?}");
    Ok(())
}

/// Reads through virtqueues.
fn vhost_user() -> Result<()> {
    let loadgen: PathBuf = e2e::binary::program("loadgen")?;
    let at = |site: &Site| nbd(site).vhost_user(&site.path("vm1.vhost"));
    let recorded = Recorded::start(at)?;
    let mut command = Command::new(loadgen);
    command.args(["--depth", "8", "--seconds", "0.5", "--socket"]);
    output(command.arg(recorded.site.path("vm1.vhost")))?;
    let lines = recorded.end()?;
    ensure!(lines.iter().all(|line| line.op == 'R' && line.len == 4096), "reads of 4 KiB only");
    ensure!(lines.len() > 100, "{} reads", lines.len());
    let places: std::collections::BTreeSet<u64> = lines.iter().map(|line| line.offset).collect();
    ensure!(places.len() > 50 && places.iter().all(|at| at + 4096 <= DISK), "{}", places.len());
    Ok(())
}
