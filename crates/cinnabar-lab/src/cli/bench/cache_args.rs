//! The flags of the cache in front of storage under test.

use crate::cli::parse::{endurance, size};
use cinnabar_bench::target::CacheOptions;
use cinnabar_embed::{Endurance, Eviction, Mode};
use cinnabar_engine::metadata::superblock::Geometry;
use cinnabar_text::{Failure, show_size};
use std::path::PathBuf;

/// See the module.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cache")]
pub(super) struct CacheArgs {
    /// Put the cache in front, on this file or device of an SSD; made if there is none
    /// [default: no cache]
    #[arg(long = "cache", value_name = "FILE")]
    pub(super) device: Option<PathBuf>,
    /// Size of a cache file that is to be made, from 20MiB on [default: what is there]
    #[arg(long = "cache-size", value_name = "SIZE", value_parser = size)]
    pub(super) size_bytes: Option<u64>,
    /// Begin with an empty cache [default: what an earlier run left; nothing of a file that was
    /// written since]
    #[arg(long = "cache-fresh", requires = "device")]
    pub(super) fresh: bool,
    /// Folder for what must be known outside of the cache [default: FILE.state]
    #[arg(long = "cache-state", value_name = "DIR", requires = "device")]
    state_dir: Option<PathBuf>,
    /// RAM for blocks that have not earned flash yet [default: 1 % of the cache, at most 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "device")]
    probation: Option<u64>,
    /// Accesses in sequence of this many bytes bypass the cache [default: none do]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "device")]
    bypass_sequential: Option<u64>,
    /// Which blocks earn flash, and which stay
    #[arg(long, value_enum, default_value_t, requires = "device")]
    eviction: EvictionArg,
    /// Price of a flash write: hits, balanced, save
    #[arg(long, value_name = "PRICE", default_value = "balanced", requires = "device",
          value_parser = endurance)]
    endurance: Endurance,
    /// What writes do with the cache: written through it, or around it
    #[arg(long, value_enum, default_value_t, requires = "device")]
    write_policy: WritePolicyArg,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum EvictionArg {
    #[default]
    Probation,
    Clock,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum WritePolicyArg {
    #[default]
    Through,
    Around,
}

impl CacheArgs {
    pub(super) fn options(&self) -> Result<Option<CacheOptions>, Failure> {
        let Some(device) = &self.device else {
            return match self.size_bytes {
                Some(_) => Err(Failure::of_usage(
                    "--cache-size without --cache",
                    "name the cache's file: --cache FILE",
                )),
                None => Ok(None),
            };
        };
        if self.size_bytes.is_none() && !device.exists() {
            return Err(Failure::of_usage(
                format!("{}: there is no such cache", device.display()),
                "say how large it is to be made: --cache-size 4GiB",
            ));
        }
        if let Some(bytes) = self.size_bytes.filter(|_| !device.exists()) {
            let shards = u64::from(Geometry::SHARDS_MAX);
            let (min, max) = (Geometry::BYTES_MIN, Geometry::BYTES_MAX * shards);
            if !(min..=max).contains(&bytes) {
                return Err(Failure::of_usage(
                    format!("--cache-size: a cache of {} is impossible", show_size(bytes)),
                    format!("choose {} to {}", show_size(min), show_size(max)),
                ));
            }
        }
        let usual = CacheOptions::new(device);
        Ok(Some(CacheOptions {
            size_bytes: self.size_bytes,
            fresh: self.fresh,
            state_dir: self.state_dir.clone().unwrap_or_else(|| usual.state_dir.clone()),
            eviction: match self.eviction {
                EvictionArg::Probation => Eviction::Probation,
                EvictionArg::Clock => Eviction::Clock,
            },
            endurance: self.endurance,
            probation_bytes: self.probation,
            bypass_sequential_bytes: self.bypass_sequential.unwrap_or(0),
            mode: match self.write_policy {
                WritePolicyArg::Through => Mode::WriteThrough,
                WritePolicyArg::Around => Mode::WriteAround,
            },
            ..usual
        }))
    }
}
