//! Traces that are none, cut short or damaged, and flags that make no sense: each command says the file,
//! the place and what may help, with exit code 2, and leaves no file behind.

use super::rig::{Ended, Site};
use cinnabar_trace::Format;
use std::fs;
use std::io::Write;

fn is_refused(ended: &Ended, words: &[&str]) {
    assert_eq!(ended.code, Some(2), "{ended:?}");
    for word in words {
        assert!(ended.stderr.contains(word), "{word}: {ended:?}");
    }
    assert!(ended.stderr.starts_with("error: "), "{ended:?}");
    let last = ended.stderr.trim_end().lines().last();
    assert!(last.is_some_and(|line| line.starts_with("hint: ") && line.len() > 10), "{ended:?}");
}

/// A good line or record of each format, and where a bad one behind it is said to be.
fn samples() -> Vec<(Format, Vec<u8>, &'static str)> {
    let line = |format, good: &str| (format, format!("{good}\nnonsense\n").into_bytes(), "line 2");
    let vscsi1 = [&[0; 12][..], &[0x28, 0, 0, 1], &[0; 16]].concat();
    let vscsi2 = [&[0x28, 0, 0, 2][..], &[0; 36]].concat();
    let oracle = [&[0; 12][..], &[0, 16, 0, 0], &[0xFF; 8]].concat();
    let blktrace = [&0x6561_7407_u32.to_le_bytes()[..], &[0; 44]].concat();
    let cut = |format, record: Vec<u8>, place| {
        let mut bytes = record.repeat(2);
        bytes.pop();
        (format, bytes, place)
    };
    vec![
        line(Format::Canonical, "1,0,R,0,512"),
        line(Format::Msr, "1,hm,0,Read,0,512,1"),
        line(Format::Spc, "0,1,512,R,1.5"),
        line(Format::Alibaba, "7,R,0,512,1"),
        line(Format::Tencent, "1,0,1,0,7"),
        line(Format::Systor, "1.5,,R,1,0,512"),
        line(Format::Fiu, "1 4 p 2 1 R 6 0 aa"),
        line(Format::BlkParse, "8,0 1 1 0.5 9 Q R 2 + 1 [x]"),
        line(Format::TraceFs, "x-1 [0] . 2.5: block_rq_issue: 8,0 R 512 () 8 + 1 [x]"),
        line(Format::Fio2, "fio version 2 iolog"),
        line(Format::Fio3, "fio version 3 iolog"),
        line(Format::SsdSim, "1000 7 2 1 1"),
        line(Format::DiskSim, "0.5 7 2 1 1"),
        line(Format::Arc, "1 1 0 0"),
        cut(Format::Vscsi1, vscsi1, "byte 32"),
        cut(Format::Vscsi2, vscsi2, "byte 40"),
        cut(Format::OracleGeneral, oracle, "byte 24"),
        cut(Format::BlkTrace, blktrace, "byte 48"),
    ]
}

#[test]
fn damage_of_every_format_is_placed_by_every_command() {
    let site = Site::new();
    let samples = samples();
    for format in Format::ALL {
        assert!(samples.iter().any(|(sample, ..)| *sample == format), "no sample of {format}");
    }
    for (format, bytes, place) in samples {
        fs::write(site.path("bad"), &bytes).expect("a file");
        let named = format!("--format={format}");
        let commands: [&[&str]; 3] = [
            &["trace", "info", "bad", &named],
            &["trace", "head", "bad", &named],
            &["trace", "convert", "bad", "--out", "o.csv", &named],
        ];
        for command in commands {
            let ended = site.run(command);
            is_refused(&ended, &["bad: ", place]);
        }
        assert!(!site.path("o.csv").exists(), "{format}");
        // Said to be another one, it is none from the start, or stays without a single request.
        let other = if place.starts_with("line") { "vscsi1" } else { "msr" };
        let ended = site.run(&["trace", "info", "bad", &format!("--format={other}")]);
        is_refused(&ended, &["bad: "]);
    }
    let left = fs::read_dir(site.path(".")).expect("a folder").count();
    assert_eq!(left, 1, "only the trace itself");
}

#[test]
fn head_shows_what_comes_before_the_damage() {
    let site = Site::new();
    site.write("bad.csv", "1,0,R,0,512\n2,0,R,0,512\nnonsense\n");
    let ended = site.run(&["trace", "head", "bad.csv"]);
    is_refused(&ended, &["bad.csv: line 3 of the trace is not valid"]);
    assert_eq!(ended.stdout, "1,0,R,0,512\n2,0,R,0,512\n");
    // What is not asked for is not read.
    assert_eq!(site.ask(&["trace", "head", "bad.csv", "-n", "2"]), ended.stdout);
}

#[test]
fn packed_traces_cut_short_are_refused() {
    let site = Site::new();
    let text = (0..5000).map(|at| format!("{at},0,W,{},4096\n", at * 7919 % 65_536 * 4096));
    site.write("t.csv", &text.collect::<Vec<_>>().concat());
    let pack = |tool: &str| {
        let done = std::process::Command::new(tool)
            .args(["-kc", "t.csv"])
            .current_dir(site.path("."))
            .output();
        done.ok().filter(|done| done.status.success()).map(|done| done.stdout)
    };
    site.ask(&["trace", "convert", "t.csv", "--out", "t.csv.zst"]);
    let zst = fs::read(site.path("t.csv.zst")).expect("it is there");
    let packed = [("zst", Some(zst)), ("gz", pack("gzip")), ("xz", pack("xz"))];
    for (end, bytes) in packed {
        let Some(bytes) = bytes else {
            println!("skipped: no packer for {end}");
            continue;
        };
        let name = format!("cut.{end}");
        let write = |bytes: &[u8]| {
            let mut file = fs::File::create(site.path(&name)).expect("a file");
            file.write_all(bytes).expect("room");
        };
        write(&bytes[..bytes.len() / 2]);
        is_refused(&site.run(&["trace", "info", &name]), &[&name, "line", "-t"]);
        let mut rotten = bytes.clone();
        let middle = rotten.len() / 2;
        rotten[middle..middle + 16].iter_mut().for_each(|byte| *byte ^= 0x55);
        write(&rotten);
        is_refused(&site.run(&["trace", "info", &name]), &[&name]);
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let site = Site::new();
    site.write("t.csv", "1,0,R,0,512\n3,0,W,0,512\n2,0,R,0,512\n");
    site.write("a.lis", "1 1 0 0\n5 2 0 1\n");
    site.write("long.csv", "0,0,R,0,512\n1,0,R,0,4503599627370496\n");
    site.write("late.csv", "7,R,0,512,11\n7,R,0,512,12\n7,R,0,512,13\n7,R,0,512,10\n");
    site.write("hello", "hello world\n");
    site.write("tar.tbz", "BZh91AY&SY");
    let cases: &[(&[&str], &[&str])] = &[
        (&["info", "none.csv"], &["can't read none.csv"]),
        (&["info", "."], &["can't read ."]),
        (
            &["info", "hello"],
            &["hello: the trace is in no format", "hello world", "hint: the guide"],
        ),
        (&["info", "tar.tbz"], &["bzip2"]),
        (
            &["info", "long.csv"],
            &["long.csv: line 2 of the trace", "longer than 4294967296 bytes", "sectors"],
        ),
        (&["info", "t.csv", "--format", "nope"], &["invalid value 'nope'"]),
        (&["info", "t.csv", "--volumes", "x"], &["a number, or all"]),
        (&["info", "t.csv", "--window", "99999999999"], &["--window"]),
        (
            &["info", "late.csv", "--window", "2"],
            &["line 4", "2 requests earlier", "larger window"],
        ),
        (&["head", "t.csv", "--volume", "7"], &["volume \"7\" is not there"]),
        (&["convert", "t.csv", "--out", "o.txt"], &["o.txt: its name's end tells no format"]),
        (&["convert", "t.csv", "--out", "o.csv", "--to", "msr"], &["invalid value 'msr'"]),
        (&["convert", "t.csv", "--out", "t.csv"], &["that is the trace itself"]),
        (&["convert", "t.csv", "--out", "no/o.csv"], &["can't write no/o.csv", "make its folder"]),
        (&["convert", "t.csv", "--out", "o.csv", "--volume", "9"], &["volume \"9\" is not there"]),
        (&["convert", "t.csv", "--out", "o.csv", "--from", "2s", "--until", "1s"], &["--until"]),
        (&["convert", "t.csv", "--out", "o.csv", "--from", "5"], &["not a time"]),
        (&["convert", "t.csv", "--out", "o.csv", "--fio-file", "x"], &["--fio-file means nothing"]),
        (&["convert", "a.lis", "--out", "o.csv", "--from", "1s"], &["arc has no times"]),
        (&["convert", "t.csv", "--out", "o.iolog"], &["request 3", "time goes back", "sort -s"]),
        (&["convert", "long.csv", "--out", "o.oracleGeneral"], &["longer than 4294967296"]),
        (&["generate", "zipf", "--out", "o.csv", "--alpha", "9"], &["an exponent of 9"]),
        (&["generate", "zipf", "--out", "o.csv", "--block-sizes", "4KiB"], &["such as 4KiB:0.8"]),
        (
            &["generate", "zipf", "--out", "o.csv", "--block-sizes", "1KiB:1"],
            &["multiple of 4 KiB"],
        ),
        (
            &["generate", "mix", "--out", "o.csv", "--loop-share", "0.95"],
            &["add up to more than 1"],
        ),
        (&["generate", "sixteen", "--out", "o.csv", "--scale", "0"], &["a scale of 0"]),
        (&["generate", "file-server", "--out", "o.csv", "--total", "1GiB"], &["working sets need"]),
        (&["generate", "file-server", "--out", "o.csv", "--run", "4KiB"], &["--files"]),
        (&["generate", "boot-storm", "--out", "o.csv", "--machines", "0"], &["machines of 0"]),
    ];
    let before = fs::read_dir(site.path(".")).expect("a folder").count();
    for (args, words) in cases {
        let ended = site.run(&[&["trace"], *args].concat());
        is_refused(&ended, words);
        assert!(ended.stdout.is_empty(), "{args:?}: {ended:?}");
    }
    assert_eq!(fs::read_dir(site.path(".")).expect("a folder").count(), before, "no file is left");
}
