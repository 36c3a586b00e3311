//! `cinnabar-lab simulate hits`: golden counts of real traces, the same for any number of threads, and
//! what is refused.

use super::files;
use super::rig::Site;
use serde_json::Value;
use std::fs;

const POLICIES: [&str; 7] = ["lru", "fifo", "clock", "sieve", "s3-fifo", "arc", "belady"];
/// Misses of these by independent simulators, by size in blocks.
type Row = (u64, [u64; 7]);
const IN_TREE: [Row; 2] = [
    (8_192, [734_308, 738_701, 733_133, 730_238, 649_441, 656_108, 564_059]),
    (32_768, [613_692, 638_099, 604_336, 571_228, 465_099, 530_176, 367_146]),
];
const CP_VSCSI: [Row; 3] = [
    (1_024, [1_028_965, 1_030_563, 1_028_863, 1_040_034, 1_028_435, 1_029_175, 1_006_033]),
    (8_192, [1_016_977, 1_017_501, 1_017_274, 1_010_914, 1_004_832, 1_000_227, 932_277]),
    (65_536, [857_352, 819_697, 883_946, 817_365, 786_676, 888_400, 567_314]),
];
const TENCENT: [Row; 1] =
    [(8_192, [369_067, 370_210, 368_280, 363_614, 361_796, 362_974, 348_239])];
const ARC_OLTP: [Row; 2] = [
    (8_192, [376_069, 409_354, 374_259, 382_679, 358_040, 369_032, 258_501]),
    (65_536, [220_567, 236_959, 221_703, 225_830, 220_183, 219_774, 186_880]),
];

/// The part of a recording that small tests use.
fn in_tree() -> String {
    files::fixture().to_str().expect("a name").to_owned()
}

fn shared(name: &str) -> Option<String> {
    files::find(name).map(|path| path.to_str().expect("a name").to_owned())
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("each line is an object")).collect()
}

fn simulate(args: &[&str]) -> Vec<Value> {
    lines(&Site::new().ask(&[&["simulate", "hits", "--json"], args].concat()))
}

fn check(trace: &str, references: u64, rows: &[Row]) {
    let sizes: Vec<String> = rows.iter().map(|row| row.0.to_string()).collect();
    let policies = POLICIES.join(",");
    let found = simulate(&[trace, "--policy", &policies, "--size", &sizes.join(",")]);
    assert_eq!(found.len(), POLICIES.len() * rows.len());
    let mut lines = found.iter();
    for (index, policy) in POLICIES.iter().enumerate() {
        for (size, golden) in rows {
            let line = lines.next().expect("policies, and sizes within them, in order");
            assert_eq!((&line["trace"], &line["policy"]), (&trace.into(), &(*policy).into()));
            assert_eq!(line["size_blocks"], *size, "{line}");
            for key in ["references", "read_references"] {
                assert_eq!(line[key], references, "{key}: {line}");
            }
            for key in ["misses", "read_misses", "flash_writes"] {
                assert_eq!(line[key], golden[index], "{key}: {line}");
            }
        }
    }
}

#[test]
fn golden_counts_of_the_trace_in_the_tree() {
    check(&in_tree(), 781_757, &IN_TREE);
}

#[test]
fn golden_counts_of_shared_traces() {
    let traces: [(&str, u64, &[Row]); 3] = [
        ("cp_vscsi.canon.csv.zst", 1_141_869, &CP_VSCSI),
        ("tencent_cbs_50k.canon.csv.zst", 378_253, &TENCENT),
        ("arc_OLTP.lis.zst", 914_145, &ARC_OLTP),
    ];
    for (name, references, rows) in traces {
        if let Some(path) = shared(name) {
            check(&path, references, rows);
        }
    }
}

/// 2,038 volumes and no reuse.
#[test]
fn the_engine_takes_a_trace_of_many_volumes() {
    let Some(path) = shared("tencent_cbs_50k.canon.csv.zst") else { return };
    let found = simulate(&[&path, "--policy", "engine", "--size", "8192", "--writes", "through"]);
    assert_eq!(
        (&found[0]["volumes"], &found[0]["capacity_blocks"]),
        (&2_038.into(), &8_160.into())
    );
    assert_eq!(found[0]["references"], 378_253);
    assert!(found[0]["misses"].as_u64().is_some_and(|misses| misses >= 348_239), "{}", found[0]);
}

#[test]
fn output_does_not_depend_on_threads() {
    let site = Site::new();
    let trace = in_tree();
    let args = ["simulate", "hits", &trace, "--size", "5%,20MiB", "--writes", "around", "--json"];
    let one = site.ask(&[&args[..], &["--jobs", "1"]].concat());
    assert_eq!(one, site.ask(&[&args[..], &["--jobs", "3"]].concat()));
    let found = lines(&one);
    assert_eq!(found.len(), 9 * 2, "every policy at both sizes");
    let engine = &found[17];
    assert_eq!((&engine["policy"], &engine["size_blocks"]), (&"engine".into(), &5_120.into()));
    assert_eq!(engine["capacity_blocks"], 5_120 / 255 * 255);
    assert_eq!(found[0]["size_blocks"], (236_575_u64 * 5).div_ceil(100));
    assert!(found.iter().all(|line| line["writes"] == "around"));
    assert!(found.iter().all(|line| line["backend_writes"] == engine["backend_writes"]));
}

/// Two blocks, one of them twice, in a cache of one; and two traces, each by itself.
#[test]
fn a_few_requests_are_counted_as_by_hand() {
    let site = Site::new();
    site.write("a.csv", "0,7,R,0,4096\n1,7,W,4096,1\n2,7,F,0,0\n3,7,W,4095,2\n");
    site.write("b.csv", "0,0,R,0,4096\n");
    let args = ["simulate", "hits", "a.csv", "b.csv", "--policy", "lru", "--json", "--size=1"];
    let found = |writes: &str| lines(&site.ask(&[&args[..], &["--writes", writes]].concat()));
    let counts = |line: &Value| {
        ["references", "misses", "read_references", "read_misses", "flash_writes", "backend_writes"]
            .map(|key| line[key].as_u64().expect("a count"))
    };
    let all = found("as-reads");
    assert_eq!((&all[0]["trace"], &all[1]["trace"]), (&"a.csv".into(), &"b.csv".into()));
    assert_eq!(counts(&all[0]), [4, 4, 4, 4, 4, 0]);
    assert_eq!(counts(&all[1]), [1, 1, 1, 1, 1, 0], "an empty cache again");
    assert_eq!(counts(&found("through")[0]), [4, 4, 1, 1, 4, 3]);
    assert_eq!(counts(&found("around")[0]), [4, 3, 1, 1, 1, 3]);
    assert_eq!(counts(&found("back")[0]), [4, 4, 1, 1, 4, 2]);
    assert_eq!((&found("back")[0]["dirty_blocks"], &all[0]["volumes"]), (&1.into(), &1.into()));
}

#[test]
fn people_get_tables_and_a_page() {
    let site = Site::new();
    let trace = in_tree();
    let ended = site.run(&[
        "simulate", "hits", &trace, "--size", "10%,50%", "--writes", "back", "--html", "h.html",
    ]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("note: engine is left out"), "{ended:?}");
    for part in ["781757 references", "236575 different blocks", "4 volumes", "read miss ratio"] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
    assert!(ended.stdout.contains("23658") && ended.stdout.contains("S3-FIFO"), "{ended:?}");
    let page = fs::read_to_string(site.path("h.html")).expect("a page");
    for part in ["<svg", "belady", "sieve", "read miss ratio", "92.4 MiB"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<script"));
}

#[test]
fn what_can_not_be_simulated_is_said() {
    let site = Site::new();
    site.write("a.csv", "0,0,R,0,4096\n1,0,R,0,4096\n");
    site.write("bad.csv", "0,0,R,0,4096\n1,0,R,0,4096\n2,0,X,0,4096\n");
    site.write("empty.csv", "");
    site.write("flush.csv", "0,0,F,0,0\n");
    site.write("prose.txt", "once upon a time\n");
    site.write("huge.csv", "0,0,R,0,4096\n1,0,R,0,2000000000000\n");
    let packed = fs::read(in_tree()).expect("the trace in the tree");
    fs::write(site.path("cut.zst"), &packed[..packed.len() / 2]).expect("a file");
    let record = |object: u64| {
        [&0_u32.to_le_bytes()[..], &object.to_le_bytes(), &4096_u32.to_le_bytes(), &[0xFF; 8]]
            .concat()
    };
    let whole = [record(1), record(2)].concat();
    fs::write(site.path("cut.oracle"), &whole[..40]).expect("a file");
    fs::create_dir(site.path("folder")).expect("a folder");
    let cases: &[(&[&str], &str)] = &[
        (&["a.csv", "--size", "0"], "less than one block"),
        (&["a.csv", "--size", "4KB"], "less than one block"),
        (&["a.csv", "--size", "1073741825"], "more than 1073741824 blocks"),
        (&["a.csv", "--size", "1e30"], "not a size"),
        (&["a.csv", "--size", "99999999999999999999999999"], "more than 1073741824 blocks"),
        (&["a.csv", "--size=-8192"], "not a size"),
        (&["a.csv", "--size", "8192,1.5"], "no whole number of blocks"),
        (&["a.csv", "--size", "0%"], "not a percentage"),
        (&["a.csv", "--size", "200%"], "not a percentage"),
        (&["a.csv", "--size", ""], "not a size"),
        (
            &["a.csv", "--policy", "lru,lfu"],
            "lru, fifo, clock, sieve, s3-fifo, arc, larc, belady, engine",
        ),
        (&["a.csv", "--writes", "sideways"], "as-reads, through, around, back"),
        (&["a.csv", "--jobs", "0"], "from 1 to 1024"),
        (&["a.csv", "--policy", "engine", "--size", "4589"], "smallest cache has 4590 blocks"),
        (&["a.csv", "--policy", "engine", "--size", "4TiB"], "up to 26"),
        (
            &["a.csv", "--policy", "engine", "--size", "1GiB", "--writes", "back"],
            "can't write back",
        ),
        (&[], "TRACE"),
        (&["none.csv"], "none.csv: cannot read the trace"),
        (&["folder"], "folder: cannot read the trace"),
        (&["empty.csv"], "empty.csv: the trace has no reads and no writes"),
        (&["flush.csv", "--size", "9"], "flush.csv: the trace has no reads and no writes (1 req"),
        (&["prose.txt"], "prose.txt: the trace is in no format"),
        (&["bad.csv", "--size", "9"], "bad.csv: line 3 of the trace"),
        (&["bad.csv"], "bad.csv: line 3 of the trace"),
        (&["huge.csv"], "huge.csv: line 2 of the trace"),
        (&["cut.zst", "--size", "9"], "cut.zst: cannot read the trace after line"),
        (&["cut.oracle", "--size", "9"], "16 bytes into a record of 24"),
        (&["/dev/null"], "not a file"),
        (&["/dev/null", "--size", "9"], "no reads and no writes"),
        (&["a.csv", "--html", "a.csv"], "that is the trace"),
        (&["a.csv", "--html", "folder"], "it is a directory"),
        (&["a.csv", "--html", "nowhere/x.html"], "its folder does not exist"),
    ];
    for (args, part) in cases {
        let ended = site.run(&[&["simulate", "hits"], *args].concat());
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
        assert!(ended.stderr.contains(part), "{args:?}: {ended:?}");
        let last = ended.stderr.trim_end().lines().last().unwrap_or_default();
        assert!(last.starts_with("hint: ") && last.len() > 10, "{args:?}: {ended:?}");
        assert!(ended.stdout.is_empty(), "{args:?}: {ended:?}");
    }
    let text = fs::read_to_string(site.path("a.csv")).expect("it is there");
    assert_eq!(text, "0,0,R,0,4096\n1,0,R,0,4096\n", "the trace was not written over");
}

/// The first trace's lines are out before the second is found to be none.
#[test]
fn what_was_found_before_an_error_is_printed() {
    let site = Site::new();
    site.write("a.csv", "0,0,R,0,4096\n");
    let ended = site.run(&["simulate", "hits", "a.csv", "b.csv", "--json", "--size", "9"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert_eq!(lines(&ended.stdout).len(), 8, "without the engine, which is not that small");
    assert!(ended.stderr.contains("b.csv"), "{ended:?}");
}
