//! The state machine: link, queue, service, medium, link again.

use crate::model::latency::whole_ns;
use crate::model::random::Random;
use crate::model::settings::SimSpec;
use cinnabar_engine::seam::IoError;
use cinnabar_engine::seam::units::BLOCK_BYTES;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// What is asked of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    Read,
    /// Write, with or without FUA.
    Write,
    Flush,
    /// Trim or write zeroes: no data on the link.
    Discard,
}

/// When and how an operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// When its completion may be delivered, in ns on the caller's clock.
    pub complete_at_ns: u64,
    /// The error to deliver instead of its result.
    pub error: Option<IoError>,
    /// Whether to carry it out at all: a failed write may or may not have reached the medium.
    pub carry_out: bool,
}

/// What models that stand one in front of the other say of an operation that starts at `now_ns`;
/// each adds its own time. `None` without models.
pub fn judge(
    models: &mut [SimModel],
    now_ns: u64,
    kind: OpKind,
    offset: u64,
    len: u64,
) -> Option<Verdict> {
    models.iter_mut().map(|model| model.schedule(now_ns, kind, offset, len)).reduce(|outer, one| {
        let added_ns = one.complete_at_ns.saturating_sub(now_ns);
        Verdict {
            complete_at_ns: outer.complete_at_ns.saturating_add(added_ns),
            error: outer.error.or(one.error),
            carry_out: outer.carry_out && one.carry_out,
        }
    })
}

/// A device. Deterministic: the same settings and the same calls give the same verdicts.
#[derive(Clone, Debug)]
pub struct SimModel {
    spec: SimSpec,
    random: Random,
    size_bytes: u64,
    now_ns: u64,
    upstream: Line,
    downstream: Line,
    medium: Line,
    /// When each of the `depth` places becomes free.
    places: BinaryHeap<Reverse<u64>>,
    /// Where the last operation ended, for seeks.
    head_at: u64,
    /// When the last write under way ends, for flushes and interference.
    writes_end_ns: u64,
}

impl SimModel {
    /// A device of `size_bytes` bytes; seeks are relative to its size.
    pub fn new(spec: SimSpec, size_bytes: u64) -> Self {
        let places = (0..spec.depth.min(DEPTH_MAX)).map(|_| Reverse(0)).collect();
        Self {
            random: Random::new(spec.seed),
            size_bytes: size_bytes.max(1),
            now_ns: 0,
            upstream: Line::new(spec.link),
            downstream: Line::new(spec.link),
            medium: Line::new(spec.bandwidth),
            places,
            // Nothing follows on from here, so the first operation seeks.
            head_at: u64::MAX,
            writes_end_ns: 0,
            spec,
        }
    }

    /// When an operation that starts now ends. `offset` and `len` are bytes; both are ignored for a
    /// flush. A time before an earlier call's counts as that.
    pub fn schedule(&mut self, now_ns: u64, kind: OpKind, offset: u64, len: u64) -> Verdict {
        self.now_ns = self.now_ns.max(now_ns);
        let now = self.now_ns;
        for line in [&mut self.upstream, &mut self.downstream, &mut self.medium] {
            line.forget(now);
        }
        let (sent, received) = match kind {
            OpKind::Read => (0, len),
            OpKind::Write => (len, 0),
            OpKind::Flush | OpKind::Discard => (0, 0),
        };
        let arrived = self.upstream.pass(now, sent) + self.spec.packet_ns;
        let served = self.serve(arrived, kind, offset, len);
        let complete_at_ns = self.downstream.pass(served, received) + self.spec.packet_ns;
        if matches!(kind, OpKind::Write | OpKind::Discard) {
            self.writes_end_ns = self.writes_end_ns.max(complete_at_ns);
        }
        self.judge(kind, complete_at_ns)
    }

    fn serve(&mut self, arrived: u64, kind: OpKind, offset: u64, len: u64) -> u64 {
        let place = self.places.pop();
        let start = place.map_or(arrived, |Reverse(free)| free.max(arrived));
        let further_bytes = len.saturating_sub(BLOCK_BYTES);
        let further_blocks = further_bytes.div_ceil(BLOCK_BYTES);
        let (first, further, moved) = match kind {
            OpKind::Read => (&self.spec.read, further_blocks * self.spec.read_block_ns, len),
            OpKind::Write => (&self.spec.write, further_blocks * self.spec.write_block_ns, len),
            OpKind::Discard => (&self.spec.write, 0, 0),
            OpKind::Flush => (&self.spec.flush, 0, 0),
        };
        let mut service = first.draw(&mut self.random) + further;
        if kind != OpKind::Flush {
            service += self.position(offset, len);
        }
        if kind == OpKind::Read && start < self.writes_end_ns {
            service += whole_ns(service as f64 * self.spec.interference);
        }
        let on_medium = self.medium.pass(start, moved);
        let transfer = if moved > 0 { self.medium.ns_for(further_bytes) } else { 0 };
        let mut end = on_medium.max(start + service + transfer);
        if kind == OpKind::Flush {
            end = end.max(self.writes_end_ns);
        }
        if place.is_some() {
            self.places.push(Reverse(end));
        }
        end
    }

    /// Time to get the head to `offset`.
    fn position(&mut self, offset: u64, len: u64) -> u64 {
        let from = std::mem::replace(&mut self.head_at, offset.saturating_add(len));
        let seek = self.spec.seek;
        if from == offset || seek.max_ns == 0 && seek.rotation_ns == 0 {
            return 0;
        }
        let from = if from == u64::MAX { self.size_bytes / 2 } else { from };
        let distance = (from.abs_diff(offset) as f64 / self.size_bytes as f64).min(1.0);
        let reach = seek.max_ns.saturating_sub(seek.min_ns) as f64;
        let turn = self.random.unit() * seek.rotation_ns as f64;
        seek.min_ns + whole_ns(reach * distance.sqrt() + turn)
    }

    fn judge(&mut self, kind: OpKind, complete_at_ns: u64) -> Verdict {
        let rate =
            if kind == OpKind::Read { self.spec.read_errors } else { self.spec.write_errors };
        if rate > 0.0 && self.random.unit() < rate {
            let carry_out = kind != OpKind::Read && self.random.unit() < 0.5;
            return Verdict { complete_at_ns, error: Some(IoError::Io), carry_out };
        }
        Verdict { complete_at_ns, error: None, carry_out: true }
    }
}

/// Places that are modelled at most; more is as good as no limit.
const DEPTH_MAX: u32 = 65_536;

/// Something that carries one thing at a time: a direction of a link, the bus of a medium. Filled
/// in the order in which things reach it, not in which they were announced, so an operation that is
/// slow elsewhere doesn't hold up the ones behind it: hence the list of busy intervals.
#[derive(Clone, Debug)]
struct Line {
    bytes_per_s: u64,
    /// Start to end, disjoint and not touching.
    busy: BTreeMap<u64, u64>,
}

impl Line {
    fn new(bytes_per_s: u64) -> Self {
        Self { bytes_per_s, busy: BTreeMap::new() }
    }

    /// Time for `bytes` on a free line.
    fn ns_for(&self, bytes: u64) -> u64 {
        if self.bytes_per_s == 0 {
            return 0;
        }
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s);
        u64::try_from(ns).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
    }

    /// When `bytes` that are there at `from` have passed: the first gap long enough is theirs.
    fn pass(&mut self, from: u64, bytes: u64) -> u64 {
        let needed = self.ns_for(bytes);
        if needed == 0 {
            return from;
        }
        let mut start = from;
        if let Some((_, &end)) = self.busy.range(..=from).next_back() {
            start = start.max(end);
        }
        for (&busy_from, &busy_to) in self.busy.range(start..) {
            if busy_from >= start.saturating_add(needed) {
                break;
            }
            start = busy_to;
        }
        let end = start.saturating_add(needed);
        self.occupy(start, end);
        end
    }

    fn occupy(&mut self, mut start: u64, mut end: u64) {
        if let Some((&before, &touches)) = self.busy.range(..=start).next_back()
            && touches == start
        {
            self.busy.remove(&before);
            start = before;
        }
        if let Some(after) = self.busy.remove(&end) {
            end = after;
        }
        self.busy.insert(start, end);
    }

    /// Drops what is over.
    fn forget(&mut self, now: u64) {
        while let Some(entry) = self.busy.first_entry() {
            if *entry.get() > now {
                break;
            }
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn model(text: &str) -> SimModel {
        SimModel::new(SimSpec::parse(text, None).expect("well-formed"), GIB)
    }

    /// Mean latency in us of `count` operations, one at a time.
    fn mean_us(model: &mut SimModel, kind: OpKind, len: u64, count: u32, random: bool) -> f64 {
        let mut offsets = Random::new(77);
        let mut now = 0;
        for index in 0..count {
            let block = if random { offsets.bits() % (GIB / len) } else { u64::from(index) };
            now = model.schedule(now, kind, block * len, len).complete_at_ns;
        }
        now as f64 / f64::from(count) / 1000.0
    }

    #[test]
    fn presets_have_the_means_of_their_sources() {
        for (preset, kind, expected_us) in [
            ("filer", OpKind::Read, 927.2),
            ("filer", OpKind::Write, 141.2),
            ("network", OpKind::Read, 49.2),
            ("network", OpKind::Write, 49.2),
            ("ssd", OpKind::Read, 88.0),
            ("ssd", OpKind::Write, 21.0),
            ("hdd", OpKind::Read, 1e6 / 117.0),
        ] {
            let mean = mean_us(&mut model(preset), kind, 4096, 100_000, true);
            let off = (mean / expected_us - 1.0).abs();
            assert!(off < 0.025, "{preset} {kind:?}: {mean} us for {expected_us}");
        }
    }

    #[test]
    fn a_disk_streams_at_its_bandwidth() {
        let mean = mean_us(&mut model("hdd"), OpKind::Read, 1 << 20, 1000, false);
        let rate = f64::from(1 << 20) / mean;
        assert!((rate / 150.0 - 1.0).abs() < 0.02, "{rate} MB/s");
    }

    #[test]
    fn the_same_seed_gives_the_same_verdicts() {
        let run = |text: &str| {
            let mut model = model(text);
            let kinds = [OpKind::Read, OpKind::Write, OpKind::Flush, OpKind::Discard];
            (0..1000_u64)
                .map(|i| model.schedule(i * 5000, kinds[(i % 4) as usize], i * 4096, 4096))
                .collect::<Vec<_>>()
        };
        assert_eq!(run("filer,seed=4,errors=0.1"), run("filer,seed=4,errors=0.1"));
        assert_ne!(run("filer,seed=4,errors=0.1"), run("filer,seed=5,errors=0.1"));
    }

    #[test]
    fn depth_limits_what_is_served_at_once() {
        let mut two = model("ssd,depth=2,bandwidth=0");
        let ends: Vec<u64> =
            (0..4).map(|i| two.schedule(0, OpKind::Read, i << 20, 4096).complete_at_ns).collect();
        assert_eq!(ends, [88_000, 88_000, 176_000, 176_000]);
    }

    #[test]
    fn a_slow_read_does_not_hold_up_the_link() {
        let mut slow_first = model("network,read=mix/1us/8ms/0.5,seed=3");
        let ends: Vec<u64> = (0..64)
            .map(|i| slow_first.schedule(0, OpKind::Read, i << 20, 4096).complete_at_ns)
            .collect();
        let fast = ends.iter().filter(|&&end| end < 4_000_000).count();
        assert!((16..48).contains(&fast), "{fast} of 64 are fast");
        let mut sorted = ends.clone();
        sorted.sort_unstable();
        let gap = sorted.windows(2).map(|two| two[1] - two[0]).min();
        assert_eq!(gap, Some(32_768), "replies share one line");
    }

    #[test]
    fn the_link_is_shared() {
        let mut link = model("network");
        let first = link.schedule(0, OpKind::Write, 0, 125_000).complete_at_ns;
        let second = link.schedule(0, OpKind::Write, 0, 125_000).complete_at_ns;
        assert_eq!((first, second), (1_016_400, 2_016_400));
    }

    #[test]
    fn a_flush_waits_for_the_writes_before_it() {
        let mut disk = model("hdd,flush=0");
        let write = disk.schedule(0, OpKind::Write, GIB / 2, 4096).complete_at_ns;
        let flush = disk.schedule(1, OpKind::Flush, 0, 0).complete_at_ns;
        assert!(flush >= write && write > 500_000, "{write} {flush}");
    }

    #[test]
    fn writes_slow_reads_down_when_asked_to() {
        let mut quiet = model("ssd,interference=1,bandwidth=0");
        assert_eq!(quiet.schedule(0, OpKind::Read, 0, 4096).complete_at_ns, 88_000);
        let mut busy = model("ssd,interference=1,bandwidth=0");
        busy.schedule(0, OpKind::Write, 0, 4096);
        assert_eq!(busy.schedule(0, OpKind::Read, 0, 4096).complete_at_ns, 176_000);
    }

    #[test]
    fn errors_come_at_their_rate_and_failed_writes_may_land() {
        let mut flaky = model("ssd,errors=0.1");
        let verdicts: Vec<Verdict> =
            (0..10_000).map(|i| flaky.schedule(i, OpKind::Write, 0, 4096)).collect();
        let failed: Vec<_> = verdicts.iter().filter(|v| v.error.is_some()).collect();
        assert!((800..1200).contains(&failed.len()), "{}", failed.len());
        let landed = failed.iter().filter(|v| v.carry_out).count();
        assert!(landed > failed.len() / 3 && landed < failed.len() * 2 / 3, "{landed}");
        assert!(verdicts.iter().all(|v| v.error.is_some() || v.carry_out));
    }

    #[test]
    fn lines_fill_gaps_and_forget() {
        let mut line = Line::new(1_000_000_000);
        assert_eq!(line.pass(100, 50), 150);
        assert_eq!(line.pass(0, 50), 50);
        assert_eq!(line.pass(0, 50), 100);
        assert_eq!(line.busy.len(), 1, "touching intervals are one: {:?}", line.busy);
        assert_eq!(line.pass(10, 10), 160);
        line.forget(159);
        assert_eq!(line.busy.len(), 1);
        line.forget(160);
        assert!(line.busy.is_empty());
    }
}
