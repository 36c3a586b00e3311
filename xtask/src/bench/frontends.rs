//! Our NBD server with everything cached against its peers on the same medium, interleaved.
//!
//! Called by `cargo xtask bench frontends`. Nothing absolute repeats on a shared machine: what
//! counts is the ratio within a run.

use crate::bench::heading;
use crate::bench::servers::{KINDS, Kind, Server};
use crate::install;
use crate::table::Table;
use anyhow::{Context, Result, ensure};
use e2e::{Fio, MIB, Site, tools};
use std::path::{Path, PathBuf};

/// What to run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Rounds; the median of each cell counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Size of the disk, in MiB
    #[arg(long, default_value_t = 1024)]
    size_mib: u64,
    /// One short round on a small disk: shows that it works, measures nothing
    #[arg(long)]
    quick: bool,
    /// Only this medium (tmpfs or disk)
    #[arg(long)]
    medium: Option<String>,
    /// Write the tables to this file, too
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

const DEPTHS: [u32; 3] = [1, 32, 128];
const CONNECTIONS: [u32; 2] = [1, 4];
/// Servers, then fio on the file itself.
const ROWS: usize = KINDS.len() + 1;

/// One measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    iops: f64,
    cpu_us: f64,
}

/// Runs it.
pub(crate) fn run(args: &Args) -> Result<()> {
    install::debian(&[tools::FIO, tools::QEMU_NBD, tools::QEMU_STORAGE_DAEMON, tools::NBDKIT])?;
    let (rounds, seconds, size) = if args.quick {
        (1, 1, 64 * MIB)
    } else {
        (args.rounds, args.seconds, args.size_mib * MIB)
    };
    let mut text = heading(&format!(
        "4 KiB random reads through fio's nbd engine, {} MiB, median of {rounds} interleaved \
         rounds of {seconds} s",
        size / MIB
    ))?;
    let disk_folder = std::env::temp_dir();
    for (medium, folder) in [("tmpfs", Path::new("/dev/shm")), ("disk", disk_folder.as_path())] {
        if args.medium.as_deref().is_some_and(|wanted| wanted != medium) {
            continue;
        }
        text.push_str(&measure_medium(medium, folder, rounds, seconds, size)?);
    }
    println!("{text}");
    if let Some(file) = &args.output {
        std::fs::write(file, &text).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

/// Tables of one medium, one for each number of connections.
fn measure_medium(
    medium: &str,
    folder: &Path,
    rounds: usize,
    seconds: u64,
    size: u64,
) -> Result<String> {
    let site = Site::within(folder)?;
    let disk = site.filled("disk.raw", size, 1)?;
    let servers = KINDS
        .iter()
        .map(|&kind| {
            Server::start(kind, &site, &disk, size)
                .with_context(|| format!("starting {} on {medium}", kind.name()))
        })
        .collect::<Result<Vec<Server>>>()?;
    let mut text = String::new();
    for connections in CONNECTIONS {
        eprintln!("{medium}, {connections} connection(s)");
        let mut samples = [const { [const { Vec::new() }; DEPTHS.len()] }; ROWS];
        for _ in 0..rounds {
            for (column, depth) in DEPTHS.into_iter().enumerate() {
                for (row, cell) in samples.iter_mut().enumerate() {
                    let load = Load { connections, depth, seconds };
                    let sample = match servers.get(row) {
                        Some(server) => load.against(server).with_context(|| {
                            format!("{load:?} on {}:\n{}", KINDS[row].name(), server.log())
                        })?,
                        None => load.on_file(&disk)?,
                    };
                    cell[column].push(sample);
                }
            }
        }
        text.push_str(&table(medium, connections, &samples));
    }
    servers.into_iter().try_for_each(Server::stop)?;
    Ok(text)
}

/// The load of one measurement.
#[derive(Clone, Copy, Debug)]
struct Load {
    connections: u32,
    depth: u32,
    seconds: u64,
}

impl Load {
    fn job(self, job: Fio) -> Fio {
        job.arg("rw", "randread")
            .arg("numjobs", self.connections)
            .arg("iodepth", self.depth)
            .arg("runtime", self.seconds)
            .flag("time_based")
            .flag("norandommap")
    }

    fn against(self, server: &Server) -> Result<Sample> {
        let (cpu, misses) = (server.cpu()?, server.misses()?);
        let outcome = self.job(Fio::nbd(server.uri())).run()?;
        let cpu = server.cpu()?.saturating_sub(cpu);
        ensure!(server.misses()? == misses, "a miss while everything should be cached");
        let operations = outcome.read.operations.max(1) as f64;
        Ok(Sample { iops: outcome.iops(), cpu_us: cpu.as_secs_f64() * 1e6 / operations })
    }

    /// The yardstick: what the file gives without any server.
    fn on_file(self, disk: &Path) -> Result<Sample> {
        let job = Fio::engine("io_uring").arg("filename", disk.display()).arg("direct", 1);
        let outcome = self.job(job).run()?;
        Ok(Sample { iops: outcome.iops(), cpu_us: f64::NAN })
    }
}

fn table(medium: &str, connections: u32, samples: &[[Vec<Sample>; DEPTHS.len()]; ROWS]) -> String {
    let mut heading = vec![format!("{medium}, {connections} connection(s)")];
    heading.extend(DEPTHS.iter().map(|depth| format!("IOPS QD{depth}")));
    heading.extend(DEPTHS.iter().map(|depth| format!("CPU us/op QD{depth}")));
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let mut table = Table::new(&heading);
    for (row, cells) in samples.iter().enumerate() {
        let name = KINDS.get(row).map_or("fio io_uring on the file itself", |kind| kind.name());
        let mut line = vec![name.to_owned()];
        line.extend(cells.iter().map(|cell| format!("{:.0}", median(cell, |s| s.iops))));
        line.extend(cells.iter().map(|cell| {
            let cpu = median(cell, |sample| sample.cpu_us);
            if cpu.is_nan() { "-".into() } else { format!("{cpu:.1}") }
        }));
        table.row(line);
    }
    format!("\n{}\n{}", table.render(), verdict(samples))
}

/// The marks: IOPS at QD 32 and CPU at the best depth of each, against the best peer; apart, against
/// the best that reads the medium, for nbdkit reads RAM.
fn verdict(samples: &[[Vec<Sample>; DEPTHS.len()]; ROWS]) -> String {
    let at_32 = |row: usize| median(&samples[row][1], |sample| sample.iops);
    let least_cpu = |row: usize| {
        samples[row].iter().map(|cell| median(cell, |s| s.cpu_us)).fold(f64::INFINITY, f64::min)
    };
    let peers = |direct_only: bool| {
        (0..KINDS.len()).filter(move |&row| match KINDS[row] {
            Kind::Cinnabar => false,
            Kind::Nbdkit => !direct_only,
            Kind::QemuNbd | Kind::QemuStorageDaemon => true,
        })
    };
    let iops = |direct_only| at_32(0) / peers(direct_only).map(at_32).fold(0.0, f64::max);
    let cpu = |direct_only| {
        least_cpu(0) / peers(direct_only).map(least_cpu).fold(f64::INFINITY, f64::min)
    };
    format!(
        "IOPS at QD32: {:.2} x the best peer's, {:.2} x the best of those that read the medium.\n\
         CPU an I/O, least over the depths: {:.1} us, {:.2} x the best peer's, {:.2} x the best of \
         those that read the medium.\n",
        iops(false),
        iops(true),
        least_cpu(0),
        cpu(false),
        cpu(true)
    )
}

fn median(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> f64 {
    super::median(samples.iter().map(value).collect())
}
