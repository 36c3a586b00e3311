//! `cinnabar cache check|dump|writeback` on a write log that was let go of in the middle.

use super::nbd::Client;
use super::offline::hinted;
use super::rig::{Ended, MIB, Site, pattern};
use cinnabar::offline::write_log::{Command, Config, Done, LogVolumeId, Session, create, open};
use cinnabar_backend::Memory;
use cinnabar_backend::claim::{Claim, Location, path_beside};
use cinnabar_engine::units::ByteSpan;
use cinnabar_engine::{Op, Payload};
use serde_json::Value;
use std::fs::{self, OpenOptions as FileOptions};
use std::os::unix::fs::FileExt;
use std::time::Duration;

const LOG_BYTES: u64 = 16 * MIB;
const VOLUME_BYTES: u64 = 2 * MIB;
const INCARNATION: u64 = 77;
/// Byte of the first segment.
const SEGMENTS: u64 = 768 * 4096;

/// A folder with a log that has writes of `vm 1`, which its disk `vm1.raw` lacks, and of `vm2`; and
/// what the guest of `vm 1` would read.
struct Left {
    site: Site,
    image: Vec<u8>,
}

fn left() -> Left {
    let site = Site::new();
    let blank = vec![0; VOLUME_BYTES as usize];
    for disk in ["vm1.raw", "vm2.raw"] {
        fs::write(site.path(disk), &blank).expect("a disk");
    }
    create(&site.path("w.log"), LOG_BYTES).expect("it is made");
    let mut image = blank;
    // The second session's chunks are behind a gap.
    for round in 0..2 {
        use_it(&site, "vm 1", |session, place| {
            for n in 0..40_u64 {
                let span = ByteSpan::new((n * 37 + round * 5) % 400 * 4096 + 512, 8192);
                let byte = (n + 1 + round * 100) as u8;
                write(session, place, span, byte, n % 10 == 9);
                image[span.offset as usize..span.end() as usize].fill(byte);
            }
            let span = ByteSpan::new(64 * 4096, 3 * 4096);
            let op = Op::WriteZeroes { span, fua: false, may_punch: true };
            session.request(place, op).expect("it is zeroed");
            image[span.offset as usize..span.end() as usize].fill(0);
            session.request(place, Op::Flush).expect("it is flushed");
        });
    }
    use_it(&site, "vm2", |session, place| {
        write(session, place, ByteSpan::new(0, 4096), 9, true);
    });
    Left { site, image }
}

fn use_it(site: &Site, name: &str, act: impl FnOnce(&mut Session, LogVolumeId)) {
    let opened = open(&site.path("w.log"), &mut ()).expect("it opens");
    let (disk, log) = opened.begin(Config::default()).expect("it begins");
    let attach = Command::Attach {
        name: name.to_owned(),
        size_bytes: VOLUME_BYTES,
        incarnation: INCARNATION,
        group: String::new(),
    };
    // Its back end is away, and at the end the session is let go of as by `kill -9`.
    let mut session = Session::new(log, disk, None).expect("a session");
    let Ok(Done::Attached(place)) = session.carry_out(attach) else { panic!("it attaches") };
    act(&mut session, place);
}

fn write(session: &mut Session, place: LogVolumeId, span: ByteSpan, byte: u8, fua: bool) {
    let data = Memory::alloc(span.blocks() as u32);
    data.write_at(span.head_bytes(), &vec![byte; span.len as usize]);
    session.request(place, Op::Write { span, data, fua }).expect("it is written");
}

fn check(left: &Left, code: i32) -> Value {
    let ended = left.site.run(&["cache", "check", "w.log", "--all", "--json"]);
    assert_eq!(ended.code, Some(code), "{ended:?}");
    serde_json::from_str(&ended.stdout).expect("it is JSON")
}

fn log_bytes(left: &Left) -> Vec<u8> {
    fs::read(left.site.path("w.log")).expect("the log")
}

fn rescue(left: &Left, volume: &str, to: &str) -> Ended {
    left.site.run(&["cache", "writeback", "w.log", "--volume", volume, "--to", to])
}

fn refused(ended: &Ended, part: &str) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{part}: {ended:?}");
    assert!(ended.stderr.contains(part), "{part}: {ended:?}");
    assert_eq!(ended.stderr.lines().count(), 2, "{part}: {ended:?}");
    hinted(ended);
}

/// Claims the disk of `vm 1` for this log, or another one.
fn claim_it(left: &Left, other: bool) -> std::path::PathBuf {
    let path = path_beside(&left.site.path("vm1.raw"));
    let opened = open(&left.site.path("w.log"), &mut ()).expect("it opens");
    let uuid = if other { [1; 16] } else { opened.survey.superblock.uuid };
    let claim = Claim::new(uuid, &left.site.path("w.log"), "vm 1", INCARNATION);
    Location::File(path.clone()).write(&claim).expect("it is claimed");
    path
}

#[test]
fn check_and_dump_tell_what_is_dirty_and_write_nothing() {
    let left = left();
    let before = log_bytes(&left);
    let report = check(&left, 0);
    assert_eq!((&report["kind"], &report["damaged"]), (&"write_log".into(), &false.into()));
    assert_eq!(report["next_start"]["kind"], "recover");
    let [one, two] = &report["volumes"].as_array().expect("a list")[..] else { panic!("{report}") };
    assert_eq!((&one["name"], &two["name"]), (&"vm 1".into(), &"vm2".into()));
    assert_eq!(one["size_bytes"], VOLUME_BYTES);
    assert_eq!(one["incarnation"], format!("{INCARNATION:016x}"));
    let count = |volume: &Value, name: &str| volume[name].as_u64().expect("a count");
    assert!(count(one, "dirty_bytes") > 80 * 8192 && count(one, "dirty_epochs") >= 10, "{one}");
    assert_eq!((count(two, "dirty_chunks"), count(two, "dirty_bytes")), (1, 8192), "{two}");
    let text = left.site.ask(&["cache", "check", "w.log"]);
    for part in ["write log", "dirty", "vm 1", "next start: what is dirty of \"vm 1\", \"vm2\""] {
        assert!(text.contains(part), "{part}: {text}");
    }

    let text = left.site.ask(&["cache", "dump", "w.log", "--json", "--entries"]);
    let mut kinds = std::collections::BTreeMap::<String, u64>::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect("each line is JSON");
        *kinds.entry(line["what"].as_str().expect("a word").to_owned()).or_default() += 1;
    }
    assert_eq!(kinds["superblock"], 2, "{kinds:?}");
    assert!(kinds["volume"] >= 4 && kinds["gap"] > 0, "{kinds:?}");
    assert!(kinds["chunk"] >= count(one, "dirty_chunks") && kinds["entry"] > 200, "{kinds:?}");
    let words = left.site.ask(&["cache", "dump", "w.log", "--what", "volumes"]);
    assert!(words.contains("name=\"vm 1\"") && !words.contains("chunk"), "{words}");
    let ended = left.site.run(&["cache", "dump", "w.log", "--shard", "1"]);
    refused(&ended, "there is no shard 1");
    assert!(log_bytes(&left) == before, "nothing was written");
}

#[test]
fn what_the_guest_wrote_reaches_the_back_end_and_the_claim_says_so() {
    let left = left();
    let claim = claim_it(&left, false);
    let ended = rescue(&left, "vm 1", "file:vm1.raw");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("it has everything now"), "{ended:?}");
    let is_released = || {
        let text = fs::read_to_string(&claim).expect("it stays");
        text.contains("rescued = true") && text.contains("has all its writes again")
    };
    assert!(ended.stdout.contains("claim") && is_released(), "{ended:?}");
    assert!(!ended.stderr.contains("note:"), "{ended:?}");
    assert!(fs::read(left.site.path("vm1.raw")).expect("the disk") == left.image);
    let report = check(&left, 0);
    assert_eq!(report["volumes"].as_array().map(Vec::len), Some(1), "it has no place any more");
    assert_eq!(report["volumes"][0]["dirty_chunks"], 1, "the other volume keeps its writes");

    // Interrupted before its very end: the claim is all that is left.
    refused(&rescue(&left, "vm 1", "vm1.raw"), "has no volume \"vm 1\"; it has \"vm2\"");
    assert_eq!(claim_it(&left, false), claim);
    let args = ["cache", "writeback", "w.log", "--volume", "vm 1", "--to", "vm1.raw", "--json"];
    let again: Value = serde_json::from_str(&left.site.ask(&args)).expect("it is JSON");
    assert_eq!((&again["chunks"], &again["blocks"]), (&0.into(), &0.into()));
    assert!(again["claim_released"].is_string() && is_released(), "{again}");
    assert!(fs::read(left.site.path("vm1.raw")).expect("the disk") == left.image);

    // Without a claim it may be any disk: nothing is written.
    let before = fs::read(left.site.path("vm2.raw")).expect("the disk");
    refused(&rescue(&left, "vm2", "vm2.raw"), "there is no claim of volume \"vm2\" to it");
    assert!(fs::read(left.site.path("vm2.raw")).expect("the disk") == before);
    // A copy gets them, and the log keeps them.
    let args = ["cache", "writeback", "w.log", "--volume", "vm2", "--to", "vm2.raw", "--copy"];
    for _ in 0..2 {
        let ended = left.site.run(&args);
        assert!(
            ended.code == Some(0) && ended.stderr.contains("has the writes still"),
            "{ended:?}"
        );
        assert_eq!(check(&left, 0)["volumes"][0]["dirty_chunks"], 1);
        assert_eq!(fs::read(left.site.path("vm2.raw")).expect("the disk")[..4096], [9; 4096]);
    }
}

#[test]
fn an_nbd_server_takes_it_and_a_claim_may_be_elsewhere() {
    let left = left();
    let config = "[[volume]]\nname = \"vm1\"\nbackend = \"file:vm1.raw\"\nnbd = \"unix:s\"\n";
    left.site.config(config);
    let claim = claim_it(&left, false);
    fs::rename(&claim, left.site.path("claim")).expect("it is moved");
    let server = left.site.serve();
    let args = ["cache", "writeback", "w.log", "--volume", "vm 1", "--to", "nbd:unix:s:vm1"];
    let ended = left.site.run(&[&args[..], &["--claim", "claim"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let claim = fs::read_to_string(left.site.path("claim")).expect("it stays");
    assert!(claim.contains("rescued = true"), "{ended:?}");
    server.stop();
    assert!(fs::read(left.site.path("vm1.raw")).expect("the disk") == left.image);
    // Nothing answers there.
    let args = ["cache", "writeback", "w.log", "--volume", "vm2", "--to", "nbd:unix:s:vm1"];
    refused(&left.site.run(&args), "nbd:unix:");
}

#[test]
fn what_can_not_be_done_is_refused_in_one_line() {
    let left = left();
    let before = log_bytes(&left);
    fs::write(left.site.path("small.raw"), vec![0; 8192]).expect("it is written");
    fs::write(left.site.path("empty.raw"), []).expect("it is written");
    fs::write(left.site.path("text"), "not a log. long\n".repeat(2048)).expect("it");
    for (volume, to, part) in [
        ("vm3", "vm1.raw", "has no volume \"vm3\"; it has \"vm 1\", \"vm2\""),
        ("vm 1", "small.raw", "it has 8192 bytes, the volume has 2097152"),
        ("vm 1", "empty.raw", "it is empty"),
        ("vm 1", "none.raw", "no such file"),
        ("vm 1", "w.log", "in use"),
        ("vm 1", "iscsi:vm1", "is not a backend"),
        ("vm 1", "nbd:vm1", "in \"nbd:\""),
        ("vm 1", "sim:hdd:file:vm1.raw", "a model in front"),
    ] {
        refused(&rescue(&left, volume, to), part);
    }
    let locked = FileOptions::new().read(true).open(left.site.path("vm1.raw")).expect("the disk");
    let lock = rustix::fs::FlockOperation::NonBlockingLockShared;
    rustix::fs::flock(&locked, lock).expect("it is locked");
    refused(&rescue(&left, "vm 1", "vm1.raw"), "in use by process");
    drop(locked);
    for (log, part) in [
        ("none.log", "no such file"),
        ("vm1.raw", "there is no write log on it"),
        ("text", "not a write log"),
        (".", "it is a directory"),
    ] {
        let args = ["cache", "writeback", log, "--volume", "vm 1", "--to", "vm2.raw"];
        refused(&left.site.run(&args), part);
    }
    assert!(!left.site.path("none.log").exists());

    // Another log has writes for it, or nobody knows which.
    let claim = claim_it(&left, true);
    refused(&rescue(&left, "vm 1", "vm1.raw"), "may be in write log");
    assert!(claim.exists());
    fs::write(&claim, "x").expect("it is written");
    refused(&rescue(&left, "vm 1", "vm1.raw"), "it is damaged");
    fs::remove_file(claim).expect("it goes");

    // A daemon holds its lock.
    let held = open(&left.site.path("w.log"), &mut ()).expect("it opens");
    refused(&rescue(&left, "vm 1", "vm1.raw"), "in use by process");
    refused(&left.site.run(&["cache", "check", "w.log"]), "in use by process");
    refused(&left.site.run(&["cache", "dump", "w.log"]), "in use by process");
    drop(held);
    assert!(log_bytes(&left) == before, "nothing was written");
    let blank = fs::read(left.site.path("vm1.raw")).expect("the disk");
    assert!(blank.iter().all(|byte| *byte == 0), "nothing was written");
}

#[test]
fn damage_is_told_and_nothing_of_it_is_written() {
    let left = left();
    claim_it(&left, false);
    let file = FileOptions::new().read(true).write(true).open(left.site.path("w.log"));
    let file = file.expect("it is there");
    let flip = |at: u64| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("it is read");
        file.write_all_at(&[byte[0] ^ 0xA5], at).expect("it is written");
    };
    // One copy of the superblock: told, and of no consequence.
    flip(20);
    let report = check(&left, 1);
    assert_eq!(report["findings"][0], "superblock copy 0: not a write log", "{report}");
    assert_eq!(report["next_start"]["kind"], "recover");
    flip(20);

    // Data of a chunk: only those who read them find it.
    flip(SEGMENTS + 4096 + 100);
    let ended = left.site.run(&["cache", "check", "w.log"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let report = check(&left, 1);
    assert!(
        report["findings"][0].as_str().is_some_and(|text| text.contains("chunk 1")),
        "{report}"
    );
    refused(&rescue(&left, "vm 1", "vm1.raw"), "volume \"vm 1\" is damaged");
    let blank = fs::read(left.site.path("vm1.raw")).expect("the disk");
    assert!(blank.iter().all(|byte| *byte == 0), "not a part of an epoch");
    flip(SEGMENTS + 4096 + 100);

    // A header in front of durable ones.
    flip(SEGMENTS + 100);
    let before = log_bytes(&left);
    let report = check(&left, 1);
    assert_eq!(report["volumes"][0]["damaged"], true, "{report}");
    assert_eq!(report["volumes"][1]["damaged"], false, "{report}");
    let text = report["next_start"]["text"].as_str().expect("a text");
    assert!(text.contains("\"vm 1\" is not served"), "{text}");
    refused(&rescue(&left, "vm 1", "vm1.raw"), "chunk 1, which was durable");
    let dumped = left.site.ask(&["cache", "dump", "w.log", "--what", "chunks"]);
    assert!(dumped.contains("status=damaged"), "{dumped}");
    assert!(log_bytes(&left) == before, "nothing was written");
    // The other volume is not concerned.
    let args = ["cache", "writeback", "w.log", "--volume", "vm2", "--to", "vm2.raw", "--copy"];
    left.site.ask(&args);
    flip(SEGMENTS + 100);

    // Both records of a place, then a file that was cut short: what it holds is not known.
    flip(2 * 4096 + 40);
    flip(3 * 4096 + 40);
    let report = check(&left, 1);
    assert_eq!(report["next_start"]["kind"], "refuse", "{report}");
    refused(&rescue(&left, "vm2", "vm2.raw"), "both records of place 0");
    flip(2 * 4096 + 40);
    flip(3 * 4096 + 40);
    file.set_len(LOG_BYTES / 2).expect("it is cut short");
    assert_eq!(check(&left, 1)["next_start"]["kind"], "refuse");
    refused(&rescue(&left, "vm 1", "vm1.raw"), "but the write log on it");
}

#[test]
fn what_a_killed_daemon_has_acknowledged_is_rescued_and_served_again() {
    let site = Site::new();
    site.disk("vm1.raw", VOLUME_BYTES);
    let config = "eviction = \"clock\"\nwrite_log = \"w.log\"\nwrite_log_size = \"16MiB\"\n\
                  [[volume]]\nname = \"vm1\"\nbackend = \"file:vm1.raw\"\nnbd = \"unix:s\"\n\
                  mode = \"write-back\"\nexclusive = true\n";
    site.config(config);
    let daemon = site.serve();
    let mut client = Client::attach(&site.path("s"), "vm1").expect("it is let in");
    let mut image = pattern(0, VOLUME_BYTES);
    // Cached as it was, to be believed after a crash: nobody else writes an exclusive volume.
    for block in (0..400).chain(0..400) {
        client.read(block * 4096, 4096).expect("it reads");
    }
    std::thread::sleep(Duration::from_millis(3500));
    for block in (0..400).step_by(3) {
        client.write(block * 4096, &[block as u8; 4096]).expect("it is acknowledged");
        image[block as usize * 4096..][..4096].fill(block as u8);
    }
    daemon.crash();
    drop(client);
    assert!(fs::read(site.path("vm1.raw")).expect("the disk") != image, "no flush has covered it");
    assert!(site.path("vm1.raw.cinnabar-claim").exists());
    // First on a copy, as a careful operator does: the disk itself lacks nothing because of that.
    fs::copy(site.path("vm1.raw"), site.path("copy.raw")).expect("it is copied");
    let args = ["cache", "writeback", "w.log", "--volume", "vm1", "--to", "copy.raw", "--copy"];
    site.ask(&args);
    assert!(fs::read(site.path("copy.raw")).expect("the copy") == image);
    let args = ["cache", "writeback", "w.log", "--volume", "vm1", "--to", "file:vm1.raw"];
    let told = site.ask(&args);
    assert!(told.contains("it has everything now") && told.contains("released"), "{told}");
    assert!(fs::read(site.path("vm1.raw")).expect("the disk") == image);

    // The next start has nothing to be in doubt of, and serves nothing old.
    let daemon = site.serve();
    let mut client = Client::attach(&site.path("s"), "vm1").expect("it is let in");
    for (block, bytes) in image.chunks(4096).enumerate() {
        let read = client.read(block as u64 * 4096, 4096).expect("it reads");
        assert!(read == bytes, "block {block}");
    }
    let claim = fs::read_to_string(site.path("vm1.raw.cinnabar-claim")).expect("a new one");
    assert!(!claim.contains("rescued"), "{claim}");
    client.write(0, &[9; 4096]).expect("it is acknowledged");
    drop(client);
    daemon.stop();
    assert_eq!(fs::read(site.path("vm1.raw")).expect("the disk")[..4096], [9; 4096]);
}

/// A log without a mirror counts alone; what is no half of it is neither used nor touched.
#[test]
fn halves_are_told_apart_from_what_is_none() {
    let left = left();
    let before = log_bytes(&left);
    let ended = left.site.run(&["cache", "mirror", "w.log"]);
    assert!(ended.code == Some(2) && ended.stderr.contains("--alone"), "{ended:?}");
    refused(&left.site.run(&["cache", "mirror", "none.log", "--alone"]), "no such file");
    let disk = fs::read(left.site.path("vm1.raw")).expect("the disk");
    fs::write(left.site.path("foreign"), vec![7; 16 << 20]).expect("it is written");
    refused(&left.site.run(&["cache", "mirror", "foreign", "--alone"]), "not a write log");
    assert!(log_bytes(&left) == before, "nothing was written");

    for other in ["none.log", "foreign"] {
        let args = ["cache", "check", "w.log", "--mirror", other, "--all", "--json"];
        let report: Value = serde_json::from_str(&left.site.ask(&args)).expect("it is JSON");
        let halves = &report["halves"];
        assert_eq!(halves[0]["next_start"], "member", "{report}");
        assert_eq!(halves[1]["next_start"], "not_used", "{report}");
        assert!(halves[1]["reason"].as_str().is_some_and(|why| !why.is_empty()), "{report}");
        assert_eq!(report["next_start"]["kind"], "recover", "{report}");
        refused(&left.site.run(&["cache", "check", other, "--mirror", "none.log"]), other);
    }
    assert!(log_bytes(&left) == before, "nothing was written");

    let said = left.site.ask(&["cache", "mirror", "w.log", "--alone"]);
    assert!(said.contains("counts alone already"), "{said}");
    let marks = left.site.ask(&["cache", "dump", "w.log", "--what", "superblock"]);
    assert!(marks.contains("mark page=1 status=good state=alone"), "{marks}");
    claim_it(&left, false);
    let args = ["cache", "writeback", "w.log", "--mirror", "foreign", "--volume", "vm 1"];
    let ended = left.site.run(&[&args[..], &["--to", "file:vm1.raw"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("a half of the write log was not used"), "{ended:?}");
    let now = fs::read(left.site.path("vm1.raw")).expect("the disk");
    assert!(now == left.image && now != disk);
    assert!(fs::read(left.site.path("foreign")).expect("it is there") == vec![7; 16 << 20]);
}
