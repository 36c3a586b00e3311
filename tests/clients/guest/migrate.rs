//! A guest that is migrated from one QEMU to another while it uses disks over vhost-user.
//!
//! A writable volume has one front-end at a time, so the guest goes through a file: the source ends,
//! then the destination connects to the same sockets. It is a live migration all the same: the guest
//! runs while its memory is copied, and what the daemon writes to pages that were copied already
//! reaches the destination only by the log of dirty pages.

use super::disk::over_vhost_user;
use super::machine::{Guest, Plan, wait_for};
use super::pound::Pounding;
use anyhow::{Context, Result, ensure};
use e2e::{Config, MIB, Site, Volume, output};
use serde_json::{Value, json};
use std::process::Command;

/// The disk under constant random writes and reads.
pub(super) const POUND: &str = "pound";
/// The one that fills the guest's page cache.
pub(super) const BOOK: &str = "book";
pub(super) const BOOK_BYTES: u64 = 48 * MIB;
const CACHE: u64 = 64 * MIB;
const MIGRATIONS: u64 = 2;
/// Slow enough that the guest does a lot meanwhile, in bytes a second; and fast enough to end.
const SLOW: u64 = 24 << 20;
const FAST: u64 = 4 << 30;
/// Passes over the memory before the last one: the guest's pages were all sent once by then.
const PASSES: u64 = 3;

/// Migrates it, twice, and looks at its memory and its disks.
pub(super) fn vhost_user() -> Result<()> {
    let site = Site::new()?;
    site.sparse(&format!("{POUND}.raw"), 32 * MIB)?;
    let book = site.filled(&format!("{BOOK}.raw"), BOOK_BYTES, 1)?;
    let sum = output(Command::new("md5sum").arg(book))?;
    let sum = sum.split(' ').next().context("no checksum")?;
    let disks = [POUND, BOOK].map(|name| over_vhost_user(&site, name));
    let mut config = Config::new(CACHE);
    for (disk, name) in disks.iter().zip([POUND, BOOK]) {
        config = config.volume(disk.configure(Volume::new(name, &format!("file:{name}.raw"))));
    }
    let daemon = site.serve(&config)?;
    let plan = Plan::new("guest", &disks);
    let mut guest = plan.boot(&site)?;
    // A disk that nobody has open is not cached.
    guest.run(&format!("sleep 100000 <$(disk {BOOK}) >/dev/null 2>&1 &"))?;
    let mut pound = Pounding::new(POUND, 1);
    pound.start(&mut guest)?;
    for round in 0..MIGRATIONS {
        pound.next_round(&guest)?;
        let stream = site.path(&format!("stream{round}"));
        let Left { passes, .. } = leave(&mut guest, &format!("exec:cat > {}", stream.display()))?;
        pound.look(&guest);
        guest.crash()?;
        guest = plan.arrive(&site, &stream).with_context(|| format!("arrival {round}"))?;
        check_memory(&mut guest, sum)?;
        println!("migrated after {passes} passes over its memory");
        pound.next_round(&guest).context("after the migration")?;
        guest.check_console()?;
    }
    pound.stop(&mut guest)?;
    pound.check(&mut guest)?;
    guest.run("echo 3 >/proc/sys/vm/drop_caches")?;
    ensure!(guest.run(&format!("md5sum <$(disk {BOOK})"))?.starts_with(sum), "the disk differs");
    guest.check_console()?;
    guest.power_off()?;
    let status = daemon.status()?;
    for name in [POUND, BOOK] {
        ensure!(status.count(name, "backend_errors")? == 0, "{}", status.0);
        ensure!(status.count(name, "refused")? == 0, "{}", status.0);
    }
    daemon.stop()?;
    pound.check_file(&site.path(&format!("{POUND}.raw")))
}

/// How a migration went.
pub(super) struct Left {
    /// Passes of QEMU over the memory.
    pub(super) passes: u64,
    /// How long the guest stood still, as QEMU says, in milliseconds.
    pub(super) still_ms: u64,
}

/// Migrates it to there, reading the book into its memory again and again.
pub(super) fn leave(guest: &mut Guest, uri: &str) -> Result<Left> {
    let speed = |guest: &mut Guest, bytes: u64| {
        let arguments = json!({ "max-bandwidth": bytes, "downtime-limit": 500 });
        guest.qmp("migrate-set-parameters", &arguments)
    };
    speed(guest, SLOW)?;
    guest.qmp("migrate", &json!({ "uri": uri }))?;
    let passes = |state: &Value| state["ram"]["dirty-sync-count"].as_u64().unwrap_or(0);
    wait_for("passes over its memory", || {
        read_book(guest)?;
        let state = state(guest)?;
        ensure!(state["status"] != "completed", "it ended too early to show anything: {state}");
        Ok(passes(&state) >= PASSES)
    })?;
    read_book(guest)?;
    guest.check_work()?;
    speed(guest, FAST)?;
    let mut last = Value::Null;
    wait_for("the end of the migration", || {
        last = state(guest)?;
        Ok(last["status"] == "completed")
    })?;
    let still_ms = last["downtime"].as_u64().context("no downtime")?;
    Ok(Left { passes: passes(&last), still_ms })
}

/// What QEMU says of the migration, which must not have failed.
fn state(guest: &mut Guest) -> Result<Value> {
    let state = guest.qmp("query-migrate", &json!({}))?;
    let blocked = state["blocked-reasons"].as_array().is_some_and(|reasons| !reasons.is_empty());
    ensure!(!blocked && state["status"] != "failed", "{state}");
    Ok(state)
}

/// Reads the disk into the guest's page cache.
fn read_book(guest: &mut Guest) -> Result<()> {
    let line = "echo 3 >/proc/sys/vm/drop_caches; dd if=$(disk book) of=/dev/null bs=256k 2>&1";
    guest.run(line).map(drop)
}

/// Reads the book, whose pages must have arrived with the guest.
pub(super) fn check_memory(guest: &mut Guest, sum: &str) -> Result<()> {
    let before = reads(guest)?;
    let seen = guest.run(&format!("md5sum <$(disk {BOOK})"))?;
    ensure!(seen.starts_with(sum), "arrived as {seen}, not {sum}");
    let more = reads(guest)? - before;
    // Little is read from the disk: the checksum is of memory that was migrated.
    ensure!(more < 100, "{more} reads: the page cache did not arrive");
    Ok(())
}

/// Reads of that disk so far, as the guest counts them.
fn reads(guest: &mut Guest) -> Result<u64> {
    let text = guest.run("disk=$(disk book); cat /sys/block/${disk##*/}/stat")?;
    let count = text.split_whitespace().next().context("no statistics")?;
    Ok(count.parse()?)
}
