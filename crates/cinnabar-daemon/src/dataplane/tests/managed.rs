//! What the data plane keeps for the manager: whose a mode is, and targets.

use super::rig::Rig;
use super::write_back::{SLOW, set, turn_until, until};
use crate::dataplane::plane::DataPlane;
use cinnabar_config::ManagerConfig;
use cinnabar_config::messages::{
    CommandError, CommandErrorKind, IoMode, Message, VolumeChange, VolumeMode,
};
use cinnabar_writeback::Refusal;
use tokio::sync::oneshot;

/// The manager wants another mode.
fn plan(rig: &Rig, mode: VolumeMode, from: VolumeMode) -> Result<(), CommandError> {
    let (mode, mode_from) = (Some(mode), Some(from));
    let change = VolumeChange { mode, mode_from, ..VolumeChange::default() };
    rig.ask(|answer| Message::SetVolume { name: "vm1".into(), change, answer })
}

fn free(rig: &Rig) -> Result<bool, CommandError> {
    rig.ask(|answer| Message::FreeMode { name: "vm1".into(), answer })
}

/// The manager guessed it from one plan to the next, and overrode modes that were set before the first
/// plan, twice between two plans, or to what they were.
#[test]
fn a_mode_that_the_operator_sets_is_no_plans() {
    use VolumeMode::{PassThrough, WriteAround, WriteBack, WriteThrough};
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    rig.start();
    let by_operator = |rig: &Rig| rig.status().volumes[0].mode_by_operator;
    assert!(set(&rig, WriteBack).is_err(), "there is no write log");
    assert!(!by_operator(&rig), "so nothing was set");
    assert_eq!(plan(&rig, WriteAround, WriteThrough), Ok(()));
    assert!(!by_operator(&rig));
    // It has that mode already, and is to keep it.
    assert_eq!(set(&rig, WriteAround), Ok(()));
    assert!(by_operator(&rig));
    let refused = plan(&rig, PassThrough, WriteAround).expect_err("it is the operator's");
    assert_eq!(refused.kind, CommandErrorKind::Busy);
    let change = VolumeChange::default();
    let name = "vm1".into();
    assert_eq!(rig.ask(|answer| Message::SetVolume { name, change, answer }), Ok(()));
    assert_eq!(rig.status().volumes[0].config.mode, WriteAround);
    assert_eq!((free(&rig), free(&rig)), (Ok(true), Ok(false)));
    assert_eq!(plan(&rig, PassThrough, WriteAround), Ok(()));
    assert!(!by_operator(&rig));
    assert_eq!(set(&rig, WriteThrough), Ok(()));
    assert!(by_operator(&rig));
    rig.stop();
}

/// After a removal, or a renewal behind a failed flush, it had no target until the next plan.
#[test]
fn a_volume_that_is_attached_again_has_its_target() {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    rig.start();
    rig.loaded();
    let own_shares = |rig: &Rig| rig.status().volumes[0].counters.own_shares;
    let config = rig.config.volumes[0].clone();
    let again = |rig: &Rig| {
        let (name, force, discard_dirty) = ("vm1".into(), true, false);
        let removed =
            rig.ask(|answer| Message::RemoveVolume { name, force, discard_dirty, answer });
        assert_eq!(removed, Ok(()));
        let config = Box::new(config.clone());
        assert_eq!(rig.ask(|answer| Message::AddVolume(config, answer)), Ok(()));
    };
    assert_eq!(own_shares(&rig), 0);
    let targets = vec![("vm1".to_owned(), Some(1024))];
    assert_eq!(rig.ask(|answer| Message::AdoptTargets { targets, answer }), Ok(()));
    until(&rig, "it has a share", |status| status.volumes[0].counters.own_shares > 0);
    again(&rig);
    until(&rig, "it has a share again", |status| status.volumes[0].counters.own_shares > 0);
    let targets = vec![("vm1".to_owned(), None)];
    assert_eq!(rig.ask(|answer| Message::AdoptTargets { targets, answer }), Ok(()));
    until(&rig, "it has none", |status| status.volumes[0].counters.own_shares == 0);
    again(&rig);
    assert_eq!(own_shares(&rig), 0);
    rig.stop();
}

/// The status said write-through for good, and each further request for it was answered with OK.
#[test]
fn one_that_could_not_leave_the_log_is_in_write_back_again() {
    let mut rig = Rig::write_back(IoMode::Auto, &["vm1"]);
    rig.config.volumes[0].backend.insert_str(0, SLOW);
    let (mut plane, _commands) = DataPlane::start(&rig.config).expect("it starts");
    let key = plane.find("vm1").expect("it serves");
    turn_until(&mut plane, "it has joined", |plane| plane.volumes[key].writes.has_joined());
    let now = plane.data_thread.clock.now();
    let (answer, mut left) = oneshot::channel();
    plane.change_write_mode(now, key, (VolumeMode::WriteThrough, true), answer);
    assert_eq!(left.try_recv(), Ok(Ok(())));
    assert_eq!(plane.volumes[key].config.mode, VolumeMode::WriteThrough);
    // The log's device is lost before it is asked.
    let subject = plane.subject(key);
    plane.log_step_done(now, subject, Err(Refusal::Lost));
    assert_eq!(plane.volumes[key].config.mode, VolumeMode::WriteBack);
    assert!(plane.volumes[key].writes.has_joined());
    plane.end();
}

/// Each try left something with the manager for good.
#[test]
fn a_volume_that_is_refused_again_and_again_leaves_nothing_with_the_manager() {
    let mut rig = Rig::write_back(IoMode::Auto, &["vm1"]);
    rig.config.manager = Some(ManagerConfig::default());
    rig.config.cache.write_log.as_mut().expect("it is set").path = "/nonexistent/writes".into();
    let (mut plane, _commands) = DataPlane::start(&rig.config).expect("it starts");
    turn_until(&mut plane, "it was tried again, and has left each time", |plane| {
        let watched = plane.samplers.as_ref().expect("there is a manager").volumes();
        watched.len() > 1 && watched.iter().all(|one| one.has_left())
    });
    plane.end();
}
