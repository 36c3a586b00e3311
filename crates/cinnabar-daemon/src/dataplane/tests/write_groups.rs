//! Two disks of one guest in write-back mode, of which one has a slow back end.

use super::rig::{Rig, both};
use super::write_back::until;
use cinnabar_config::messages::{DataStatus, IoMode, Message};

const SLOW: &str = "sim:network,read=1ms,write=1s,flush=1s:";

/// Data on one disk, flushed, then the commit that needs them on the other one.
fn committed(io: IoMode) -> Rig {
    let mut rig = Rig::write_back(io, &["vm1", "vm2"]);
    rig.config.volumes[0].backend.insert_str(0, SLOW);
    for volume in &mut rig.config.volumes {
        volume.write_group = Some("vm".into());
    }
    rig.config.cache.write_log.as_mut().expect("it is set").drain_on_stop = false;
    rig.start();
    for (name, byte) in [("vm1", 7), ("vm2", 9)] {
        let mut client = rig.client(name);
        assert_eq!(client.write(0, &[byte; 4096], false), Ok(()));
        assert_eq!(client.flush(), Ok(()));
        client.leave();
    }
    rig
}

fn waits_for(status: &DataStatus) -> Option<&str> {
    let own = status.volumes[1].write_back.as_ref().expect("in write-back mode");
    assert_eq!(own.group, "vm");
    own.waits_for.as_deref()
}

#[test]
fn a_commit_waits_for_the_data_on_the_other_disk_over_a_restart() {
    both(|io| {
        let mut rig = committed(io);
        assert_eq!(waits_for(&rig.status()), Some("vm1"));
        rig.stop();
        rig.start();
        let first = |name: &str| std::fs::read(rig.path(name)).expect("the file is there")[0];
        until(&rig, "both have it", |status| {
            let (commit, data) = (first("vm2.raw"), first("vm1.raw"));
            assert!(commit != 9 || data == 7, "the commit is there, what it commits is not");
            commit == 9 && waits_for(status).is_none()
        });
        rig.stop();
    });
}

#[test]
fn its_writes_are_given_up_together() {
    both(|io| {
        let mut rig = committed(io);
        let remove = |name: &str| {
            let (name, force, discard_dirty) = (name.into(), true, true);
            rig.send(|answer| Message::RemoveVolume { name, force, discard_dirty, answer })
        };
        let mut first = remove("vm1");
        rig.status();
        assert!(first.try_recv().is_err(), "the other one has writes still");
        for answer in [remove("vm2"), first] {
            assert_eq!(answer.blocking_recv().expect("it is answered"), Ok(()));
        }
        assert!(rig.status().volumes.is_empty());
        assert_ne!(std::fs::read(rig.path("vm2.raw")).expect("the file is there")[0], 9);
        rig.stop();
    });
}
