//! A small hand-made sample of each format, and what it says.

use cinnabar_trace::{Format, Op, Record, Settings, Trace, TraceError};
use std::io::Cursor;

/// Reads bytes as a trace; the format is recognised by content.
pub(crate) fn trace(bytes: &[u8]) -> Result<Trace, TraceError> {
    cinnabar_trace::read(Box::new(Cursor::new(bytes.to_vec())), Settings::default())
}

/// Lines, made from numbers.
pub(crate) fn lines(
    numbers: impl IntoIterator<Item = u64>,
    line: impl Fn(u64) -> String,
) -> String {
    numbers.into_iter().map(line).collect::<Vec<_>>().concat()
}

/// What is wrong with a trace, at once or later.
pub(crate) fn error_of(bytes: &[u8]) -> TraceError {
    match trace(bytes) {
        Err(error) => error,
        Ok(mut trace) => {
            let error = trace.find_map(Result::err).expect("an error");
            assert!(trace.next().is_none(), "nothing comes after an error");
            error
        }
    }
}

pub(crate) const fn record(ts_us: u64, volume: u32, op: Op, offset: u64, length: u64) -> Record {
    Record { ts_us, volume, op, offset_bytes: offset, length_bytes: length }
}

/// A trace, its format, its volumes, and its records.
pub(crate) struct Sample {
    pub(crate) bytes: Vec<u8>,
    pub(crate) format: Format,
    pub(crate) volumes: &'static [&'static str],
    pub(crate) records: Vec<Record>,
}

/// Every format once, and some twice.
pub(crate) fn all() -> Vec<Sample> {
    use Format as F;
    use Op::{Flush as X, Read as R, Write as W};
    let text = |format, text: &str, volumes, records: &[(u64, u32, Op, u64, u64)]| {
        let records = records.iter().map(|&(t, v, op, o, l)| record(t, v, op, o, l)).collect();
        Sample { bytes: text.as_bytes().to_vec(), format, volumes, records }
    };
    let two: &'static [&'static str] = &["7", "3"];
    let plain = [(0, 0, R, 1024, 512), (5, 1, W, 4096, 1024)];
    let mut samples = vec![
        text(F::Canonical, "9,3,R,1,2\n4,0,F,0,0\n", &[], &[(9, 3, R, 1, 2), (4, 0, X, 0, 0)]),
        text(
            F::Msr,
            "128166385295514663,hm,0,Write,9056014336,2048,2833\n\
             128166385295514878,hm,1,Read,512,512,2617\n",
            &["hm_0", "hm_1"],
            &[(0, 0, W, 9_056_014_336, 2048), (21, 1, R, 512, 512)],
        ),
        text(F::Spc, "7,2,512,r,0.5\n3, 8,1024,W,0.500005,x,y\r\n", two, &plain),
        text(F::Alibaba, "7,R,1024,512,100\n3,W,4096,1024,105\n", two, &plain),
        text(
            F::Tencent,
            "12,8,2,1,3\n11,2,1,0,7\n12,2,1,0,7\n",
            &["3", "7"],
            &[(0, 1, R, 1024, 512), (1_000_000, 0, W, 4096, 1024), (1_000_000, 1, R, 1024, 512)],
        ),
        text(
            F::Systor,
            "Timestamp,Response,IOType,LUN,Offset,Size\n1456.000005000,,W,3,4096,1024\n\
             1456.000000999,0.0008,R,7,1024,512\n",
            &["3", "7"],
            &[(0, 1, R, 1024, 512), (5, 0, W, 4096, 1024)],
        ),
        text(
            F::Fiu,
            "1000 4 httpd 2 1 R 6 0 aa\n6000 4 two words 8 2 W 8 1 bb\n",
            &["6,0", "8,1"],
            &plain,
        ),
        text(F::SsdSim, "1000 7 2 1 1\n6000 3 8 2 0\n", two, &plain),
        text(F::DiskSim, "0.5 7 2 1 1\n0.505 3 8 2 10\n", two, &plain),
        text(F::DiskSim, "5 7 2 1 1\n6 3 8 2 a\n", two, &[plain[0], (1000, 1, W, 4096, 1024)]),
        text(
            F::Arc,
            "1 1 0 0\n5 2 0 1\n",
            &["0"],
            &[(0, 0, R, 4096, 4096), (0, 0, R, 20480, 8192)],
        ),
    ];
    samples.extend(linux().map(|(format, lines, records)| text(format, lines, &["8,0"], records)));
    samples.extend(
        fio().map(|(format, lines, volumes, records)| text(format, lines, volumes, records)),
    );
    samples.extend(binary());
    samples
}

type Volumes = &'static [&'static str];
type Requests = &'static [(u64, u32, Op, u64, u64)];

fn fio() -> [(Format, &'static str, Volumes, Requests); 2] {
    use Op::{Discard as D, Flush as X, Read as R, Write as W};
    [
        (
            Format::Fio2,
            "fio version 2 iolog\n/a add\n/a open\n/a read 1024 512\n/b wait 500 0\n\
             /b write 0 4096\n/b datasync 0 0\n/a wait 7 0\n/a trim 4096 8192\n/a sync 0 0\n/a close\n",
            &["/a", "/b"],
            &[
                (0, 0, R, 1024, 512),
                (500, 1, W, 0, 4096),
                (500, 1, X, 0, 0),
                (507, 0, D, 4096, 8192),
                (507, 0, X, 0, 0),
            ],
        ),
        (
            Format::Fio3,
            "fio version 3 iolog\n1 /a add\n2 /a open\n3 /a read 1024 512\n8 /a sync 0 0\n9 /a close\n",
            &["/a"],
            &[(0, 0, R, 1024, 512), (5, 0, X, 0, 0)],
        ),
    ]
}

type Linux = (Format, &'static str, Requests);

fn linux() -> [Linux; 3] {
    use Op::{Discard as D, Flush as X, Read as R, Write as W};
    [
        (
            Format::BlkParse,
            "  8,0    3        1     0.000000999   697  D   W 0 + 8 [x]\n\
             8,0 1 2 0.000001000 697 Q FWS 2 + 1 [a b]\n8,0 1 3 0.000001 697 P N [x]\n\
             8,0 1 4 0.000002 697 m N cfq said something\n8,0 1 5 0.000006 697 Q RA 8 + 2 [x]\n\
             8,0 1 6 0.000007 697 Q FN [x]\n8,0 1 7 0.000008 697 Q DS 8 + 2 [x]\n\
             CPU1 (8,0):\n Reads Queued:  1, 4KiB\nTotal (8,0):\nEvents (8,0): 7 entries\n",
            &[
                (0, 0, X, 0, 0),
                (0, 0, W, 1024, 512),
                (5, 0, R, 4096, 1024),
                (6, 0, X, 0, 0),
                (7, 0, D, 4096, 1024),
            ],
        ),
        (
            Format::BlkParse,
            "8,0 1 1 0.5 9 C R 2 + 1 [0]\n8,0 1 2 0.5 9 D WFS 2 + 1 [x]\n8,0 1 3 0.5 9 C W 2 + 1\n",
            &[(0, 0, W, 1024, 512)],
        ),
        (
            Format::TraceFs,
            "# tracer: nop\n#\n  a b-7839  [000] .....  2817.815461: block_rq_issue: 8,0 RM 4096 () \
             2 + 1 be,0,4 [a b]\n x-1 [001] ..... 2817.815462: block_rq_complete: 8,0 R () 2 + 1 [0]\n\
             CPU:1 [LOST 22 EVENTS]\n x-1 [001] ..... 2817.815463: block_rq_issue: 8,0 FF 0 () \
             18446744073709551615 + 0 none,0,0 [x]\n x-1 [0] . 2817.815464: block_rq_issue: 8,0 N 36 \
             (12 00 00) 0 + 0 [x]\n x-1 [0] . 2817.815465: block_rq_issue: 8,0 NS 4096 () 8 + 8 [x]\n\
             x-1 [0] . 2817.815466: block_rq_issue: 8,0 WS 512 () 8 + 1 be,0,4 [x]\n",
            &[(0, 0, R, 1024, 512), (2, 0, X, 0, 0), (4, 0, D, 4096, 4096), (5, 0, W, 4096, 512)],
        ),
    ]
}

fn binary() -> [Sample; 4] {
    use Op::{Discard as D, Flush as X, Read as R, Write as W};
    let commands = [(0x28, 9, 5), (0x8A, 10, 5), (0x35, 11, 0), (0x12, 12, 0)];
    let expected =
        vec![record(0, 0, R, 9 << 9, 512), record(1, 0, W, 10 << 9, 512), record(2, 0, X, 0, 0)];
    let vscsi = |version: usize| Sample {
        bytes: commands.iter().flat_map(|&(op, lbn, _)| vscsi(version, op, lbn)).collect(),
        format: [Format::Vscsi1, Format::Vscsi2][version - 1],
        volumes: &["0"],
        records: expected.clone(),
    };
    let objects =
        [(5_u32, 3_u64, 4096_u32, 2_i64), (5, 1 << 40 | 7, 100, i64::MAX), (6, 3, 1 << 20, -1)];
    let oracle = Sample {
        bytes: objects.iter().flat_map(|&(t, id, size, next)| oracle(t, id, size, next)).collect(),
        format: Format::OracleGeneral,
        volumes: &[],
        records: vec![
            record(0, 0, R, 3 << 12, 4096),
            record(0, 1, R, 7 << 12, 100),
            record(1_000_000, 0, R, 3 << 12, 4096),
        ],
    };
    // A note with a name behind it; queued: a read, a write behind a flush with bytes behind it, a
    // discard; issued: not counted.
    let (flush_write, discard) = (1 << 1 | 1 << 2, 1 << 1 | 1 << 13);
    let blktrace = Sample {
        bytes: [
            blktrace(1 << 26, 0, 0, b"name"),
            blktrace(1 | 1 << 16, 2, 512, b""),
            blktrace(1 | 1 << 8 | flush_write << 16, 8, 1024, b"cgroup.."),
            blktrace(7 | 1 << 16, 2, 512, b""),
            blktrace(1 | discard << 16, 8, 1024, b""),
        ]
        .concat(),
        format: Format::BlkTrace,
        volumes: &["8,1"],
        records: vec![
            record(0, 0, R, 1024, 512),
            record(0, 0, X, 0, 0),
            record(0, 0, W, 4096, 1024),
            record(0, 0, D, 4096, 1024),
        ],
    };
    [vscsi(1), vscsi(2), oracle, blktrace]
}

/// A command of 512 bytes; its time is its block.
fn vscsi(version: usize, command: u16, block: u64) -> Vec<u8> {
    let (number, length, entries) = (77_u32.to_le_bytes(), 512_u32.to_le_bytes(), [1, 0, 0, 0]);
    let command = command.to_le_bytes();
    let mark = [3, version as u8];
    let block = block.to_le_bytes();
    let head = if version == 1 {
        [&number[..], &length, &entries, &command, &mark].concat()
    } else {
        [&command[..], &mark, &number, &length, &entries].concat()
    };
    let behind: &[u8] = if version == 1 { &[] } else { &[1; 8] };
    [&head[..], &block, &block, behind].concat()
}

pub(crate) fn oracle(seconds: u32, object: u64, size: u32, next: i64) -> Vec<u8> {
    [&seconds.to_le_bytes()[..], &object.to_le_bytes(), &size.to_le_bytes(), &next.to_le_bytes()]
        .concat()
}

fn blktrace(action: u32, sector: u64, bytes: u32, behind: &[u8]) -> Vec<u8> {
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let mut event = words(&[0x6561_7407, 1]);
    event.extend(5_000_u64.to_le_bytes());
    event.extend(sector.to_le_bytes());
    event.extend(words(&[bytes, action, 42, 8 << 20 | 1, 0, (behind.len() as u32) << 16]));
    event.extend(behind);
    event
}
