//! OSDs of each pool killed and started again while extents move and are written.

use crate::driver::Driver;
use crate::moves::{Model, agree};
use crate::{EXTENT, made, on_cluster};
use anyhow::ensure;
use cinnabar_placement::Pool;
use e2e::ceph::{FAST, HDD_OSDS, SLOW, SSD_OSDS};
use e2e::daemon::noise;

#[test]
fn osds_killed_while_extents_move() {
    on_cluster(|cluster| {
        let mut place = made(cluster, "faults", 21)?;
        let (mut driver, mut model) = (Driver::open(&mut place)?, Model::new());
        for extent in 0..6 {
            model.write(&mut driver, extent * EXTENT, &noise(EXTENT, extent))?;
        }
        let mut number = 2000;
        for (osd, to) in [(SSD_OSDS[0], Pool::Fast), (HDD_OSDS[0], Pool::Slow)] {
            driver.volume.set_moves((0..6).map(|extent| (extent, to)));
            driver.turn(std::time::Duration::from_millis(5))?;
            cluster.kill_osd(osd)?;
            for _ in 0..30 {
                let offset = number % 6 * EXTENT + number * 31 % 1024 * 4096;
                model.write(&mut driver, offset, &noise(4096, number))?;
                number += 1;
            }
            cluster.start_osd(osd)?;
            driver.settle()?;
            model.check(&mut driver)?;
        }
        for pool in [FAST, SLOW] {
            cluster.wait_for(pool)?;
        }
        println!("{:?}, {:?}", driver.volume.counts(), driver.ended);
        ensure!(driver.volume.counts().moved.iter().sum::<u64>() > 6, "{:?}", driver.ended);
        agree(&mut driver)?;
        drop(driver);
        let mut driver = Driver::open(&mut place)?;
        model.check(&mut driver)
    });
}
