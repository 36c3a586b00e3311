//! `cinnabar-lab trace info|head|convert`: what they say is what the readers read, and what is written reads
//! back.

use super::rig::Site;
use cinnabar_trace::{Format, Op, Record};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

/// Two volumes with names, all four operations there are, unaligned and sequential requests.
const MSR: &str = "\
128166372000000000,hm,0,Read,4096,8192,9\n\
128166372000010000,hm,1,Write,512,512,9\n\
128166372000020000,hm,0,Read,12288,4096,9\n\
128166372010000000,hm,0,Write,4096,4096,9\n";

const CANONICAL: &str =
    "5,3,R,0,4096\n7,1,W,4096,8192\n7,1,F,0,0\n9,3,D,0,65536\n1000009,1,W,4096,4096\n";

fn json(site: &Site, args: &[&str]) -> Value {
    serde_json::from_str(&site.ask(args)).expect("it is JSON")
}

fn records(path: &Path) -> Vec<Record> {
    let trace = cinnabar_trace::open(path).expect("it opens");
    trace.collect::<Result<_, _>>().expect("valid throughout")
}

#[test]
fn info_counts_what_is_there() {
    let site = Site::new();
    site.write("hm.csv", MSR);
    let info = json(&site, &["trace", "info", "hm.csv", "--json"]);
    for (key, value) in [
        ("requests", 4),
        ("reads", 2),
        ("writes", 2),
        ("read_bytes", 12_288),
        ("write_bytes", 4608),
        ("references", 5),
        ("blocks", 4),
        ("blocks_read", 3),
        ("blocks_written", 2),
        ("unaligned", 1),
        ("sequential", 1),
        ("last_ts_us", 1_000_000),
        ("busiest_second", 3),
        ("volume_count", 2),
    ] {
        assert_eq!(info[key], value, "{key}: {info}");
    }
    assert_eq!((&info["format"], &info["packing"]), (&"msr".into(), &"plain".into()));
    assert_eq!((&info["footprint_exact"], &info["out_of_order"]), (&true.into(), &Value::Null));
    let first = &info["volumes"][0];
    assert_eq!((&first["name"], &first["requests"]), (&"hm_0".into(), &3.into()));
    assert_eq!((&first["blocks"], &first["size_bytes"]), (&3.into(), &16_384.into()));
    let table = site.ask(&["trace", "info", "hm.csv", "--volumes", "1"]);
    for words in ["msr, plain", "hm_0", "and 1 volumes with fewer", "5 of blocks of 4 KiB, 1.25"] {
        assert!(table.contains(words), "{words}: {table}");
    }
    assert!(!table.contains("hm_1"), "{table}");
}

#[test]
fn info_of_the_canonical_form_and_of_several() {
    let site = Site::new();
    site.write("a.csv", CANONICAL);
    site.write("b.csv", &format!("{CANONICAL}1,1,R,0,512\n"));
    let lines = site.ask(&["trace", "info", "a.csv", "b.csv", "--json"]);
    let infos: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [a, b] = &infos[..] else { panic!("{lines}") };
    assert_eq!((&a["flushes"], &a["discards"]), (&1.into(), &1.into()));
    assert_eq!((&a["out_of_order"], &b["out_of_order"]), (&0.into(), &1.into()));
    assert_eq!((&a["first_ts_us"], &b["first_ts_us"]), (&5.into(), &1.into()));
    assert!(b["busiest_second"].is_null(), "time goes back in it: {b}");
    // The busiest first; a discard says how large a volume is, too.
    let volume = |nth: usize| (&a["volumes"][nth]["number"], &a["volumes"][nth]["size_bytes"]);
    assert_eq!(volume(0), (&1.into(), &12_288.into()));
    assert_eq!(volume(1), (&3.into(), &65_536.into()));
    let empty = site.write("empty.csv", "");
    let info = json(&site, &["trace", "info", "empty.csv", "--json"]);
    assert_eq!((&info["requests"], &info["blocks"]), (&0.into(), &0.into()));
    let table = site.ask(&["trace", "info", &empty.to_string_lossy()]);
    assert!(table.contains("requests    0"), "{table}");
}

#[test]
fn head_is_the_begin_in_canonical_form() {
    let site = Site::new();
    site.write("hm.csv", MSR);
    let head = site.ask(&["trace", "head", "hm.csv", "-n", "2"]);
    assert_eq!(head, "0,0,R,4096,8192\n1000,1,W,512,512\n");
    assert_eq!(site.ask(&["trace", "head", "hm.csv"]).lines().count(), 4);
    let one = site.ask(&["trace", "head", "hm.csv", "--volume", "hm_1", "--json"]);
    let line: Value = serde_json::from_str(one.trim_end()).expect("one line");
    assert_eq!(
        (&line["name"], &line["op"], &line["ts_us"]),
        (&"hm_1".into(), &"W".into(), &1000.into())
    );
    site.write("c.csv", CANONICAL);
    assert_eq!(site.ask(&["trace", "head", "c.csv", "--volume", "3"]).lines().count(), 2);
    // From a pipe.
    let file = fs::File::open(site.path("hm.csv")).expect("it is there");
    let piped = site.command(&["trace", "head", "-", "-n1"]).stdin(file).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&piped.stdout), "0,0,R,4096,8192\n");
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let site = Site::new();
    let lines: String =
        (0..200_000).map(|at| format!("{at},0,R,0,4096\n")).collect::<Vec<_>>().concat();
    site.write("long.csv", &lines);
    let mut command = site.command(&["trace", "head", "long.csv", "-n", "200000"]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut first = String::new();
    out.read_line(&mut first).expect("a line");
    assert_eq!(first, "0,0,R,0,4096\n");
    drop(out);
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(0));
    assert!(ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[test]
fn conversions_read_back() {
    let site = Site::new();
    site.write("hm.csv", MSR);
    let whole = records(&site.path("hm.csv"));
    let kept = |out: &str, format: Format| {
        let done = json(&site, &["trace", "convert", "hm.csv", "--out", out, "--json"]);
        assert_eq!((&done["requests"], &done["to"]), (&4.into(), &format.name().into()), "{done}");
        let path = site.path(out);
        assert_eq!(done["file_bytes"], fs::metadata(&path).expect("a file").len());
        assert_eq!(cinnabar_trace::open(&path).expect("it opens").format(), format);
        records(&path)
    };
    assert_eq!(kept("a.csv", Format::Canonical), whole);
    assert_eq!(kept("a.csv.zst", Format::Canonical), whole);
    let named = |file: &str| {
        let mut trace = cinnabar_trace::open(&site.path(file)).expect("it opens");
        trace.by_ref().for_each(drop);
        whole.iter().map(|one| trace.volume_name(one.volume).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(named("a.csv"), named("hm.csv"), "volumes keep their names");
    assert_ne!(named("a.csv")[0], whole[0].volume.to_string());
    assert_eq!(kept("a.iolog", Format::Fio3), whole);
    let references = kept("a.oracleGeneral.zst", Format::OracleGeneral);
    let blocks = |records: &[Record]| -> Vec<(u32, u64)> {
        let each = |record: &Record| record.blocks().map(|block| (record.volume, block)).collect();
        records.iter().flat_map(|record| -> Vec<_> { each(record) }).collect()
    };
    assert_eq!(blocks(&references), blocks(&whole));
    assert!(references.iter().all(|record| record.op == Op::Read));
    // Nothing is left but the files that were asked for.
    let names = fs::read_dir(site.path(".")).expect("a folder");
    let names: BTreeSet<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(names.len(), 5, "{names:?}");
}

#[test]
fn parts_of_a_trace_are_converted() {
    let site = Site::new();
    site.write("c.csv", CANONICAL);
    let convert = |args: &[&str]| {
        let fixed = ["trace", "convert", "c.csv", "--out", "o.csv", "--json"];
        let done = json(&site, &[&fixed[..], args].concat());
        (done, fs::read_to_string(site.path("o.csv")).expect("it is there"))
    };
    let (done, text) = convert(&["--volume", "3"]);
    assert_eq!(text, "5,3,R,0,4096\n9,3,D,0,65536\n");
    assert_eq!(done["passed_over"], 3);
    let (_, text) = convert(&["--from", "7us", "--until", "9us"]);
    assert_eq!(text, "7,1,W,4096,8192\n7,1,F,0,0\n");
    let (_, text) = convert(&["--from", "8us", "--volume", "1", "--volume", "3"]);
    assert_eq!(text, "9,3,D,0,65536\n1000009,1,W,4096,4096\n");
    // Without an end nothing is behind it, whatever the clock says.
    site.write("end.csv", "1,0,R,0,4096\n18446744073709551615,0,W,0,4096\n");
    let whole = ["trace", "convert", "end.csv", "--out", "o.csv", "--json"];
    assert_eq!(json(&site, &whole)["passed_over"], 0);
    // An iolog begins with its first request, on the file that was asked for.
    let fixed = ["trace", "convert", "c.csv", "--out", "o.log", "--to", "fio2", "--volume", "1"];
    site.ask(&[&fixed[..], &["--fio-file", "/x/{}.raw"]].concat());
    let text = fs::read_to_string(site.path("o.log")).expect("it is there");
    assert_eq!(
        text,
        "fio version 2 iolog\n/x/1.raw add\n/x/1.raw open\n/x/1.raw write 4096 8192\n\
         /x/1.raw sync 0 0\n/x/1.raw wait 1000002 0\n/x/1.raw write 4096 4096\n/x/1.raw close\n"
    );
    // What libCacheSim's form has no place for is told.
    let fixed = ["trace", "convert", "c.csv", "--out", "o.oracleGeneral", "--json"];
    assert_eq!(json(&site, &fixed)["not_held"], 2);
}

/// The real fio takes what the command writes, where it is installed.
#[test]
fn fio_replays_a_converted_trace() {
    let site = Site::new();
    let lines: Vec<String> =
        (0..40).map(|at| format!("{},0,W,{},4096\n", at * 150, at * 4096)).collect();
    site.write("w.csv", &lines.concat());
    site.write("disk.raw", &"x".repeat(1 << 20));
    for to in ["fio2", "fio3"] {
        site.ask(&[
            "trace",
            "convert",
            "w.csv",
            "--out",
            "w.iolog",
            "--to",
            to,
            "--fio-file",
            "disk.raw",
        ]);
        let mut fio = std::process::Command::new("fio");
        fio.args(["--name=replay", "--ioengine=psync", "--output-format=json"]);
        fio.arg("--read_iolog=w.iolog").current_dir(site.path("."));
        let Ok(done) = fio.output() else {
            println!("skipped: fio is not installed");
            return;
        };
        let report = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{to}: {report}");
        let written = report.split("\"write\" : {").nth(1).expect("a part on writes");
        assert!(written.contains("\"total_ios\" : 40"), "{to}: {report}");
    }
}

#[test]
fn generators_make_what_info_finds() {
    let site = Site::new();
    let cases: [(&[&str], u64); 5] = [
        (&["zipf", "--requests=5000", "--footprint=16MiB"], 1),
        (&["mix", "--requests=5000", "--loop-size=4MiB", "--zipf-size=8MiB"], 1),
        (&["sixteen", "--scale=0.002"], 16),
        (&["file-server", "--requests=5000", "--hosts=2", "--volumes=thread"], 16),
        (&["boot-storm", "--machines=3", "--boot-size=4MiB", "--image-size=1GiB"], 4),
    ];
    for (args, volumes) in cases {
        let make = |out| {
            let fixed = ["trace", "generate"];
            json(&site, &[&fixed[..], args, &["--json", "--out", out]].concat())
        };
        let made = make("g.csv.zst");
        let info = json(&site, &["trace", "info", "g.csv.zst", "--json"]);
        for key in ["reads", "writes", "read_bytes", "write_bytes", "last_ts_us"] {
            assert_eq!(made[key], info[key], "{args:?} {key}");
        }
        assert_eq!(made["records"], info["requests"], "{args:?}");
        assert_eq!(info["volume_count"], volumes, "{args:?}");
        assert_eq!(info["out_of_order"], 0, "{args:?}");
        make("h.csv.zst");
        let bytes = |name| fs::read(site.path(name)).expect("it is there");
        assert!(bytes("g.csv.zst") == bytes("h.csv.zst"), "{args:?}: a seed is a trace");
    }
}
