//! The keys of a plan: their names, and which setting of the simulator each of them is.
//!
//! A key is `section.key`, or without a section `key`.

use super::value::{Literal, Wrong};
use crate::timed::Config;
use crate::timed::config::{
    Architecture, Background, Duplex, FrameOrder, Placement, Restart, Service,
};

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As it is written in an axis and in `--set`: `flash.size`.
    pub name: &'static str,
    /// The field of [`Config`] (or of its timings) that it sets.
    pub field: &'static str,
    kind: Kind,
}

/// The policy of flash that has none, for axes on which there is no flash at some points.
pub(super) const NO_POLICY: &str = "-";

/// What a key's values are, and where they go.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A size, kept in blocks.
    Size(fn(&mut Config) -> &mut u64),
    /// A small size, kept in blocks.
    Run(fn(&mut Config) -> &mut u32),
    /// A time, kept in nanoseconds.
    Time(fn(&mut Config) -> &mut u64),
    /// A part of 1.
    Share(fn(&mut Config) -> &mut f64),
    /// How many times.
    Factor(fn(&mut Config) -> &mut f64),
    Count(fn(&mut Config) -> &mut u32),
    Seed,
    Flag(fn(&mut Config) -> &mut bool),
    RamPolicy,
    FlashPolicy,
    Service(fn(&mut Config) -> &mut Service),
    Name(Names),
}

#[derive(Clone, Copy, Debug)]
struct Names {
    known: &'static [&'static str],
    /// Says whether there is such a name.
    set: fn(&mut Config, &str) -> bool,
    show: fn(&Config) -> String,
}

const RESTARTS: &[(&str, Restart)] = &[
    ("warm", Restart::Warm),
    ("cold", Restart::Cold { ram_too: false }),
    ("cold-ram-too", Restart::Cold { ram_too: true }),
    ("crash", Restart::Crash),
    ("stop", Restart::Stop),
];

macro_rules! named {
    ($field:ident: $kind:ident) => {
        Kind::Name(Names {
            known: $kind::NAMES,
            set: |config, text| text.parse().map(|value| config.$field = value).is_ok(),
            show: |config| config.$field.to_string(),
        })
    };
}

const RESTART: Names = Names {
    known: &["warm", "cold", "cold-ram-too", "crash", "stop"],
    set: |config, text| {
        let found = RESTARTS.iter().find(|(name, _)| *name == text);
        found.map(|(_, restart)| config.restart = *restart).is_some()
    },
    show: |config| {
        let found = RESTARTS.iter().find(|(_, restart)| *restart == config.restart);
        found.expect("each has a name").0.to_owned()
    },
};

const fn key(name: &'static str, field: &'static str, kind: Kind) -> Key {
    Key { name, field, kind }
}

/// All keys but those of a trace, section by section.
pub const KEYS: &[Key] = &[
    key("seed", "seed", Kind::Seed),
    key("scale", "scale", Kind::Count(|c| &mut c.scale)),
    key("hosts.count", "hosts", Kind::Count(|c| &mut c.hosts)),
    key("hosts.threads", "threads", Kind::Count(|c| &mut c.threads)),
    key("hosts.pause", "pause_ns", Kind::Time(|c| &mut c.pause_ns)),
    key("hosts.architecture", "architecture", named!(architecture: Architecture)),
    key("hosts.prefetch", "prefetch_blocks", Kind::Run(|c| &mut c.prefetch_blocks)),
    key("hosts.syncer_writes", "syncer_depth", Kind::Count(|c| &mut c.syncer_depth)),
    key("hosts.background_writes", "async_depth", Kind::Count(|c| &mut c.async_depth)),
    key("hosts.restart", "restart", Kind::Name(RESTART)),
    key("ram.size", "ram_blocks", Kind::Size(|c| &mut c.ram_blocks)),
    key("ram.policy", "ram_policy", Kind::RamPolicy),
    key("ram.read", "ram_read_ns", Kind::Time(|c| &mut c.timings.ram_read_ns)),
    key("ram.write", "ram_write_ns", Kind::Time(|c| &mut c.timings.ram_write_ns)),
    key("flash.size", "flash_blocks", Kind::Size(|c| &mut c.flash_blocks)),
    key("flash.policy", "flash_policy", Kind::FlashPolicy),
    key("flash.read", "flash_read_ns", Kind::Time(|c| &mut c.timings.flash_read_ns)),
    key("flash.write", "flash_write_ns", Kind::Time(|c| &mut c.timings.flash_write_ns)),
    key("flash.write_factor", "flash_write_factor", Kind::Factor(|c| &mut c.flash_write_factor)),
    key("flash.service", "flash_service", Kind::Service(|c| &mut c.flash_service)),
    key("flash.placement", "placement", named!(placement: Placement)),
    key("flash.frames", "frame_order", named!(frame_order: FrameOrder)),
    key(
        "flash.eviction_reads",
        "eviction_reads_flash",
        Kind::Flag(|c| &mut c.eviction_reads_flash),
    ),
    key("link.packet", "packet_ns", Kind::Time(|c| &mut c.timings.packet_ns)),
    key("link.block", "block_transfer_ns", Kind::Time(|c| &mut c.timings.block_transfer_ns)),
    key("link.duplex", "duplex", named!(duplex: Duplex)),
    key("link.packet_holds", "packet_holds_link", Kind::Flag(|c| &mut c.packet_holds_link)),
    key("link.background", "background", named!(background: Background)),
    key("link.shared", "one_link", Kind::Flag(|c| &mut c.one_link)),
    key("filer.size", "total_blocks", Kind::Size(|c| &mut c.total_blocks)),
    key("filer.fast_read", "filer_fast_read_ns", Kind::Time(|c| &mut c.timings.filer_fast_read_ns)),
    key("filer.slow_read", "filer_slow_read_ns", Kind::Time(|c| &mut c.timings.filer_slow_read_ns)),
    key("filer.write", "filer_write_ns", Kind::Time(|c| &mut c.timings.filer_write_ns)),
    key("filer.fast_share", "fast_read_share", Kind::Share(|c| &mut c.fast_read_share)),
    key("filer.service", "filer_service", Kind::Service(|c| &mut c.filer_service)),
    key("workload.working_set", "working_set_blocks", Kind::Size(|c| &mut c.working_set_blocks)),
    key("workload.shared", "shared_set", Kind::Flag(|c| &mut c.shared_set)),
    key("workload.outside", "outside_share", Kind::Share(|c| &mut c.outside_share)),
    key("workload.writes", "write_share", Kind::Share(|c| &mut c.write_share)),
    key("workload.volume", "volume_multiple", Kind::Factor(|c| &mut c.volume_multiple)),
    key("workload.warm_up", "warm_up_share", Kind::Share(|c| &mut c.warm_up_share)),
    key("workload.popularity", "popularity_power", Kind::Count(|c| &mut c.popularity_power)),
    key("workload.operation", "operation_blocks", Kind::Run(|c| &mut c.operation_blocks)),
    key("workload.operation_depth", "operation_depth", Kind::Count(|c| &mut c.operation_depth)),
];

/// Keys of requests that are made up: with a trace they mean nothing.
pub const MADE_UP: &[&str] = &[
    "scale",
    "hosts.pause",
    "filer.size",
    "workload.working_set",
    "workload.shared",
    "workload.outside",
    "workload.writes",
    "workload.volume",
    "workload.popularity",
    "workload.operation",
];

/// The key with this name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Where a key stands in [`KEYS`].
pub(super) fn place(key: &Key) -> usize {
    KEYS.iter().position(|other| other.name == key.name).expect("there are no others")
}

/// The key that sets this field.
pub fn of_field(field: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.field == field)
}

impl Key {
    /// The section, or nothing; and the name in it.
    pub fn parts(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').unwrap_or(("", self.name))
    }

    /// Sets it.
    ///
    /// # Errors
    /// What is wrong with the value by itself; whether it makes sense with others is seen later.
    ///
    /// # Panics
    /// If [`KEYS`] has a name that its setting does not know.
    pub fn set(&self, config: &mut Config, value: &Literal) -> Result<(), Wrong> {
        match self.kind {
            Kind::Size(field) => *field(config) = value.blocks()?,
            Kind::Run(field) => {
                *field(config) = u32::try_from(value.blocks()?).unwrap_or(u32::MAX);
            }
            Kind::Time(field) => *field(config) = value.nanoseconds()?,
            Kind::Share(field) => *field(config) = value.share()?,
            Kind::Factor(field) => *field(config) = value.float()?,
            Kind::Count(field) => {
                *field(config) = u32::try_from(value.whole()?).unwrap_or(u32::MAX);
            }
            Kind::Seed => config.seed = value.whole()?,
            Kind::Flag(field) => *field(config) = value.flag()?,
            Kind::RamPolicy => config.ram_policy = value.policy()?,
            Kind::FlashPolicy if value.is_text(NO_POLICY) => config.flash_policy = None,
            Kind::FlashPolicy => config.flash_policy = Some(value.policy()?),
            Kind::Service(field) => *field(config) = value.service()?,
            Kind::Name(names) => {
                let text = value.one_of(names.known)?;
                assert!((names.set)(config, text), "{text} is one of the names");
            }
        }
        Ok(())
    }

    /// Its value, as it could be written in a plan; `-` for the policy of flash that has none.
    pub fn show(&self, config: &Config) -> String {
        let mut copy = *config;
        match self.kind {
            Kind::Size(field) => super::value::show_blocks(*field(&mut copy)),
            Kind::Run(field) => super::value::show_blocks(u64::from(*field(&mut copy))),
            Kind::Time(field) => super::value::show_ns(*field(&mut copy)),
            Kind::Share(field) | Kind::Factor(field) => field(&mut copy).to_string(),
            Kind::Count(field) => field(&mut copy).to_string(),
            Kind::Seed => config.seed.to_string(),
            Kind::Flag(field) => field(&mut copy).to_string(),
            Kind::RamPolicy => config.ram_policy.to_string(),
            Kind::FlashPolicy => config
                .flash_policy
                .map_or_else(|| NO_POLICY.to_owned(), |policy| policy.to_string()),
            Kind::Service(field) => match *field(&mut copy) {
                Service::Delay => "delay".to_owned(),
                Service::Servers(servers) => servers.to_string(),
            },
            Kind::Name(names) => (names.show)(config),
        }
    }

    /// Its value on an axis of numbers, and what these are; `None` for names.
    pub fn number(&self, config: &Config) -> Option<(f64, Measure)> {
        let mut copy = *config;
        let bytes = |blocks: u64| (blocks as f64 * 4096.0, Measure::Bytes);
        match self.kind {
            Kind::Size(field) => Some(bytes(*field(&mut copy))),
            Kind::Run(field) => Some(bytes(u64::from(*field(&mut copy)))),
            Kind::Time(field) => Some((*field(&mut copy) as f64 / 1e3, Measure::Micros)),
            Kind::Share(field) => Some((*field(&mut copy), Measure::Share)),
            Kind::Factor(field) => Some((*field(&mut copy), Measure::Number)),
            Kind::Count(field) => Some((f64::from(*field(&mut copy)), Measure::Number)),
            Kind::Seed
            | Kind::Flag(_)
            | Kind::RamPolicy
            | Kind::FlashPolicy
            | Kind::Service(_)
            | Kind::Name(_) => None,
        }
    }

    /// What its values are: a word for the guide.
    pub fn unit(&self) -> String {
        let word = match self.kind {
            Kind::Size(_) | Kind::Run(_) => "size",
            Kind::Time(_) => "time",
            Kind::Share(_) => "share",
            Kind::Factor(_) => "factor",
            Kind::Count(_) | Kind::Seed => "number",
            Kind::Flag(_) => "true or false",
            Kind::RamPolicy | Kind::FlashPolicy => "policy",
            Kind::Service(_) => "\"delay\" or number",
            Kind::Name(names) => {
                return names
                    .known
                    .iter()
                    .map(|name| format!("{name:?}"))
                    .collect::<Vec<_>>()
                    .join(", ");
            }
        };
        word.to_owned()
    }
}

/// What the numbers of an axis are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes.
    Bytes,
    /// Microseconds.
    Micros,
    /// A part of 1.
    Share,
    /// Any number.
    Number,
}
