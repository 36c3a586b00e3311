//! `cinnabar cache check|dump|repair` on devices that a real daemon left: stopped, killed, damaged.

use super::nbd::Client;
use super::rig::{Ended, MIB, PATIENCE, Site, pattern};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;

/// A folder with a cache of 64 MiB that a daemon has used and left. `crash`: killed.
pub(crate) fn used_site(crash: bool) -> Site {
    let site = Site::new();
    site.disk("vm1.raw", 8 * MIB);
    site.config(VOLUME);
    use_it(&site, 0..512, crash);
    site
}

/// The disk of these tests.
pub(crate) const VOLUME: &str =
    "[[volume]]\nname = \"vm 1\"\nbackend = \"file:vm1.raw\"\nnbd = \"unix:vm1.sock\"\n";

/// A daemon in whose cache these blocks are, and are written.
pub(crate) fn use_it(site: &Site, blocks: impl Iterator<Item = u64> + Clone, crash: bool) {
    let daemon = site.serve();
    let mut client = Client::attach(&site.path("vm1.sock"), "vm 1").expect("it is let in");
    for _ in 0..3 {
        for block in blocks.clone() {
            client.read(block * PAGE, 4096).expect("it reads");
        }
    }
    // What is written now hits what is on flash, and so leaves invalidation records.
    for block in blocks.step_by(16) {
        client.write(block * PAGE, &[7; 4096]).expect("it writes");
    }
    client.flush().expect("it flushes");
    drop(client);
    if crash {
        // A chunk is written when it is a second old, and the heartbeat is as often.
        std::thread::sleep(Duration::from_millis(2500));
        daemon.crash();
        // Its lock goes when its last write has landed.
        let start = Instant::now();
        while site.run(&["cache", "check", "cache.img"]).code == Some(2) {
            assert!(start.elapsed() < PATIENCE, "the dead daemon holds its cache");
        }
    } else {
        daemon.stop();
    }
}

fn check(site: &Site, code: i32) -> Value {
    let ended = site.run(&["cache", "check", "cache.img", "--all", "--json"]);
    assert_eq!(ended.code, Some(code), "{ended:?}");
    serde_json::from_str(&ended.stdout).expect("it is JSON")
}

/// Turns the bytes of a page round, from byte `from` of it on.
pub(crate) fn damage(site: &Site, page: u64, from: u64, len: usize) {
    let file = OpenOptions::new().read(true).write(true).open(site.path("cache.img"));
    let file = file.expect("it is there");
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, page * PAGE + from).expect("it is readable");
    for byte in &mut bytes {
        *byte ^= 0xA5;
    }
    file.write_all_at(&bytes, page * PAGE + from).expect("it is writable");
}

/// Where something lies, by a dump of the superblock.
fn place(site: &Site, name: &str) -> u64 {
    let text = site.ask(&["cache", "dump", "cache.img", "--what", "superblock", "--json"]);
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("it is JSON"));
    let counts = |line: &Value| line["counts"] == true;
    lines.into_iter().find(counts).expect("one of them counts")[name].as_u64().expect("a block")
}

pub(crate) fn hinted(ended: &Ended) {
    let last = ended.stderr.trim_end().lines().last().unwrap_or_default();
    assert!(last.starts_with("hint: "), "{ended:?}");
}

#[test]
fn a_stopped_device_is_whole_and_starts_warm() {
    let site = used_site(false);
    let report = check(&site, 0);
    assert_eq!(
        (&report["damaged"], &report["next_start"]["kind"]),
        (&false.into(), &"warm".into())
    );
    assert_eq!(report["state"]["state"], "clean");
    let volume = &report["volumes"][0];
    assert_eq!((&volume["name"], &volume["size_bytes"]), (&"vm 1".into(), &(8 * MIB).into()));
    assert_eq!(volume["written"], false);
    let kept = volume["checkpoint_blocks"].as_u64().expect("a count");
    assert!(kept > 400, "{report}");
    assert!(volume["proof"].as_str().is_some_and(|proof| proof.len() == 128), "{volume}");
    assert_eq!(report["log"]["wrong_blocks"], 0);
    assert!(report["log"]["blocks"].as_u64().is_some_and(|blocks| blocks >= kept), "{report}");
    let text = site.ask(&["cache", "check", "cache.img"]);
    assert!(text.contains("next start: the last run stopped clean"), "{text}");

    // It said what then happens.
    let daemon = site.serve();
    let warmth = site.status()["volumes"][0]["warmth"].clone();
    let state = warmth["state"].as_str();
    assert!(state == Some("kept") || state == Some("loading"), "{warmth}");
    daemon.stop();
}

#[test]
fn a_killed_device_is_whole_and_is_recovered() {
    let site = used_site(true);
    let report = check(&site, 0);
    assert_eq!(report["next_start"]["kind"], "recover", "{report}");
    assert_eq!(report["state"]["state"], "in_use");
    assert_eq!(report["journal"]["complete"], true);
    let records = &report["journal"]["records"];
    assert!(records["invalidation"].as_u64().is_some_and(|count| count >= 1), "{records}");
    assert!(
        records["opened"].as_u64().is_some() || records["volume"].as_u64().is_some(),
        "{records}"
    );
    assert_eq!(report["volumes"][0]["name"], "vm 1");
    assert_eq!(report["log"]["wrong_blocks"], 0, "{report}");
}

#[test]
fn a_device_in_use_is_left_alone() {
    let site = Site::new();
    site.config("");
    let daemon = site.serve();
    for args in [&["check"][..], &["dump"], &["repair"], &["repair", "--cold", "--yes"]] {
        let args = [&["cache"], args, &["cache.img"]].concat();
        let ended = site.run(&args);
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
        assert!(ended.stderr.contains("in use by process"), "{args:?}: {ended:?}");
        hinted(&ended);
    }
    daemon.stop();
}

#[test]
fn a_damaged_superblock_is_repaired_and_then_as_it_was() {
    let site = used_site(false);
    let newest = site.ask(&["cache", "dump", "cache.img", "--what", "superblock", "--json"]);
    let newest = newest.lines().position(|line| line.contains("\"counts\":true")).expect("one");
    // The older copy: nothing is lost but the second leg.
    damage(&site, 1 - newest as u64, 100, 8);
    let report = check(&site, 1);
    assert_eq!(report["superblocks"][1 - newest]["status"], "damaged");
    assert_eq!(report["next_start"]["kind"], "warm");
    let told = site.ask(&["cache", "repair", "cache.img"]);
    assert!(told.contains(&format!("rewrote copy {} of the superblock", 1 - newest)), "{told}");
    let report = check(&site, 0);
    assert_eq!(report["next_start"]["kind"], "warm");
    assert!(site.ask(&["cache", "repair", "cache.img"]).contains("nothing to repair"));
    // Both: no start takes it, and there is nothing to repair it from.
    damage(&site, 0, 100, 8);
    damage(&site, 1, 100, 8);
    assert_eq!(check(&site, 1)["next_start"]["kind"], "refuse");
    let ended = site.run(&["cache", "repair", "cache.img"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("both copies"), "{ended:?}");
    hinted(&ended);
    let daemon = site.serve();
    assert_eq!(site.status()["cache"]["health"]["state"], "pass_through", "as it was told");
    daemon.stop();
}

/// The older copy may be true no more.
#[test]
fn a_newer_copy_of_another_version_is_not_passed_over() {
    let site = used_site(false);
    let newest = site.ask(&["cache", "dump", "cache.img", "--what", "superblock", "--json"]);
    let newest = newest.lines().position(|line| line.contains("\"counts\":true")).expect("one");
    let file = OpenOptions::new().read(true).write(true).open(site.path("cache.img"));
    let file = file.expect("it is there");
    let mut page = [0; PAGE as usize];
    file.read_exact_at(&mut page, newest as u64 * PAGE).expect("it is readable");
    page[12] = 9;
    let crc = crc32c::crc32c(&page[4..]);
    page[..4].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&page, newest as u64 * PAGE).expect("it is writable");
    for args in [&["check"][..], &["repair"], &["repair", "--cold", "--yes"]] {
        let ended = site.run(&[&["cache"], args, &["cache.img"]].concat());
        assert_eq!(ended.code, Some(2), "{args:?}: {ended:?}");
        assert!(ended.stderr.contains("format version 9 is not supported"), "{args:?}: {ended:?}");
    }
}

#[test]
fn a_device_made_cold_starts_empty_and_asks_before() {
    let site = used_site(false);
    let before = fs::read(site.path("cache.img")).expect("the device");
    let ended = site.run(&["cache", "repair", "cache.img", "--cold"]);
    assert_eq!(ended.code, Some(2), "nobody is there to be asked: {ended:?}");
    hinted(&ended);
    assert!(fs::read(site.path("cache.img")).expect("the device") == before, "nothing was written");
    let told = site.ask(&["cache", "repair", "cache.img", "--cold", "--yes", "--json"]);
    assert!(told.contains("\"cold\""), "{told}");
    assert_eq!(check(&site, 0)["next_start"]["kind"], "cold");
    let daemon = site.serve();
    assert_eq!(site.status()["volumes"][0]["warmth"]["state"], "new");
    let mut client = Client::attach(&site.path("vm1.sock"), "vm 1").expect("it is let in");
    assert_eq!(client.read(PAGE, 4096).expect("it reads"), pattern(PAGE, 4096));
    assert_eq!(client.read(0, 4096).expect("it reads"), [7; 4096]);
    drop(client);
    daemon.stop();
}

#[test]
fn damage_is_told_with_what_it_costs() {
    // A page of the checkpoint's descriptors: a part of the index.
    let site = used_site(false);
    let checkpoint = check(&site, 0)["state"]["checkpoint"].as_u64().expect("a number");
    let slot = place(&site, &format!("checkpoint_{}_block", checkpoint % 2));
    damage(&site, slot + 5, 2000, 1);
    let report = check(&site, 1);
    let bad: Vec<_> = [0, 1].map(|slot| report["checkpoints"][slot]["pages_bad"].clone()).into();
    assert!(bad.contains(&1.into()), "{report}");
    assert_eq!(report["next_start"]["kind"], "warm");

    // Data that nobody has read since.
    let site = used_site(false);
    let log = place(&site, "log_block");
    damage(&site, log + 7, 17, 1);
    let report = check(&site, 1);
    assert_eq!(report["log"]["wrong_blocks"], 1, "{report}");

    // A journal that has lost what was durable.
    let site = used_site(true);
    let first = check(&site, 0)["journal"]["first_page"].as_u64().expect("a page");
    let (ring, pages) = (place(&site, "journal_block"), place(&site, "journal_blocks"));
    damage(&site, ring + first % pages, 10, 1);
    let report = check(&site, 1);
    assert_eq!(report["next_start"]["kind"], "drop", "{report}");
    assert_eq!(report["volumes"], Value::Array(Vec::new()), "nothing is believed");
    // It said what then happens, and nothing is stale.
    let daemon = site.serve();
    let status = site.status();
    assert_eq!(status["cache"]["loaded"]["start"], "damaged", "{status}");
    let mut client = Client::attach(&site.path("vm1.sock"), "vm 1").expect("it is let in");
    assert_eq!(client.read(0, 4096).expect("it reads"), [7; 4096]);
    drop(client);
    daemon.stop();
}

#[test]
fn a_dump_says_all_there_is_and_ends_early_if_nobody_reads() {
    let site = used_site(true);
    let text = site.ask(&["cache", "dump", "cache.img", "--json", "--entries"]);
    let mut kinds = std::collections::BTreeMap::<String, u64>::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect("each line is JSON");
        *kinds.entry(line["what"].as_str().expect("a word").to_owned()).or_default() += 1;
    }
    for what in ["superblock", "checkpoint", "journal", "record", "chunk", "entry"] {
        assert!(kinds.contains_key(what), "{what}: {kinds:?}");
    }
    assert!(kinds["entry"] > 200, "{kinds:?}");
    let words = site.ask(&["cache", "dump", "cache.img", "--what", "journal"]);
    assert!(words.contains("record") && words.contains("name=\"vm 1\""), "{words}");
    assert!(!words.contains("superblock"), "{words}");

    let mut command = site.command(&["cache", "dump", "cache.img", "--entries"]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it is our child").code(), Some(0), "as with | head");
}
