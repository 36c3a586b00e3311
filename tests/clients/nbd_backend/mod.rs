//! Volumes on NBD servers: real ones, killed and started again under load, and one that loses what
//! was not flushed.

pub(crate) mod loss;
pub(crate) mod real;

use crate::Case;
use anyhow::{Result, ensure};
use e2e::nbd::Client;
use e2e::tools::{FIO, NBDKIT, QEMU_NBD};
use e2e::{MIB, Site, Volume};

pub(crate) const CASES: [Case; 9] = [
    Case::new("nbd_backend_nbdkit", &[FIO, NBDKIT], real::nbdkit),
    Case::new("nbd_backend_nbdkit_over_tcp", &[FIO, NBDKIT], real::nbdkit_over_tcp),
    Case::new("nbd_backend_qemu_nbd_killed_under_fio", &[FIO, QEMU_NBD], real::killed_under_fio)
        .ci(),
    Case::new("nbd_backend_warm_only_if_exclusive", &[NBDKIT], real::warm_only_if_exclusive),
    Case::new("nbd_backend_mistakes", &[NBDKIT], real::mistakes),
    Case::new("nbd_backend_loses_what_was_not_flushed", &[], loss::unflushed).ci(),
    Case::new("nbd_backend_loses_with_threads", &[], loss::unflushed_with_threads),
    Case::new("nbd_backend_hangs", &[], loss::hangs).ci(),
    Case::new("nbd_backend_another_size", &[], loss::another_size),
];

const DISK: u64 = 16 * MIB;
const CACHE: u64 = 64 * MIB;

/// Reading a disk from end to end must not count as a scan that bypasses the cache.
fn volume(name: &str, backend: &str) -> Volume {
    Volume::new(name, backend).key("bypass_sequential = \"0\"").key("bypass_large = \"0\"")
}

fn client(site: &Site, name: &str) -> Result<Client> {
    Client::connect(&site.path(&format!("{name}.sock")), name)
}

/// Reads a whole volume and compares it.
fn read_all(site: &Site, name: &str, expected: &[u8]) -> Result<()> {
    let mut client = client(site, name)?;
    for (offset, expected) in (0..).step_by(MIB as usize).zip(expected.chunks(MIB as usize)) {
        let found = client.read(offset, expected.len())?;
        let wrong = found.chunks(512).zip(expected.chunks(512)).position(|(a, b)| a != b);
        ensure!(wrong.is_none(), "{name} differs, first in sector {wrong:?} behind byte {offset}");
    }
    Ok(())
}
