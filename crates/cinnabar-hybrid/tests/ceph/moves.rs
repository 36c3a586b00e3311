//! Data written, read and moved between the pools; nothing of it goes through the host.

use crate::driver::{Driver, memory};
use crate::{EXTENT, EXTENTS, made, on_cluster, spec};
use anyhow::{Context, Result, ensure};
use cinnabar_hybrid::pools::{Answer, Listed, Op, OpError, Place, Wait};
use cinnabar_hybrid::rados::RadosPlace;
use cinnabar_placement::{Object, Pool, State};
use e2e::ceph::{Cluster, FAST, SLOW};
use e2e::daemon::noise;
use std::time::{Duration, Instant};

/// What the volume must hold.
pub(crate) struct Model(pub(crate) Vec<u8>);

impl Model {
    pub(crate) fn new() -> Self {
        Self(vec![0; (u64::from(EXTENTS) * EXTENT) as usize])
    }

    pub(crate) fn write(&mut self, driver: &mut Driver, offset: u64, bytes: &[u8]) -> Result<()> {
        driver.write(offset, bytes)?;
        self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn check(&self, driver: &mut Driver) -> Result<()> {
        for extent in 0..u64::from(EXTENTS) {
            let found = driver.read(extent * EXTENT, EXTENT as usize)?;
            let expected = &self.0[(extent * EXTENT) as usize..][..EXTENT as usize];
            let wrong = found.chunks(512).zip(expected.chunks(512)).position(|(a, b)| a != b);
            ensure!(wrong.is_none(), "extent {extent} differs, first in sector {wrong:?}");
        }
        Ok(())
    }
}

/// What a pool lists, page by page.
pub(crate) fn listed(driver: &mut Driver, pool: Pool) -> Result<Vec<Listed>> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let Answer::Listed(page) = driver.op(Op::List { pool, after })?? else {
            anyhow::bail!("no list")
        };
        all.extend(page.objects);
        after = page.next;
        if after.is_none() {
            return Ok(all);
        }
    }
}

/// Pools and table agree object by object.
pub(crate) fn agree(driver: &mut Driver) -> Result<()> {
    for pool in [Pool::Slow, Pool::Fast] {
        let mut found = listed(driver, pool)?;
        // Of an extent whose first write was cut off there may be the record alone.
        let is_there = |object: &Object, state: State| {
            state != State::Fresh || found.contains(&Listed::Object(*object))
        };
        let of = |extent| {
            let record = driver.volume.table().get(extent);
            record.truth(extent).filter(|object| is_there(object, record.state))
        };
        let mut expected: Vec<_> =
            (0..EXTENTS).filter_map(of).filter(|o| o.pool == pool).map(Listed::Object).collect();
        found.sort_by_key(|one| format!("{one:?}"));
        expected.sort_by_key(|one| format!("{one:?}"));
        ensure!(found == expected, "{pool}: {found:?}, not {expected:?}");
    }
    Ok(())
}

#[test]
fn moved_there_and_back() {
    on_cluster(|cluster| {
        let mut place = made(cluster, "moved", 1)?;
        let (mut driver, mut model) = (Driver::open(&mut place)?, Model::new());
        // Whole, in part, and at both ends of their extents.
        for (extent, from, bytes) in [
            (0, 0, EXTENT),
            (1, 0, 4096),
            (2, EXTENT - 512, 512),
            (3, 1 << 20, 1 << 20),
            (4, 512, 1536),
        ] {
            model.write(&mut driver, extent * EXTENT + from, &noise(bytes, extent))?;
        }
        driver.zero(5 * EXTENT + 4096, 8192)?;
        driver.zero(3 * EXTENT + (1 << 20), 65_536)?;
        model.0[(3 * EXTENT + (1 << 20)) as usize..][..65_536].fill(0);
        model.check(&mut driver)?;
        driver.move_to(Pool::Fast, &[0, 1, 2, 3, 5])?;
        agree(&mut driver)?;
        ensure!(listed(&mut driver, Pool::Fast)?.len() == 5, "{:?}", driver.ended);
        model.check(&mut driver)?;
        model.write(&mut driver, 8192, &noise(4096, 77))?;
        model.check(&mut driver)?;
        driver.move_to(Pool::Slow, &[0, 3, 5])?;
        agree(&mut driver)?;
        model.check(&mut driver)?;
        ensure!(driver.volume.counts().moved == [3, 5], "{:?}", driver.volume.counts());
        ensure!(driver.pools.moved_through_host() == 0, "nothing was written meanwhile");
        // The next owner has no one to wait for, and finds the same.
        drop(driver);
        let mut driver = Driver::open(&mut place)?;
        ensure!(driver.volume.header().epoch == 3, "{:?}", driver.volume.header());
        driver.settle()?;
        model.check(&mut driver)?;
        agree(&mut driver)
    });
}

#[test]
fn written_while_it_moves() {
    on_cluster(|cluster| {
        let mut place = made(cluster, "written", 2)?;
        let (mut driver, mut model) = (Driver::open(&mut place)?, Model::new());
        for extent in 0..6 {
            model.write(&mut driver, extent * EXTENT, &noise(EXTENT, extent))?;
        }
        let mut writes = 0;
        for to in [Pool::Fast, Pool::Slow, Pool::Fast] {
            driver.volume.set_moves((0..6).map(|extent| (extent, to)));
            loop {
                let (extent, block) = (writes % 6, writes * 37 % 1024);
                let offset = extent * EXTENT + block * 4096;
                model.write(&mut driver, offset, &noise(4096, 1000 + writes))?;
                writes += 1;
                if driver.volume.is_quiet() {
                    break;
                }
            }
            driver.settle()?;
            model.check(&mut driver)?;
        }
        agree(&mut driver)?;
        let counts = driver.volume.counts();
        let moved: u64 = counts.moved.iter().sum();
        println!("{writes} writes during {moved} moves: {counts:?}");
        ensure!(moved > 0, "{counts:?}");
        let (host, all) = (driver.pools.moved_through_host(), counts.copies * EXTENT);
        println!("{host} of {all} bytes copied went through the host");
        ensure!(host == counts.patched_bytes && host * 100 < all, "{host} of {all}");
        Ok(())
    });
}

/// The state machine knows what was written meanwhile.
#[test]
fn an_extent_of_one_chunk_is_copied_whatever_is_written() {
    on_cluster(|cluster| {
        let mut place = made(cluster, "chunk", 7)?;
        let (mut driver, mut model) = (Driver::open(&mut place)?, Model::new());
        model.write(&mut driver, 0, &noise(EXTENT, 1))?;
        driver.settle()?;
        let object = |pool, generation| Object { extent: 0, pool, generation };
        let (from, to) = (object(Pool::Slow, 1), object(Pool::Fast, 2));
        for round in 0..10 {
            const COPY: u64 = 1 << 40;
            let mut bytes = noise(65_536, round);
            driver.pools.submit(COPY, Op::Copy { from, to });
            let begun = Instant::now();
            let (mut writes, mut left, mut copied) = (0, 0, None);
            while copied.is_none() || left > 0 {
                ensure!(begun.elapsed() < Duration::from_mins(1), "{:?}", driver.pools.trouble());
                while copied.is_none() && left < 8 {
                    (writes, left) = (writes + 1, left + 1);
                    let (memory, offset) = (memory(&mut bytes), writes % 64 * 65_536);
                    let (may_be_missing, durable) = (false, true);
                    let write = Op::Write { object: from, offset, memory, may_be_missing, durable };
                    driver.pools.submit(COPY + writes, write);
                }
                for ended in driver.turn(Duration::from_millis(100))? {
                    if ended.token == COPY {
                        copied = Some(ended.result);
                    } else {
                        (left, _) = (left - 1, ended.result?);
                    }
                }
            }
            ensure!(copied == Some(Ok(Answer::Done)), "{copied:?} beside {writes} writes");
        }
        Ok(())
    });
}

/// A number of each taking, which the next owner finds.
#[test]
fn each_taking_has_a_number() {
    on_cluster(|cluster| {
        let mut place = made(cluster, "takings", 8)?;
        let mut last = 0;
        for _ in 0..3 {
            let driver = Driver::open(&mut place)?;
            let [own, found] = driver.pools.takings().context("numbers")?;
            ensure!(own != 0 && own != found && found == last, "{own} and {found}, then {last}");
            last = own;
        }
        Ok(())
    });
}

#[test]
fn operations_say_what_is_not_there() {
    on_cluster(|cluster| {
        let mut place = made(cluster, "bare", 3)?;
        let mut driver = Driver::open(&mut place)?;
        let object = |pool, generation| Object { extent: 1, pool, generation };
        let (from, to) = (object(Pool::Slow, 1), object(Pool::Fast, 2));
        let missing = Err(OpError::Missing);
        ensure!(driver.op(Op::Probe { object: from })? == Ok(Answer::Exists(false)));
        ensure!(driver.op(Op::Delete { object: from })? == Ok(Answer::Done));
        ensure!(driver.op(Op::Copy { from, to })? == missing);
        let ranges: Vec<_> = std::iter::once(0..512).collect();
        ensure!(driver.op(Op::Patch { from, to, ranges: ranges.clone() })? == missing);
        let zero = |may_be_missing| Op::Zero {
            object: from,
            offset: 0,
            length: 512,
            may_be_missing,
            punch: false,
            durable: true,
        };
        ensure!(driver.op(zero(false))? == missing);
        ensure!(
            driver.op(Op::Probe { object: from })? == Ok(Answer::Exists(false)),
            "none was made"
        );
        ensure!(driver.op(zero(true))? == Ok(Answer::Done));
        ensure!(driver.op(Op::Probe { object: from })? == Ok(Answer::Exists(true)));
        ensure!(driver.op(Op::Patch { from, to, ranges })? == missing, "no copy is made by it");
        ensure!(driver.op(Op::Probe { object: to })? == Ok(Answer::Exists(false)));
        ensure!(driver.op(Op::Flush)? == Ok(Answer::Done));
        let epoch = driver.volume.header().epoch;
        ensure!(driver.op(Op::Check { epoch })? == Ok(Answer::Done));
        ensure!(driver.op(Op::Check { epoch: epoch + 1 })? == Err(OpError::Fenced));
        Ok(())
    });
}

/// Entries of more than a page come back, and records that are not what was expected are kept.
#[test]
fn a_table_of_many_pages() {
    on_cluster(|cluster| {
        use cinnabar_placement::{Geometry, Header, Record};
        let extents = 2500_u32;
        let geometry = Geometry::new(u64::from(extents) * EXTENT, 22)?;
        let mut place = RadosPlace::new(spec(&cluster.conf(), "pages"));
        place.create(&Header::new([4; 16], geometry, EXTENT))?;
        let (contents, pools) = place.take_over(&mut |wait| wait == Wait::Lease)?;
        let epoch = contents.header.epoch;
        let mut driver = Driver::new(contents, pools)?;
        let record = Record::ABSENT.allocated(Pool::Slow, 1);
        let store = |extent, expected, new| Op::StoreRecord { extent, expected, new, epoch };
        for extent in 0..extents {
            let done = driver.op(store(extent, Record::ABSENT, record))?;
            ensure!(done == Ok(Answer::Done), "{extent}: {done:?}");
        }
        let again = driver.op(store(7, Record::ABSENT, record.settled()))?;
        ensure!(again == Err(OpError::Fenced), "{again:?}");
        ensure!(driver.op(store(8, record, Record::ABSENT))? == Ok(Answer::Done));
        let found = place.look()?.records;
        ensure!(found.len() == extents as usize - 1, "{}", found.len());
        ensure!(found.iter().all(|(extent, found)| *extent != 8 && *found == record));
        Ok(())
    });
}

#[test]
fn curves_are_measured_and_kept() {
    on_cluster(|cluster| {
        let place = made(cluster, "curves", 5)?;
        ensure!(place.curves()?.is_none());
        let before = [FAST, SLOW].map(|pool| objects(cluster, pool));
        let measured = place.calibrate()?;
        println!("{measured:#?}");
        ensure!(measured.took.as_secs() < 30, "{:?}", measured.took);
        let [slow, fast] = place.curves()?.context("they are stored")?;
        let near = |a: f64, b: f64| (a - b).abs() <= 1.0;
        ensure!(near(slow.read.ns(4096), measured.slow.read.ns(4096)));
        ensure!(near(fast.write_on.ns(1 << 22), measured.fast.write_on.ns(1 << 22)));
        // The fixture's disks delay each message.
        ensure!(slow.read.ns(4096) > fast.read.ns(4096), "{measured:?}");
        let after = [FAST, SLOW].map(|pool| objects(cluster, pool));
        for (before, after) in before.into_iter().zip(after) {
            ensure!(before? == after?, "nothing of the probe is left");
        }
        Ok(())
    });
}

fn objects(cluster: &Cluster, pool: &str) -> Result<Vec<String>> {
    let said = e2e::process::output(&mut cluster.command("rados", &["-p", pool, "ls"]))?;
    let mut names: Vec<String> = said.lines().map(str::to_owned).collect();
    names.sort();
    Ok(names)
}
