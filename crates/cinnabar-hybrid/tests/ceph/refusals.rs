//! Mistakes, each of which ends in one line.

use crate::driver::Driver;
use crate::{EXTENT, header, made, on_cluster, says, spec};
use anyhow::{Context, Result, ensure};
use cinnabar_hybrid::pools::{Op, OpError, OpenError, Place, Wait};
use cinnabar_hybrid::rados::RadosPlace;
use cinnabar_placement::{Object, Pool};
use e2e::ceph::{Cluster, FAST, SLOW};
use e2e::daemon::noise;
use std::time::{Duration, Instant};

fn refused(place: &mut RadosPlace) -> Result<OpenError> {
    place.take_over(&mut |wait| wait == Wait::Lease).map(drop).err().context("it is not refused")
}

fn rados(cluster: &Cluster, args: &[&str]) -> Result<String> {
    e2e::process::output(&mut cluster.command("rados", &[&["-p", SLOW][..], args].concat()))
}

#[test]
fn mistakes_in_names() {
    on_cluster(|cluster| {
        let good = spec(&cluster.conf(), "named");
        let with = |change: fn(&mut cinnabar_hybrid::rados::RadosSpec)| {
            let mut spec = good.clone();
            change(&mut spec);
            RadosPlace::new(spec)
        };
        says(
            &refused(&mut with(|_| ()))?,
            "there is no hybrid volume: object cinnabar_hybrid.named",
        )?;
        made(cluster, "named", 31)?;
        let again = RadosPlace::new(good.clone()).create(&header(31)).err();
        says(&again.context("twice")?, "\"named\" exists")?;
        says(&refused(&mut with(|s| s.fast = "nowhere".into()))?, "there is no pool \"nowhere\"")?;
        says(&refused(&mut with(|s| s.slow = "nowhere".into()))?, "there is no pool \"nowhere\"")?;
        says(&refused(&mut with(|s| s.fast = SLOW.into()))?, "are the same")?;
        says(
            &refused(&mut with(|s| s.target.id = "nobody".into()))?,
            "refuses user client.nobody",
        )?;
        let nowhere = &mut with(|s| s.target.conf = "/nowhere/ceph.conf".into());
        says(&refused(nowhere)?, "/nowhere/ceph.conf")?;
        // Pools in each other's place, with the table named.
        let swapped = &mut with(|s| {
            (s.fast, s.slow, s.table) = (SLOW.into(), FAST.into(), Some(SLOW.into()));
        });
        says(&refused(swapped)?, "lies in other pools")
    });
}

#[test]
fn capabilities() {
    on_cluster(|cluster| {
        made(cluster, "caps", 32)?;
        let osd = |pools: &str| format!("profile rbd pool={pools}");
        let both = format!("{}, {}", osd(FAST), osd(SLOW));
        cluster.user("hybrid", &["mon", "profile rbd", "osd", &both])?;
        cluster.user("fastonly", &["mon", "profile rbd", "osd", &osd(FAST)])?;
        cluster.user("slowonly", &["mon", "profile rbd", "osd", &osd(SLOW)])?;
        let place = |id: &str| {
            let mut spec = spec(&cluster.conf(), "caps");
            spec.target.id = id.into();
            RadosPlace::new(spec)
        };
        let looked = place("fastonly").look().err().context("it sees nothing")?;
        says(&looked, "user client.fastonly may not read the table")?;
        let mut driver = Driver::open(&mut place("hybrid"))?;
        driver.write(0, &noise(EXTENT, 1))?;
        driver.move_to(Pool::Fast, &[0])?;
        ensure!(driver.volume.counts().moved == [0, 1], "{:?}", driver.ended);
        drop(driver);
        says(&refused(&mut place("slowonly"))?, "user client.slowonly may not write the fast pool")
    });
}

/// Without a manager no quota is kept, so the pool's OSDs are filled beyond a ratio that is lowered for that.
#[test]
fn a_full_pool() {
    on_cluster(|cluster| {
        let mut place = made(cluster, "full", 33)?;
        let mut driver = Driver::open(&mut place)?;
        for extent in 0..3 {
            driver.write(extent * EXTENT, &noise(EXTENT, extent))?;
        }
        driver.move_to(Pool::Fast, &[0])?;
        let file = cluster.folder().join("filler");
        std::fs::write(&file, noise(64 << 20, 5))?;
        let fillers: Vec<String> = (0..10).map(|number| format!("filler{number}")).collect();
        let fast = |args: &[&str]| {
            let args = [&["-p", FAST][..], args].concat();
            e2e::process::output(&mut cluster.command("rados", &args))
        };
        for filler in &fillers {
            fast(&["put", filler, &file.to_string_lossy()])?;
        }
        // The OSDs have 4 GiB each.
        let ratios = |ratios: [&str; 3]| -> Result<()> {
            for (what, ratio) in ["nearfull", "backfillfull", "full"].into_iter().zip(ratios) {
                cluster.ceph(&["osd", &format!("set-{what}-ratio"), ratio])?;
            }
            Ok(())
        };
        ratios(["0.10", "0.11", "0.12"])?;
        let outcome = full(&mut driver);
        ratios(["0.85", "0.90", "0.95"])?;
        for filler in &fillers {
            fast(&["rm", filler])?;
        }
        outcome?;
        let begun = Instant::now();
        while driver.volume.counts().moved[1] < 2 {
            ensure!(begun.elapsed() < Duration::from_mins(1), "{:?}", driver.ended);
            driver.move_to(Pool::Fast, &[1])?;
        }
        for extent in 0..3 {
            let found = driver.read(extent * EXTENT, EXTENT as usize)?;
            ensure!(found == noise(EXTENT, extent), "extent {extent}");
        }
        Ok(())
    });
}

/// Moves to the full pool are given up; the slow one takes writes.
fn full(driver: &mut Driver) -> Result<()> {
    let begun = Instant::now();
    loop {
        // It takes a while to be noticed.
        ensure!(begun.elapsed() < Duration::from_mins(1), "a full pool takes what is written");
        let before = driver.volume.counts().given_up;
        driver.move_to(Pool::Fast, &[1])?;
        if driver.volume.counts().given_up > before {
            break;
        }
        driver.move_to(Pool::Slow, &[1])?;
    }
    let to = Object { extent: 2, pool: Pool::Fast, generation: 1000 };
    let from = driver.volume.table().get(2).truth(2).context("it was written")?;
    let copied = driver.op(Op::Copy { from, to })?;
    ensure!(copied == Err(OpError::NoSpace(Pool::Fast)), "{copied:?}");
    says(&copied.err().context("it failed")?, "the fast pool is full")?;
    driver.write(2 * EXTENT, &noise(EXTENT, 2))
}

#[test]
fn foreign_newer_and_damaged_tables() {
    on_cluster(|cluster| {
        let object = "cinnabar_hybrid.strange";
        rados(cluster, &["create", object])?;
        let place = &mut RadosPlace::new(spec(&cluster.conf(), "strange"));
        says(&refused(place)?, "not the table of a hybrid volume")?;
        says(&place.create(&header(34)).err().context("it is there")?, "exists")?;
        rados(cluster, &["rm", object])?;
        place.create(&header(34))?;
        let set = |key: &str, bytes: &[u8]| {
            let file = cluster.folder().join("value");
            std::fs::write(&file, bytes)?;
            rados(cluster, &["setomapval", object, key, "--input-file", &file.to_string_lossy()])
        };
        let good = header(34).encode();
        let mut newer = good;
        newer[12] = 9;
        set("a.header", &newer)?;
        says(&refused(place)?, "version 9")?;
        let mut rotten = good;
        rotten[50] ^= 1;
        set("a.header", &rotten)?;
        says(&refused(place)?, "checksum")?;
        set("a.header", &good)?;
        set("e.00000003", b"sixteen bytes...")?;
        says(&refused(place)?, "record of extent 3")?;
        set("e.00000003", &[])?;
        says(&refused(place)?, "extent 3")?;
        rados(cluster, &["rmomapkey", object, "e.00000003"])?;
        set("e.ffffffff", b"sixteen bytes...")?;
        says(&refused(place)?, "e.ffffffff")?;
        rados(cluster, &["rmomapkey", object, "e.ffffffff"])?;
        set("a.curves", b"none")?;
        says(&place.curves().err().context("no curves")?, "not the curves")?;
        Driver::open(place).map(drop)
    });
}
