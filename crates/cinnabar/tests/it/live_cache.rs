//! What an operator does to the cache of a running daemon: `cache replace`, `cache abandon`,
//! `volume invalidate`. The client is served all the time.

use super::nbd::Client;
use super::rig::{Site, pattern};

fn attach(site: &Site) -> Client {
    Client::attach(&site.path("vm1.sock"), "vm1").expect("it is let in")
}

/// Reads the first MiB twice; whether the second time came from the cache.
fn warms_up(site: &Site, client: &mut Client) -> bool {
    let hits = || site.status()["volumes"][0]["read_hits"].as_u64().expect("a count");
    let before = hits();
    for _ in 0..2 {
        for block in 0..256 {
            let data = client.read(block * 4096, 4096).expect("it reads");
            assert_eq!(data, pattern(block * 4096, 4096), "block {block}");
        }
    }
    hits() - before >= 256
}

#[test]
fn a_cache_is_given_up_and_replaced_under_a_client() {
    let site = Site::with_vm1();
    let daemon = site.serve();
    let mut client = attach(&site);
    assert!(warms_up(&site, &mut client));
    let told = site.ask(&["cache", "abandon"]);
    assert!(told.starts_with("passing through: "), "{told}");
    assert_eq!(site.status()["cache"]["health"]["state"], "pass_through");
    assert!(!warms_up(&site, &mut client), "nothing is cached");
    assert!(site.ask(&["status"]).contains("given up"), "people see it, too");
    // Nobody uses the old one any more.
    assert_eq!(site.run(&["cache", "check", "cache.img"]).code, Some(0));

    let told = site.ask(&["cache", "replace", "new.img", "--size", "32MiB"]);
    assert!(told.contains("new.img"), "{told}");
    assert!(warms_up(&site, &mut client), "the new one caches");
    assert!(site.status()["cache"]["device"].as_str().is_some_and(|d| d.ends_with("new.img")));
    // And again, without giving it up first, by a device that holds something.
    let refused = site.run(&["cache", "replace", "vm1.raw"]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    let last = refused.stderr.trim_end().lines().last().unwrap_or_default();
    assert!(last.starts_with("hint: "), "{refused:?}");
    assert!(warms_up(&site, &mut client), "a failed command costs nothing");
    site.write("old.img", &"x".repeat(32 << 20));
    assert_ne!(site.run(&["cache", "replace", "old.img"]).code, Some(0), "it holds something");
    site.ask(&["cache", "replace", "old.img", "--format"]);
    assert!(warms_up(&site, &mut client));
    drop(client);
    daemon.stop();
}

#[test]
fn what_somebody_else_wrote_is_seen_after_an_invalidation() {
    let site = Site::with_vm1();
    let daemon = site.serve();
    let mut client = attach(&site);
    assert!(warms_up(&site, &mut client));
    let disk = site.path("vm1.raw");
    let bytes = std::fs::OpenOptions::new().write(true).open(&disk).expect("the disk");
    std::os::unix::fs::FileExt::write_all_at(&bytes, &[9; 8192], 0).expect("it is ours");
    site.ask(&["volume", "invalidate", "vm1", "--range", "0+4KiB"]);
    assert_eq!(client.read(0, 4096).expect("it reads"), [9; 4096]);
    // As `rbd diff` prints it; what it does not name stays.
    std::os::unix::fs::FileExt::write_all_at(&bytes, &[8; 4096], 0).expect("it is ours");
    std::os::unix::fs::FileExt::write_all_at(&bytes, &[8; 4096], 40_960).expect("it is ours");
    site.write("changed", "Offset Length Type\n0 4096 data\n");
    let told = site.ask(&["volume", "invalidate", "vm1", "--extents", "changed"]);
    assert!(told.contains("1 extents"), "{told}");
    assert_eq!(client.read(0, 4096).expect("it reads"), [8; 4096]);
    assert_ne!(client.read(40_960, 4096).expect("it reads"), [8; 4096], "it is still cached");
    site.write("beyond", "0 4096\n8388608 4096\n");
    let refused = site.run(&["volume", "invalidate", "vm1", "--extents", "beyond"]);
    assert!(refused.stderr.contains("1 of 2 extents were dropped"), "{refused:?}");
    site.ask(&["volume", "invalidate", "vm1"]);
    assert_eq!(client.read(4096, 4096).expect("it reads"), [9; 4096]);
    assert_eq!(client.read(40_960, 4096).expect("it reads"), [8; 4096]);
    let volume = site.status()["volumes"][0].clone();
    assert!(volume["invalidated_blocks"].as_u64().is_some_and(|blocks| blocks >= 250), "{volume}");
    for (args, code) in [
        (&["volume", "invalidate", "vm1", "--range", "8MiB+4KiB"][..], 2),
        (&["volume", "invalidate", "none"], 1),
        (&["volume", "invalidate", "vm1", "--extents", "vm1.raw"], 2),
        (&["volume", "invalidate", "vm1", "--extents", "none"], 2),
        (&["volume", "invalidate", "none", "--range", "0+4096"], 1),
    ] {
        let ended = site.run(args);
        assert_eq!(ended.code, Some(code), "{args:?}: {ended:?}");
        let last = ended.stderr.trim_end().lines().last().unwrap_or_default();
        assert!(last.starts_with("hint: "), "{args:?}: {ended:?}");
    }
    drop(client);
    daemon.stop();
}
