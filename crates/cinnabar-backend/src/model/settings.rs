//! Settings of a model, as written in a backend's name: `filer,seed=1,errors=0.001`.

use crate::model::file::{self, PresetFileError, PresetFileErrorKind};
use crate::model::latency::{Latency, parse_ns, parse_share};
use crate::model::preset;
use std::path::Path;

/// Seek and rotation of a disk, in ns. A seek over the share `d` of the volume takes
/// `min + (max - min) * sqrt(d)`, and then on average half a rotation passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seek {
    /// To the next track.
    pub min_ns: u64,
    /// From one end of the volume to the other.
    pub max_ns: u64,
    /// One turn.
    pub rotation_ns: u64,
}

/// Settings of a model. Operations pass a link (full duplex, first come first served), wait for one
/// of `depth` places, are served, share the medium's bandwidth, and come back over the link.
#[derive(Clone, Debug, PartialEq)]
pub struct SimSpec {
    /// Which preset it started from: its name, or `@` and the path of a file.
    pub preset: String,
    /// Seed of everything random.
    pub seed: u64,
    /// Service time of a read's first block.
    pub read: Latency,
    /// Service time of a write's first block, and of a trim or zeroing as a whole.
    pub write: Latency,
    /// Service time of a flush, which also waits for the writes before it.
    pub flush: Latency,
    /// Service time of each further 4 KiB block of one read, in ns.
    pub read_block_ns: u64,
    /// Service time of each further 4 KiB block of one write, in ns.
    pub write_block_ns: u64,
    /// Operations served at a time; 0: any number.
    pub depth: u32,
    /// Bytes per second of the medium, shared by all; 0: no limit.
    pub bandwidth: u64,
    /// Time of an empty packet over the link, in ns.
    pub packet_ns: u64,
    /// Bytes per second of the link in each direction; 0: no limit.
    pub link: u64,
    /// Seek and rotation for whatever doesn't follow on; all 0: none.
    pub seek: Seek,
    /// Reads served while writes are under way take this much longer (0.5: half as long again).
    pub interference: f64,
    /// Probability that a read fails.
    pub read_errors: f64,
    /// Probability that anything but a read fails.
    pub write_errors: f64,
}

/// Why settings are not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// No such preset.
    #[error(
        "unknown preset {got:?} (known: {}; @FILE for one in a file)", preset::NAMES.join(", ")
    )]
    Preset {
        /// What was written.
        got: String,
    },
    #[error(transparent)]
    File(#[from] PresetFileError),
    /// No `=`.
    #[error("{got:?} is not of the form key=value")]
    Form {
        /// What was written.
        got: String,
    },
    /// No such key.
    #[error("unknown key {got:?} (known: {})", KEYS.join(", "))]
    Key {
        /// What was written.
        got: String,
    },
    /// A key came twice.
    #[error("key {key:?} is given twice")]
    Twice {
        /// Which.
        key: String,
    },
    /// The value is not of the key's kind.
    #[error("{key}={value:?}: expected {expected}")]
    Value {
        /// Which.
        key: String,
        /// What was written.
        value: String,
        /// What can be written.
        expected: &'static str,
    },
}

const KEYS: [&str; 17] = [
    "seed",
    "read",
    "write",
    "flush",
    "read_block",
    "write_block",
    "depth",
    "bandwidth",
    "packet",
    "link",
    "seek_min",
    "seek_max",
    "rotation",
    "interference",
    "errors",
    "read_errors",
    "write_errors",
];

const LATENCY: &str = "a time (92us), uniform/MIN/MAX, lognormal/MEDIAN/SIGMA, \
                       mix/FAST/SLOW/SHARE or percentiles/50=T/.../100=T";
const TIME: &str = "a time such as 500ns, 92us, 8ms or 1s";
const RATE: &str = "bytes per second such as 150MB or 1GB; 0 for no limit";
const SHARE: &str = "a number from 0 to 1";
const COUNT: &str = "a whole number";

impl SimSpec {
    /// Parses `PRESET[,key=value...]`. A preset is one of those that are known, or `@FILE`, see
    /// [`mod@file`]. A relative FILE is taken from `base`; it is an error without one. FILE
    /// can hold neither a comma nor a colon.
    ///
    /// # Errors
    /// [`SettingError`], which names what is known.
    pub fn parse(text: &str, base: Option<&Path>) -> Result<Self, SettingError> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let mut spec = match name.strip_prefix('@') {
            Some(path) => Self { preset: name.into(), ..in_file(path, base)? },
            None => preset::find(name).ok_or_else(|| SettingError::Preset { got: name.into() })?,
        };
        let mut seen: Vec<&str> = Vec::new();
        for part in parts {
            let (key, value) =
                part.split_once('=').ok_or_else(|| SettingError::Form { got: part.into() })?;
            if seen.contains(&key) {
                return Err(SettingError::Twice { key: key.into() });
            }
            // Known keys only are remembered, so the list is bounded.
            spec.set(key, value)?;
            seen.push(key);
        }
        Ok(spec)
    }

    /// Sets what one key stands for.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let bad = |expected| SettingError::Value { key: key.into(), value: value.into(), expected };
        let latency = || Latency::parse(value).ok_or_else(|| bad(LATENCY));
        let time = || parse_ns(value).ok_or_else(|| bad(TIME));
        let rate = || parse_rate(value).ok_or_else(|| bad(RATE));
        let share = || parse_share(value).ok_or_else(|| bad(SHARE));
        match key {
            "seed" => self.seed = value.parse().map_err(|_| bad(COUNT))?,
            "read" => self.read = latency()?,
            "write" => self.write = latency()?,
            "flush" => self.flush = latency()?,
            "read_block" => self.read_block_ns = time()?,
            "write_block" => self.write_block_ns = time()?,
            "depth" => self.depth = value.parse().map_err(|_| bad(COUNT))?,
            "bandwidth" => self.bandwidth = rate()?,
            "packet" => self.packet_ns = time()?,
            "link" => self.link = rate()?,
            "seek_min" => self.seek.min_ns = time()?,
            "seek_max" => self.seek.max_ns = time()?,
            "rotation" => self.seek.rotation_ns = time()?,
            "interference" => {
                self.interference = value
                    .parse()
                    .ok()
                    .filter(|x| (0.0..=100.0).contains(x))
                    .ok_or_else(|| bad("a number from 0 to 100"))?;
            }
            "errors" => {
                self.read_errors = share()?;
                self.write_errors = self.read_errors;
            }
            "read_errors" => self.read_errors = share()?,
            "write_errors" => self.write_errors = share()?,
            _ => return Err(SettingError::Key { got: key.into() }),
        }
        Ok(())
    }
}

fn in_file(path: &str, base: Option<&Path>) -> Result<SimSpec, PresetFileError> {
    let wrong = |kind| PresetFileError { path: path.into(), kind };
    match base {
        _ if path.is_empty() => Err(wrong(PresetFileErrorKind::Missing)),
        Some(base) => file::read(&base.join(path)),
        None if Path::new(path).is_relative() => Err(wrong(PresetFileErrorKind::Relative)),
        None => file::read(Path::new(path)),
    }
}

/// Bytes per second: a number with an optional `kB`, `MB`, `GB` (powers of 1000) or `KiB`, `MiB`,
/// `GiB`.
fn parse_rate(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" | "B" => 1,
        "kB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_change_what_they_name() {
        let spec = SimSpec::parse(
            "ssd,seed=9,read=uniform/1us/2us,depth=4,bandwidth=1GB,errors=0.5,write_errors=0",
            None,
        )
        .expect("well-formed");
        assert_eq!(spec.seed, 9);
        assert_eq!(spec.read, Latency::Uniform(1000, 2000));
        assert_eq!((spec.depth, spec.bandwidth), (4, 1_000_000_000));
        assert!((spec.read_errors, spec.write_errors) == (0.5, 0.0));
    }

    #[test]
    fn every_key_in_the_list_is_accepted() {
        for key in KEYS {
            let mut spec = preset::find("ssd").expect("a preset");
            assert!(spec.set(key, "0").is_ok(), "{key}");
        }
    }

    #[test]
    fn errors_name_what_is_known() {
        for (text, part) in [
            ("floppy", "known: filer, hdd, network, ssd"),
            ("filer,sped=1", "unknown key \"sped\" (known: seed, read,"),
            ("filer,seed", "not of the form key=value"),
            ("filer,seed=1,seed=2", "given twice"),
            ("filer,seed=x", "expected a whole number"),
            ("filer,read=12", "expected a time (92us)"),
            ("filer,errors=2", "expected a number from 0 to 1"),
            ("filer,bandwidth=99999999999GB", "bytes per second"),
            ("", "unknown preset \"\""),
        ] {
            let error = SimSpec::parse(text, None).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
