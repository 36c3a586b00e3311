//! A throw-away Ceph cluster to try things on.
//!
//! `cargo xtask ceph`; it ends with its standard input, or with Ctrl-C.

use crate::install;
use anyhow::Result;
use e2e::ceph::{self, Cluster};
use std::time::Instant;

pub(crate) fn run() -> Result<()> {
    install::debian(ceph::TOOLS)?;
    let begun = Instant::now();
    let cluster = Cluster::start()?;
    println!(
        "a cluster after {:.1} s, with pools {} and {}",
        begun.elapsed().as_secs_f64(),
        ceph::FAST,
        ceph::SLOW
    );
    println!("export CEPH_CONF={}", cluster.conf().display());
    println!("a volume: backend = \"{}\"", cluster.backend("POOL/IMAGE"));
    println!("it ends when this program does: Ctrl-D");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
