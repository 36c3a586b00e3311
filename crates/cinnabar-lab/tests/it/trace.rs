//! `cinnabar-lab trace generate`: traces that read back, and requests for what can't be.

use super::rig::Site;
use serde_json::Value;
use std::fs;

const DAY: &[&str] = &[
    "trace",
    "generate",
    "desktop",
    "--days=2",
    "--requests-per-day=2000",
    "--disk-size=1GiB",
    "--seed=5",
];

fn generate(site: &Site, args: &[&str], out: &str) -> Value {
    let text = site.ask(&[args, &["--json", "--out", out]].concat());
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn desktop_days_are_the_same_plain_and_compressed() {
    let site = Site::new();
    let plain = generate(&site, DAY, "a.csv");
    let packed = generate(&site, DAY, "b.csv.zst");
    let other = generate(&site, &[DAY, &["--day-length=1h"]].concat(), "c.csv");
    let read = |name| -> Vec<_> {
        let records = cinnabar_trace::open(&site.path(name)).expect("it opens");
        records.collect::<Result<_, _>>().expect("valid lines")
    };
    let records = read("a.csv");
    assert_eq!(records, read("b.csv.zst"));
    assert_eq!(plain["records"], records.len());
    assert!(records.len() > 3500, "{plain}");
    assert_eq!(plain["file_bytes"], fs::metadata(site.path("a.csv")).expect("a file").len());
    for key in ["reads", "writes", "flushes", "read_bytes", "write_bytes", "volume_bytes", "seed"] {
        assert_eq!(plain[key], packed[key], "{key}");
        assert_eq!(plain[key], other[key], "{key}");
    }
    let sum = |key: &str| plain[key].as_u64().expect("a count");
    assert_eq!(sum("reads") + sum("writes") + sum("flushes"), sum("records"));
    assert!(sum("file_bytes") > 3 * packed["file_bytes"].as_u64().expect("a size"), "{packed}");
    assert!(other["last_ts_us"].as_u64().is_some_and(|last| last < 7_200_000_000), "{other}");
}

#[test]
fn spc1_has_three_volumes() {
    let site = Site::new();
    let args = ["trace", "generate", "spc1", "--bsu=10", "--ios=5000", "--asu1-size=90MiB"];
    let made = generate(&site, &args, "s.csv");
    assert_eq!(made["records"], 5000);
    let volumes = made["volume_bytes"].as_array().expect("a list");
    let limits = [90 << 20, 90 << 20, 20 << 20];
    assert_eq!(volumes.len(), limits.len());
    for (bytes, limit) in volumes.iter().zip(limits) {
        assert!(bytes.as_u64().is_some_and(|bytes| bytes > 0 && bytes <= limit), "{made}");
    }
    // 500 I/Os a second.
    let last = made["last_ts_us"].as_u64().expect("a time");
    assert!((9_000_000..11_000_000).contains(&last), "{last}");
    let table = site.ask(&[&args[..], &["--out", "t.csv"]].concat());
    assert!(table.contains("volume 2") && table.contains("spc1, seed 1"), "{table}");
}

#[test]
fn what_can_not_be_made_leaves_no_file() {
    let site = Site::new();
    let desktop = ["trace", "generate", "desktop", "--out=d.csv"];
    let spc1 = ["trace", "generate", "spc1", "--out=d.csv"];
    let cases: &[(&[&str], &[&str], &str)] = &[
        (&desktop, &["--days=0"], "0 days: from 1"),
        (&desktop, &["--disk-size=1GiB"], "at least 5898240000 bytes"),
        (&desktop, &["--requests-per-day=1"], "1 requests a day"),
        (&desktop, &["--day-length=0s"], "a day of 0 microseconds"),
        (&desktop, &["--partial-writes=2"], "partial writes of 2"),
        (&spc1, &["--bsu=0"], "0 business scaling units"),
        (&spc1, &["--asu2-size=1GiB"], "must be of one size"),
        (&spc1, &["--asu3-size=1MiB"], "at least 2/9"),
        (&spc1, &["--asu1-size=4KiB"], "without a leaf"),
        (&desktop[..3], &["--out=none/d.csv"], "can't write none/d.csv"),
        (&desktop[..3], &["--out=."], "can't write ."),
    ];
    for (command, flags, what) in cases {
        let ended = site.run(&[*command, *flags].concat());
        assert_eq!(ended.code, Some(2), "{flags:?}: {ended:?}");
        assert!(ended.stderr.contains(what), "{flags:?}: {ended:?}");
        assert!(ended.stderr.trim_end().lines().last().is_some_and(|l| l.starts_with("hint: ")));
        assert!(ended.stdout.is_empty(), "{ended:?}");
    }
    let left: Vec<_> = fs::read_dir(site.path(".")).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
}
