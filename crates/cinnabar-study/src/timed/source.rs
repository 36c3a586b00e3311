//! What is asked for: accesses to working sets, or the requests of a trace.
//!
//! Blocks of a trace get dense numbers, so that what is known of them fits an array.

use super::config::Config;
use super::{Pace, RunError, Workload};
use cinnabar_policy::{Access, Interner};
use cinnabar_trace::generate::working_set::{Settings, Sharing, WorkingSet};
use cinnabar_trace::{Op, Record, TraceError};

#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) host: usize,
    pub(super) write: bool,
    /// Its blocks, by key.
    pub(super) first_key: u64,
    pub(super) end_key: u64,
    /// Bytes of the first and of the last of them that are not asked for, whole sectors.
    pub(super) skip_bytes: u16,
    pub(super) spare_bytes: u16,
    /// When it was recorded; 0 if it was not.
    pub(super) at_ns: u64,
}

type Records<'a> = Box<dyn Iterator<Item = Result<Record, TraceError>> + 'a>;

pub(super) enum Source<'a> {
    /// Made up; a block's key is its number.
    Made(Made),
    /// Requests of a trace.
    Recorded(Recorded<'a>),
}

pub(super) struct Made {
    threads: WorkingSet,
    set_blocks: u64,
    total_blocks: u64,
    private: bool,
    power: u32,
    blocks: u64,
    left: u64,
}

pub(super) struct Recorded<'a> {
    records: Records<'a>,
    pub(super) pace: Pace,
    hosts: u64,
    interner: Interner,
    numbered: Vec<Access>,
    first_us: Option<u64>,
    last_ns: u64,
    failure: Option<RunError>,
}

impl<'a> Source<'a> {
    pub(super) fn new(config: &Config, workload: Workload<'a>) -> Result<Self, RunError> {
        Ok(match workload {
            Workload::Generated => Self::Made(Made::new(config)?),
            Workload::Records { records, pace, .. } => Self::Recorded(Recorded {
                records,
                pace,
                hosts: u64::from(config.hosts),
                interner: Interner::default(),
                numbered: Vec::new(),
                first_us: None,
                last_ns: 0,
                failure: None,
            }),
        })
    }

    /// The next operation of a thread, counted over all hosts.
    #[inline]
    pub(super) fn next(&mut self, thread: u32) -> Option<Operation> {
        match self {
            Self::Made(made) => made.next(thread),
            Self::Recorded(recorded) => recorded.next(),
        }
    }

    /// Why a trace ended before its end, if it did. It ends as if there were no more.
    pub(super) fn failure(self) -> Option<RunError> {
        match self {
            Self::Made(_) => None,
            Self::Recorded(recorded) => recorded.failure,
        }
    }

    /// The number of the block with this key.
    #[inline]
    pub(super) fn number(&mut self, key: u64) -> u32 {
        match self {
            Self::Made(_) => key as u32,
            Self::Recorded(recorded) => recorded.number(key),
        }
    }

    /// The key of the block with this number.
    pub(super) fn key(&self, block: u32) -> u64 {
        match self {
            Self::Made(_) => block.into(),
            Self::Recorded(recorded) => recorded.interner.keys()[block as usize],
        }
    }

    /// The key of the block that lies `ahead` blocks behind this one, if there is one.
    pub(super) fn key_ahead(&self, block: u32, ahead: u32) -> Option<u64> {
        match self {
            Self::Made(made) => {
                let key = u64::from(block) + u64::from(ahead);
                (key < made.total_blocks).then_some(key)
            }
            Self::Recorded(recorded) => {
                let key = recorded.interner.keys()[block as usize];
                let ahead = key + u64::from(ahead);
                (ahead >> VOLUME_SHIFT == key >> VOLUME_SHIFT).then_some(ahead)
            }
        }
    }
}

/// A key is a volume, shifted, and a block, as that of a [`cinnabar_trace::Reference`].
const VOLUME_SHIFT: u32 = 40;
const BLOCK_BYTES: u64 = 4096;
const SECTOR_BYTES: u64 = 512;
/// No trace is longer: 146 years.
const AT_NS_MAX: u64 = 1 << 62;

impl Made {
    fn new(config: &Config) -> Result<Self, RunError> {
        let settings = Settings {
            hosts: config.hosts,
            threads: config.threads,
            working_set_blocks: config.scaled(config.working_set_blocks),
            total_blocks: config.scaled(config.total_blocks),
            outside_share: config.outside_share,
            write_share: config.write_share,
            sharing: if config.shared_set { Sharing::Shared } else { Sharing::Private },
            seed: config.seed,
        };
        Ok(Self {
            threads: WorkingSet::new(settings)?,
            set_blocks: settings.working_set_blocks,
            total_blocks: settings.total_blocks,
            private: !config.shared_set,
            power: config.popularity_power,
            blocks: u64::from(config.operation_blocks),
            left: operations(config),
        })
    }

    #[inline]
    fn next(&mut self, thread: u32) -> Option<Operation> {
        self.left = self.left.checked_sub(1)?;
        let access = self.threads.next(thread);
        let host = access.host as usize;
        let mut first_key = access.block;
        if self.power > 1 {
            first_key = self.skew(host as u64, first_key);
        }
        // An operation that would reach past the end ends there.
        let first_key = first_key.min(self.total_blocks - self.blocks);
        let end_key = first_key + self.blocks;
        let write = access.write;
        Some(Operation { host, write, first_key, end_key, skip_bytes: 0, spare_bytes: 0, at_ns: 0 })
    }

    /// Takes a block of the working set, all alike, to one of its power: with whole numbers only,
    /// so that it is the same on every machine.
    fn skew(&self, host: u64, block: u64) -> u64 {
        let first = if self.private { host * self.set_blocks } else { 0 };
        let at = block.wrapping_sub(first);
        if at >= self.set_blocks {
            return block;
        }
        let (at, all) = (u128::from(at), u128::from(self.set_blocks));
        first + (1..self.power).fold(at, |reached, _| reached * at / all) as u64
    }
}

/// Operations that all threads of all hosts ask for.
pub(super) fn operations(config: &Config) -> u64 {
    let blocks = config.scaled(config.working_set_blocks) as f64 * config.volume_multiple;
    #[expect(clippy::cast_sign_loss, reason = "checked to be positive")]
    let of_host = (blocks / f64::from(config.operation_blocks)).round() as u64;
    of_host.max(1) * u64::from(config.hosts)
}

/// Whole sectors of its last block that a request ending there leaves out.
fn spare_bytes(end: u64) -> u16 {
    (end.next_multiple_of(BLOCK_BYTES) - end) as u16 / SECTOR_BYTES as u16 * SECTOR_BYTES as u16
}

impl Recorded<'_> {
    fn next(&mut self) -> Option<Operation> {
        while self.failure.is_none() {
            let record = match self.records.next()? {
                Ok(record) => record,
                Err(error) => {
                    self.failure = Some(error.into());
                    break;
                }
            };
            let blocks = record.blocks();
            if blocks.is_empty() || !matches!(record.op, Op::Read | Op::Write) {
                continue;
            }
            let base = u64::from(record.volume) << VOLUME_SHIFT;
            // Time never goes back, whatever a trace says.
            let first_us = *self.first_us.get_or_insert(record.ts_us);
            let at_ns = record.ts_us.saturating_sub(first_us).saturating_mul(1_000);
            self.last_ns = self.last_ns.max(at_ns.min(AT_NS_MAX));
            return Some(Operation {
                host: (u64::from(record.volume) % self.hosts) as usize,
                write: record.op == Op::Write,
                first_key: base | blocks.start,
                end_key: base + blocks.end,
                skip_bytes: (record.offset_bytes % BLOCK_BYTES / SECTOR_BYTES * SECTOR_BYTES)
                    as u16,
                spare_bytes: spare_bytes(record.offset_bytes + record.length_bytes),
                at_ns: self.last_ns,
            });
        }
        None
    }

    fn number(&mut self, key: u64) -> u32 {
        self.numbered.clear();
        if let Err(error) = self.interner.extend([(key, false)], &mut self.numbered) {
            // Requests under way end on some block; the outcome is not used.
            self.failure.get_or_insert(error.into());
            return 0;
        }
        self.numbered[0].block()
    }
}
