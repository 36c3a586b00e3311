//! `cinnabar cache check|dump|repair` on devices with several shards that a real daemon left.

use super::offline::{VOLUME, damage, hinted, use_it};
use super::rig::{MIB, Site};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

const SHARDS: usize = 3;

/// A folder with a cache of three shards of 24 MiB that a daemon has used and left. `crash`: killed.
pub(crate) fn sharded_site(crash: bool) -> Site {
    let site = Site::new();
    site.disk("vm1.raw", 12 * MIB);
    let cache = "[cache]\ndevice = \"cache.img\"\nsize = \"72MiB\"\nshards = 3\nthreads = 2\n";
    site.write("c.toml", &format!("{cache}lock_wait_s = 0\n{VOLUME}"));
    // Three stripes of 4 MiB: one for each shard.
    use_it(&site, (0..3 * 1024).filter(|block| block % 1024 < 170), crash);
    site
}

/// The reports of the shards, and the sum.
fn check(site: &Site, code: i32) -> (Vec<Value>, Value) {
    let ended = site.run(&["cache", "check", "cache.img", "--all", "--json"]);
    assert_eq!(ended.code, Some(code), "{ended:?}");
    if code != 0 {
        hinted(&ended);
    }
    let mut lines = values(&ended.stdout);
    let sum = lines.pop().expect("a sum");
    assert_eq!((lines.len(), &sum["shards"]), (SHARDS, &SHARDS.into()), "{sum}");
    (lines, sum)
}

fn values(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
}

fn dumped(site: &Site, args: &[&str]) -> Vec<Value> {
    values(&site.ask(&[&["cache", "dump", "cache.img", "--json"], args].concat()))
}

/// First page of a shard's region, and the superblock that counts in it.
fn region(site: &Site, shard: u64) -> (u64, Value) {
    let lines = dumped(site, &["--what", "superblock", "--shard", &shard.to_string()]);
    let counting = lines.into_iter().find(|line| line["counts"] == true).expect("one counts");
    assert_eq!((&counting["shard"], &counting["shards"]), (&shard.into(), &SHARDS.into()));
    (shard * counting["device_blocks"].as_u64().expect("a count"), counting)
}

fn write(site: &Site, page: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(site.path("cache.img")).expect("it is there");
    file.write_all_at(bytes, page * 4096).expect("it is writable");
}

fn read(site: &Site, page: u64, len: usize) -> Vec<u8> {
    let file = OpenOptions::new().read(true).open(site.path("cache.img")).expect("it is there");
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, page * 4096).expect("it is readable");
    bytes
}

#[test]
fn each_shard_is_whole_and_the_sum_says_what_starts() {
    let site = sharded_site(false);
    let (shards, sum) = check(&site, 0);
    for (number, shard) in shards.iter().enumerate() {
        assert_eq!((&shard["shard"], &shard["damaged"]), (&number.into(), &false.into()));
        assert_eq!(
            (&shard["next_start"]["kind"], &shard["state"]["shards"]),
            (&"warm".into(), &3.into())
        );
        assert_eq!(shard["volumes"][0]["name"], "vm 1");
        let blocks = shard["volumes"][0]["checkpoint_blocks"].as_u64().expect("a count");
        assert!(blocks > 100, "it has the blocks of its stripe: {shard}");
        assert_eq!(shard["log"]["wrong_blocks"], 0, "{shard}");
    }
    assert_eq!((&sum["damaged"], &sum["next_start"]["kind"]), (&false.into(), &"warm".into()));
    let blocks = sum["checkpoint_blocks"].as_u64().expect("a count");
    let of = |shard: &Value| shard["volumes"][0]["checkpoint_blocks"].as_u64().expect("a count");
    assert_eq!(blocks, shards.iter().map(of).sum::<u64>());
    assert_eq!(
        (&sum["volumes"][0]["shards"], &sum["volumes"][0]["size_bytes"]),
        (&3.into(), &(12 * MIB).into())
    );
    let text = site.ask(&["cache", "check", "cache.img"]);
    assert!(text.contains("shards    3\n") && text.contains("\nall "), "{text}");
    assert!(text.contains("next start: all 3 shards: the last run stopped clean"), "{text}");
}

#[test]
fn killed_shards_are_recovered() {
    let site = sharded_site(true);
    let (shards, sum) = check(&site, 0);
    for report in shards.iter().chain([&sum]) {
        assert_eq!(report["next_start"]["kind"], "recover", "{report}");
    }
    assert!(sum["journal_records"].as_u64().is_some_and(|records| records > 2), "{sum}");
}

#[test]
fn a_flipped_bit_in_one_region_is_told_with_its_shard() {
    let site = sharded_site(false);
    let checkpoint = check(&site, 0).0[1]["state"]["checkpoint"].as_u64().expect("a number");
    let (first, superblock) = region(&site, 1);
    let slot =
        superblock[format!("checkpoint_{}_block", checkpoint % 2)].as_u64().expect("a block");
    let page = first + slot + 2;
    let byte = read(&site, page, 2001)[2000] ^ 1;
    let file = OpenOptions::new().write(true).open(site.path("cache.img")).expect("it is there");
    file.write_all_at(&[byte], page * 4096 + 2000).expect("it is writable");
    let (shards, sum) = check(&site, 1);
    let damaged: Vec<_> = shards.iter().map(|shard| shard["damaged"] == true).collect();
    assert_eq!(damaged, [false, true, false]);
    let finding = sum["findings"][0].as_str().expect("a line");
    assert!(finding.starts_with("shard 1: checkpoint slot"), "{finding}");
    assert_eq!(sum["next_start"]["kind"], "warm");
    let ended = site.run(&["cache", "check", "cache.img"]);
    assert!(ended.stdout.contains(&format!("damaged: {finding}")), "{ended:?}");
}

#[test]
fn a_region_without_a_superblock_does_not_hide_the_others() {
    let site = sharded_site(false);
    let (third, _) = region(&site, 2);
    write(&site, third, &[0; 8192]);
    let (shards, sum) = check(&site, 1);
    let kinds: Vec<_> = shards.iter().map(|s| s["next_start"]["kind"].clone()).collect();
    assert_eq!(kinds, ["warm", "warm", "refuse"]);
    assert_eq!(sum["next_start"]["kind"], "refuse");
    let told = format!(
        "shard 2: there is no superblock where its region begins, at byte {}",
        third * 4096
    );
    assert_eq!(sum["findings"], serde_json::json!([told]));
    let ended = site.run(&["cache", "check", "cache.img"]);
    assert!(ended.stderr.contains(&told) && ended.stderr.contains("cache replace"), "{ended:?}");

    let ended = site.run(&["cache", "dump", "cache.img", "--what", "volumes", "--json"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    hinted(&ended);
    assert!(ended.stderr.contains(&told), "{ended:?}");
    let volumes: BTreeSet<_> = values(&ended.stdout)
        .into_iter()
        .filter(|line| line["what"] == "volume")
        .map(|line| line["shard"].as_u64().expect("a number"))
        .collect();
    assert_eq!(volumes, BTreeSet::from([0, 1]));

    // What can be repaired is.
    let (_, newest) = region(&site, 1);
    let (second, page) = (region(&site, 1).0, newest["page"].as_u64().expect("a page"));
    damage(&site, second + 1 - page, 100, 8);
    let ended = site.run(&["cache", "repair", "cache.img", "--json"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    hinted(&ended);
    let lines = values(&ended.stdout);
    assert_eq!(lines[1]["repair"], serde_json::json!({ "copy": { "page": 1 - page } }));
    assert!(lines[2]["repair"].is_null() && lines[2]["error"].is_string(), "{ended:?}");
    assert_eq!((&lines[3]["repaired"], &lines[3]["failed"]), (&1.into(), &1.into()));
    assert_eq!(check(&site, 1).0[1]["damaged"], false);

    // As it was told.
    let daemon = site.serve();
    assert_eq!(site.status()["cache"]["health"]["state"], "pass_through");
    site.ask(&["cache", "replace", "cache.img", "--format"]);
    daemon.stop();
    check(&site, 0);
}

#[test]
fn superblocks_that_are_damaged_or_stray_are_told_and_repaired() {
    let site = sharded_site(false);
    // Both copies of the first: the others say where the regions are.
    let first = read(&site, 0, 8192);
    damage(&site, 0, 100, 8);
    damage(&site, 1, 100, 8);
    let (shards, sum) = check(&site, 1);
    assert_eq!(
        sum["findings"],
        serde_json::json!(["shard 0: both copies of its superblock are damaged"])
    );
    assert_eq!(shards[2]["next_start"]["kind"], "warm");
    let ended = site.run(&["cache", "repair", "cache.img"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    write(&site, 0, &first);
    check(&site, 0);

    // The second one's in the third region.
    let (second, _) = region(&site, 1);
    let (third, _) = region(&site, 2);
    let good = read(&site, third, 8192);
    write(&site, third, &read(&site, second, 8192));
    let (_, sum) = check(&site, 1);
    let told = "shard 2: its superblock is another device's, or another shard's";
    assert_eq!(sum["findings"], serde_json::json!([told]));
    let lines = site.run(&["cache", "dump", "cache.img", "--what", "superblock", "--shard", "2"]);
    assert!(lines.stdout.contains("status=stray of_shard=1"), "{lines:?}");

    // And in the first region, where the others are looked up.
    write(&site, third, &good);
    write(&site, 0, &read(&site, second, 8192));
    let (shards, sum) = check(&site, 1);
    let told = "shard 0: its superblock is another device's, or another shard's";
    assert_eq!(
        (&sum["findings"], &shards[1]["damaged"]),
        (&serde_json::json!([told]), &false.into())
    );
    write(&site, 0, &first);

    // In one copy only: the other one is as good as ever.
    let newest = region(&site, 2).1["page"].as_u64().expect("a page");
    write(&site, third + newest, &read(&site, second + newest, 4096));
    check(&site, 1);
    let told = site.ask(&["cache", "repair", "cache.img"]);
    assert!(told.contains(&format!("shard 2: rewrote copy {newest} of the superblock")), "{told}");
    assert!(told.contains("1 of 3 shards repaired, 0 can't be"), "{told}");
    check(&site, 0);
}

#[test]
fn a_device_of_shards_is_made_cold_as_a_whole() {
    let site = sharded_site(false);
    site.ask(&["cache", "repair", "cache.img", "--cold", "--yes"]);
    let (shards, sum) = check(&site, 0);
    for report in shards.iter().chain([&sum]) {
        assert_eq!(report["next_start"]["kind"], "cold", "{report}");
    }
    let daemon = site.serve();
    assert_eq!(site.status()["volumes"][0]["warmth"]["state"], "new");
    daemon.stop();
}

#[test]
fn one_shard_is_dumped_if_asked_for() {
    let site = sharded_site(false);
    let all = dumped(&site, &[]);
    let of = |shard: u64| all.iter().filter(move |line| line["shard"] == shard);
    assert_eq!((0..3).map(|shard| of(shard).count()).sum::<usize>(), all.len());
    let second = dumped(&site, &["--shard", "1"]);
    assert!(second.iter().eq(of(1)) && second.iter().any(|line| line["what"] == "chunk"));
    let ended = site.run(&["cache", "dump", "cache.img", "--shard", "3"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("no shard 3, the device has 3"), "{ended:?}");
    hinted(&ended);
}
