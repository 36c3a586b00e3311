//! The presets: devices one knows, as settings.

use crate::model::latency::Latency;
use crate::model::settings::{Seek, SimSpec};

/// Their names.
pub(crate) const NAMES: [&str; 4] = ["filer", "hdd", "network", "ssd"];

/// Gigabit Ethernet: 1 ns a bit.
const GIGABIT: u64 = 125_000_000;

/// The preset of this name.
pub(crate) fn find(name: &str) -> Option<SimSpec> {
    match name {
        "filer" => Some(filer()),
        "hdd" => Some(hdd()),
        "network" => Some(network()),
        "ssd" => Some(ssd()),
        _ => None,
    }
}

/// A file server behind a gigabit link, after Holland et al. (USENIX ATC 2013): 90 % of reads find
/// its read-ahead. An unloaded 4 KiB read takes 927.2 us on average, a write 141.2 us. Further
/// blocks of one read are read ahead, so only the first can be slow.
fn filer() -> SimSpec {
    SimSpec {
        preset: "filer".into(),
        read: Latency::Mix { fast_ns: 92_000, slow_ns: 7_952_000, fast_share: 0.9 },
        write: Latency::Constant(92_000),
        flush: Latency::Constant(92_000),
        read_block_ns: 92_000,
        write_block_ns: 92_000,
        ..network()
    }
}

/// A disk of 7200 turns a minute: 4 KiB random reads at depth 1 take 4.34 ms of seek, 4.17 ms of
/// rotation and 27 us of transfer on average: 117 a second. 150 MB/s in sequence.
fn hdd() -> SimSpec {
    SimSpec {
        preset: "hdd".into(),
        depth: 1,
        bandwidth: 150_000_000,
        seek: Seek { min_ns: 500_000, max_ns: 7_700_000, rotation_ns: 8_333_333 },
        ..nothing()
    }
}

/// The link alone: 8.2 us a packet and 1 ns a bit. The file behind it answers in its own time.
fn network() -> SimSpec {
    SimSpec { preset: "network".into(), packet_ns: 8200, link: GIGABIT, ..nothing() }
}

/// A flash drive of 2013: 88 us a read, 21 us a write, 500 MB/s.
fn ssd() -> SimSpec {
    SimSpec {
        preset: "ssd".into(),
        read: Latency::Constant(88_000),
        write: Latency::Constant(21_000),
        flush: Latency::Constant(21_000),
        depth: 32,
        bandwidth: 500_000_000,
        ..nothing()
    }
}

/// No delay at all.
pub(crate) fn nothing() -> SimSpec {
    SimSpec {
        preset: String::new(),
        seed: 0,
        read: Latency::Constant(0),
        write: Latency::Constant(0),
        flush: Latency::Constant(0),
        read_block_ns: 0,
        write_block_ns: 0,
        depth: 0,
        bandwidth: 0,
        packet_ns: 0,
        link: 0,
        seek: Seek::default(),
        interference: 0.0,
        read_errors: 0.0,
        write_errors: 0.0,
    }
}
