//! A volume leaves the write log while its guest goes on, and what keeps it there.

use super::rig::Rig;
use super::write_back::set;
use cinnabar_config::messages::{IoMode, ModeCause, VolumeMode};

/// Its writers are slowed down to what the back end takes, which is nothing.
#[test]
fn one_whose_back_end_takes_nothing_stays_and_its_guest_goes_on() {
    let mut rig = Rig::write_back(IoMode::Auto, &["vm1"]);
    let slow = "sim:network,read=1ms,write=12000ms,flush=1ms:";
    rig.config.volumes[0].backend.insert_str(0, slow);
    rig.config.cache.write_log.as_mut().expect("it is set").drain_on_stop = false;
    rig.start();
    let mut client = rig.client("vm1");
    assert_eq!(client.write(0, &[7; 4096], true), Ok(()));
    assert_eq!(set(&rig, VolumeMode::WriteThrough), Ok(()));
    // More than is let through at once.
    for n in 0..600_u64 {
        assert_eq!(client.write(n % 64 * 4096, &[n as u8; 4096], false), Ok(()));
    }
    let status = rig.status();
    assert_eq!(status.volumes[0].config.mode, VolumeMode::WriteBack);
    assert_eq!(status.volumes[0].mode_cause, ModeCause::NotLeft);
    assert_eq!(client.read(63 * 4096, 4096), Ok(vec![(575 % 256) as u8; 4096]));
    client.leave();
    rig.stop();
}
