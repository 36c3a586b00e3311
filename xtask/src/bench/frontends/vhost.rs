//! Our vhost-user-blk device with everything cached, with one data thread and two, against the file
//! itself and against qemu-storage-daemon; our NBD server beside it.
//!
//! fio reads the file and NBD, our load generator drives the vhost-user devices: one queue, sleeping
//! while it waits, as a guest does.

use super::clients::{Load, Seen, Target};
use super::servers::{Peer, Server};
use super::{DEPTHS, Plan};
use crate::bench::{median, middle};
use crate::table::Table;
use anyhow::{Context, Result};
use e2e::Site;
use std::fmt;
use std::path::Path;

/// What is compared; the order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    Raw,
    Qsd,
    Ours,
    OursTwo,
    Nbd,
    NbdTwo,
}

const ROWS: [Row; 6] = [Row::Raw, Row::Qsd, Row::Ours, Row::OursTwo, Row::Nbd, Row::NbdTwo];

const OF_RAW_MIN: f64 = 0.8;
const OF_QSD_MIN: f64 = 3.0;
const OF_QSD_AT_1_MIN: f64 = 1.0;
const CPU_US_MAX: f64 = 5.0;
const NBD_IOPS_MIN: f64 = 100_000.0;

/// One measurement: what the client saw, and the server's CPU time an operation, in us.
#[derive(Clone, Copy, Debug)]
struct Sample {
    seen: Seen,
    server_cpu: f64,
}

/// By row, then by depth, then by round.
type Samples = [[Vec<Sample>; DEPTHS.len()]; ROWS.len()];

impl Row {
    fn name(self) -> &'static str {
        match self {
            Self::Raw => "fio io_uring on the file itself",
            Self::Qsd => "qemu-storage-daemon, vhost-user",
            Self::Ours => "cinnabar, vhost-user",
            Self::OursTwo => "cinnabar, vhost-user, threads = 2",
            Self::Nbd => "cinnabar, NBD",
            Self::NbdTwo => "cinnabar, NBD, threads = 2",
        }
    }

    fn server(self) -> Option<usize> {
        match self {
            Self::Raw => None,
            Self::Qsd => Some(0),
            Self::Ours | Self::Nbd => Some(1),
            Self::OursTwo | Self::NbdTwo => Some(2),
        }
    }
}

pub(super) fn measure(medium: &str, folder: &Path, plan: Plan) -> Result<String> {
    // A daemon has a folder of its own.
    let sites = [Site::within(folder)?, Site::within(folder)?];
    let disk = sites[0].filled("disk.raw", plan.size, 1)?;
    let servers = [
        Server::peer(Peer::QsdVhost, &sites[0], &disk).context("starting qemu-storage-daemon")?,
        Server::ours(&sites[0], &disk, plan.size, 1).context("starting ours")?,
        Server::ours(&sites[1], &disk, plan.size, 2).context("starting ours with two threads")?,
    ];
    let mut samples: Samples = Default::default();
    for round in 0..plan.rounds {
        for (column, depth) in DEPTHS.into_iter().enumerate() {
            eprintln!("{medium}, vhost-user, round {}, QD{depth}", round + 1);
            for (row, cell) in ROWS.into_iter().zip(&mut samples) {
                let load = Load::new(depth, plan.seconds);
                let server = row.server().map(|index| &servers[index]);
                let sample = one(load, row, server, &disk).with_context(|| {
                    let log =
                        server.map(|server| server.process.running().log()).unwrap_or_default();
                    format!("{load:?} on {}:\n{log}", row.name())
                })?;
                cell[column].push(sample);
            }
        }
    }
    servers.into_iter().try_for_each(Server::stop)?;
    Ok(format!(
        "\n{}\n{}\n{}",
        throughput(medium, &samples),
        latencies(medium, &samples),
        verdict(&samples)
    ))
}

fn one(load: Load, row: Row, server: Option<&Server>, disk: &Path) -> Result<Sample> {
    let Some(server) = server else {
        let seen = load.on(&Target::File(disk.to_owned()), None)?;
        return Ok(Sample { seen, server_cpu: f64::NAN });
    };
    let target = match row {
        Row::Nbd | Row::NbdTwo => server.nbd()?,
        _ => server.vhost()?,
    };
    // What is compared with the file before the load costs the server little beside it.
    let (seen, server_cpu) = server.under(load, &target, Some(disk))?;
    Ok(Sample { seen, server_cpu })
}

fn throughput(medium: &str, samples: &Samples) -> String {
    let mut heading = vec![format!("{medium}")];
    heading.extend(DEPTHS.iter().map(|depth| format!("IOPS QD{depth}")));
    heading.extend(DEPTHS.iter().map(|depth| format!("CPU us/op QD{depth}")));
    heading.push("client's CPU us/op QD32".into());
    render(&heading, samples, |cells| {
        let iops = cells.iter().map(|cell| format!("{:.0}", middle(cell, |s| s.seen.iops)));
        let cpu = cells.iter().map(|cell| number(middle(cell, |s| s.server_cpu)));
        let client = number(middle(&cells[1], |s| s.seen.client_cpu));
        iops.chain(cpu).chain([client]).collect()
    })
}

fn latencies(medium: &str, samples: &Samples) -> String {
    let mut heading = vec![format!("{medium}, latency in us")];
    heading.extend(DEPTHS.iter().flat_map(|d| [format!("QD{d} p50"), format!("QD{d} p99")]));
    render(&heading, samples, |cells| {
        let both = |cell: &Vec<Sample>| {
            [number(middle(cell, |s| s.seen.p50)), number(middle(cell, |s| s.seen.p99))]
        };
        cells.iter().flat_map(both).collect()
    })
}

fn render(
    heading: &[String],
    samples: &Samples,
    line: impl Fn(&[Vec<Sample>; DEPTHS.len()]) -> Vec<String>,
) -> String {
    let mut table = Table::new(heading);
    for (row, cells) in ROWS.into_iter().zip(samples) {
        table.row([vec![row.name().to_owned()], line(cells)].concat());
    }
    table.render()
}

/// IOPS of one row against another's, of measurements in the same round.
#[derive(Clone, Copy, Debug)]
struct Ratio {
    median: f64,
    /// Of the best round: on a machine that others use, the one that was disturbed least.
    best: f64,
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} x (best round {:.2})", self.median, self.best)
    }
}

/// The columns of queue depths 1, 32 and 128.
const QD1: usize = 0;
const QD32: usize = 1;
const QD128: usize = 2;

/// What was asked for, each with its bar.
fn verdict(samples: &Samples) -> String {
    let of = |row: Row, column: usize| &samples[row as usize][column];
    let ratio = |one: Row, other: Row, column: usize| {
        let each = of(one, column).iter().zip(of(other, column));
        let each: Vec<f64> = each.map(|(one, other)| one.seen.iops / other.seen.iops).collect();
        Ratio { best: each.iter().copied().fold(0.0, f64::max), median: median(each) }
    };
    let cpu = |row: Row, column: usize| middle(of(row, column), |s| s.server_cpu);
    let at_least = |value: f64, bar: f64| if value >= bar { "met" } else { "MISSED" };
    let both = |one: Row, other: Row, bar: f64| {
        let (at_32, at_128) = (ratio(one, other, QD32), ratio(one, other, QD128));
        let met = at_least(at_32.median.min(at_128.median), bar);
        format!("{at_32} at QD32, {at_128} at QD128 (bar {bar}): {met}")
    };
    let qsd_1 = ratio(Row::Ours, Row::Qsd, QD1);
    let least = DEPTHS.iter().enumerate().map(|(column, _)| cpu(Row::Ours, column));
    let least = least.fold(f64::INFINITY, f64::min);
    let nbd = middle(of(Row::Nbd, QD32), |s| s.seen.iops);
    let client = middle(of(Row::Nbd, QD32), |s| s.seen.client_cpu);
    format!(
        "vhost-user against the raw file: {}.\n\
         vhost-user against qemu-storage-daemon: {}; {qsd_1} at QD1 (bar {OF_QSD_AT_1_MIN}): {}.\n\
         Server CPU an I/O, least over the depths: {least:.1} us (bar {CPU_US_MAX}): {}.\n\
         NBD, one connection at QD32: {nbd:.0} IOPS (bar {NBD_IOPS_MIN:.0}): {}; its client takes \
         {client:.1} us of CPU an I/O, {:.0} % of a core.\n\
         Two threads against one: vhost-user {} at QD32, {} at QD128; NBD {} at QD32; server CPU at \
         QD32 {:.1} against {:.1} us.\n",
        both(Row::Ours, Row::Raw, OF_RAW_MIN),
        both(Row::Ours, Row::Qsd, OF_QSD_MIN),
        at_least(qsd_1.median, OF_QSD_AT_1_MIN),
        at_least(-least, -CPU_US_MAX),
        at_least(nbd, NBD_IOPS_MIN),
        client * nbd / 1e4,
        ratio(Row::OursTwo, Row::Ours, QD32),
        ratio(Row::OursTwo, Row::Ours, QD128),
        ratio(Row::NbdTwo, Row::Nbd, QD32),
        cpu(Row::OursTwo, QD32),
        cpu(Row::Ours, QD32),
    )
}

fn number(value: f64) -> String {
    if value.is_nan() { "-".into() } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows with so many IOPS at all depths, one round, 4 us of server CPU.
    fn samples(iops: [f64; ROWS.len()]) -> Samples {
        iops.map(|iops| {
            let seen = Seen { iops, client_cpu: 2.0, ..Seen::default() };
            DEPTHS.map(|_| vec![Sample { seen, server_cpu: 4.0 }])
        })
    }

    #[test]
    fn the_verdict_says_what_is_met_and_what_is_missed() {
        let good = verdict(&samples([400e3, 100e3, 350e3, 420e3, 150e3, 180e3]));
        assert!(!good.contains("MISSED"), "{good}");
        assert!(
            good.contains("0.88 x (best round 0.88) at QD32") && good.contains("3.50 x"),
            "{good}"
        );
        assert!(good.contains("30 % of a core"), "{good}");
        let bad = verdict(&samples([400e3, 200e3, 190e3, 200e3, 90e3, 90e3]));
        assert_eq!(bad.matches("MISSED").count(), 4, "{bad}");
    }
}
