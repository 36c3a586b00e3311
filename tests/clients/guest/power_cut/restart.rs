//! What a flush covers when the daemon is killed between a write and it.

use super::super::disk::over_nbd;
use super::super::machine::wait_for;
use super::backend::{DISK, NEW_LOG, after, log, make_disk, start_server};
use super::setting::{Setting, VOLUME};
use anyhow::{Result, ensure};
use e2e::Site;
use e2e::disk_log::DiskLog;
use e2e::nbd::Client;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Where the test writes.
const AT: u64 = 4 * e2e::MIB;

/// A write is acknowledged in write-through and not flushed; the daemon dies and comes back in
/// write-back. The flush that the guest sends now covers the write: the write log does not have it, so
/// the back end must have been flushed.
pub(in super::super) fn flush_after_a_kill() -> Result<()> {
    let site = Site::new()?;
    make_disk(&site)?;
    let _server = start_server(&site, NEW_LOG)?;
    let setting = Setting {
        mode: "write-back".into(),
        // One whose back end does not lag.
        seed: 3,
        commits: 0,
        incidents: Vec::new(),
        flushes: true,
    };
    let config = setting.config(&over_nbd(&site, VOLUME));
    let daemon = site.serve(&config)?;
    daemon.command(&["volume", "set", VOLUME, "--mode", "write-through"])?;
    let socket = site.path(&format!("{VOLUME}.sock"));
    let mut client = Client::connect(&socket, VOLUME)?;
    wait_for("write-through", || Ok(daemon.status()?.volume(VOLUME)?["write_back"].is_null()))?;
    client.write(AT, &[7; 4096])?;
    daemon.crash()?;
    let mut found = [0; 4096];
    File::open(after(&site))?.read_exact_at(&mut found, AT)?;
    ensure!(found == [7; 4096], "it was acknowledged, and the back end does not have it");
    let _daemon = site.serve(&config)?;
    Client::connect(&socket, VOLUME)?.flush()?;
    // It counts entries that a flush covers.
    let log = DiskLog::open(&log(&site), DISK)?;
    let mut changes = log.entries().iter().filter_map(|entry| entry.change.as_ref());
    let is_durable = changes.any(|change| change.range.contains(&AT));
    ensure!(is_durable, "the flush was answered, and the back end was not flushed");
    Ok(())
}
