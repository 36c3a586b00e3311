//! Real traces, as they are published: skipped where they are not.

use crate::shared_trace;
use cinnabar_trace::{Format, Op, Record};
use std::collections::BTreeSet;
use std::path::Path;

struct Read {
    format: Format,
    records: Vec<Record>,
    volumes: Vec<String>,
}

fn read(path: &Path) -> Read {
    let mut trace = cinnabar_trace::open(path).expect("a known format");
    let records = trace.by_ref().collect::<Result<_, _>>().expect("valid throughout");
    assert_eq!(Some(trace.bytes_read()), trace.size_bytes(), "read to its end");
    Read { format: trace.format(), records, volumes: trace.volumes().to_vec() }
}

fn count(records: &[Record], op: Op) -> usize {
    records.iter().filter(|record| record.op == op).count()
}

#[test]
fn the_sizes_that_are_known() {
    // File, format, reads, writes, volumes.
    let cases = [
        ("raw_msr_hm_0_sample1000.csv.xz", Format::Msr, 508, 492, 1),
        ("raw_systor17_sample999.csv.xz", Format::Systor, 826, 173, 1),
        ("raw_mqsim_tpcc-small.ssdsim.xz", Format::SsdSim, 4381, 2618, 16),
        ("raw_evelii_java_blkparse.txt.xz", Format::BlkParse, 1695, 0, 1),
        ("raw_tencent_cbs_sample50k.csv.xz", Format::Tencent, 24_521, 25_479, 2038),
        ("raw_cloudphysics_cpio.vscsi.xz", Format::Vscsi1, 46_974, 66_898, 1),
        ("arc_OLTP.lis.zst", Format::Arc, 914_145, 0, 1),
    ];
    for (name, format, reads, writes, volumes) in cases {
        let Some(path) = shared_trace(name) else { continue };
        let read = read(&path);
        assert_eq!(read.format, format, "{name}");
        let counts = (count(&read.records, Op::Read), count(&read.records, Op::Write));
        assert_eq!(counts, (reads, writes), "{name}");
        let numbers: BTreeSet<u32> = read.records.iter().map(|record| record.volume).collect();
        assert_eq!((numbers.len(), read.volumes.len()), (volumes, volumes), "{name}");
        assert!(read.records.is_sorted_by_key(|record| record.ts_us), "{name}");
        assert_eq!(read.records[0].ts_us, 0, "{name}");
    }
}

#[test]
fn msr_lasts_as_long_as_it_does() {
    let Some(path) = shared_trace("raw_msr_hm_0_sample1000.csv.xz") else { return };
    let read = read(&path);
    assert_eq!(read.volumes, ["hm_0"]);
    assert_eq!(read.records.last().expect("some").ts_us / 1_000_000, 127);
}

#[test]
fn vscsi_equals_its_canonical_form() {
    let raw = shared_trace("raw_cloudphysics_cpio.vscsi.xz");
    let canonical = shared_trace("cp_vscsi.canon.csv.zst");
    let (Some(raw), Some(canonical)) = (raw, canonical) else { return };
    let (raw, canonical) = (read(&raw), read(&canonical));
    assert_eq!(canonical.format, Format::Canonical);
    assert_eq!(raw.records.len(), 113_872);
    assert!(raw.records == canonical.records);
}

/// The canonical file keeps the raw one's order and volume numbers; the reader sorts and renumbers.
#[test]
fn tencent_equals_its_canonical_form() {
    let raw = shared_trace("raw_tencent_cbs_sample50k.csv.xz");
    let canonical = shared_trace("tencent_cbs_50k.canon.csv.zst");
    let (Some(raw), Some(canonical)) = (raw, canonical) else { return };
    let raw = read(&raw);
    let mut canonical = read(&canonical).records;
    assert!(!canonical.is_sorted_by_key(|record| record.ts_us), "else this proves little");
    canonical.sort_by_key(|record| record.ts_us);
    assert_eq!(raw.records.len(), canonical.len());
    for (raw_record, canonical) in raw.records.iter().zip(canonical) {
        assert_eq!(raw.volumes[raw_record.volume as usize], canonical.volume.to_string());
        assert_eq!(Record { volume: canonical.volume, ..*raw_record }, canonical);
    }
}

/// The canonical file leaves flushes out, and has `F` with a range for what the kernel calls `N`:
/// zeroes written, which the reader takes as discards.
#[test]
fn tracefs_equals_its_canonical_form() {
    let raw = shared_trace("raw_self_loop4_tracefs_rq_issue_first200k.txt.xz");
    let canonical = shared_trace("self_loop4.canon.csv.zst");
    let (Some(raw), Some(canonical)) = (raw, canonical) else { return };
    let raw = read(&raw);
    assert_eq!(raw.format, Format::TraceFs);
    assert_eq!(raw.records.len(), 200_000);
    assert_eq!(count(&raw.records, Op::Flush), 45_674);
    assert_eq!(count(&raw.records, Op::Discard), 64);
    let canonical = cinnabar_trace::open(&canonical).expect("it opens").flatten();
    let mut compared = 0;
    let accesses = raw.records.iter().filter(|record| record.op != Op::Flush);
    for (record, canonical) in accesses.zip(canonical) {
        let op = if canonical.op == Op::Flush { Op::Discard } else { canonical.op };
        assert_eq!(raw.volumes[record.volume as usize], format!("7,{}", canonical.volume));
        let renumbered = Record { volume: canonical.volume, ..*record };
        assert_eq!(renumbered, Record { op, ..canonical }, "record {compared}");
        compared += 1;
    }
    assert_eq!(compared, 154_326);
}
