//! `cache replace`: a new device that does not answer, and what else is asked for meanwhile.

use super::degrade::{Frozen, replace};
use super::rig::{MIB, Rig, pattern};
use cinnabar_config::messages::{
    AnswerTo, CommandError, CommandErrorKind, IoMode, Message, NewCache, State,
};
use std::time::Duration;

/// A file that is to be made on a file system that is frozen can't be opened.
fn with_frozen(bound: Duration) -> Option<(Rig, Frozen)> {
    let mut rig = Rig::new(IoMode::Auto, &["vm1"]);
    let Some(ssd) = Frozen::mount(&rig) else {
        eprintln!("skipped: no root, no loop device, or no mkfs.ext4");
        return None;
    };
    rig.config.cache.device_timeout = bound;
    rig.start();
    assert!(ssd.switch("-f"), "it can be frozen");
    Some((rig, ssd))
}

fn begin(rig: &Rig, name: &str) -> tokio::sync::oneshot::Receiver<Result<(), CommandError>> {
    let new = NewCache { device: rig.path(name), size_bytes: Some(24 * MIB), format: false };
    rig.send(|answer: AnswerTo<()>| Message::ReplaceCache { new, answer })
}

/// Until nothing is there any more, or for a while.
fn is_gone(rig: &Rig, name: &str) -> bool {
    (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        !rig.path(name).exists()
    })
}

#[test]
fn a_new_device_that_does_not_answer_changes_nothing_now_or_later() {
    // Zero: nothing bounds operations on the device, but an operator's command is answered.
    for bound in [Duration::from_secs(2), Duration::ZERO] {
        let Some((mut rig, ssd)) = with_frozen(bound) else { return };
        let own = rig.config.cache.device.clone();
        let first = begin(&rig, "ssd/first.img").blocking_recv().expect("it is answered");
        let error = first.expect_err("it hangs");
        assert_eq!(error.kind, CommandErrorKind::Io, "{error}");
        assert!(error.message.contains("ssd/first.img: it does not answer (2 s)"), "{error}");
        assert!(!error.hint.is_empty());
        let status = rig.loaded();
        assert_eq!((status.cache.state, &status.cache.device), (State::Serving, &own));
        let mut client = rig.client("vm1");
        assert!(client.read(0, 4096) == Ok(pattern(0, 4096)));
        client.leave();
        // The first one comes while another is opened, and must not be taken for that.
        let second = begin(&rig, "ssd/second.img");
        assert!(ssd.switch("-u"), "it can be thawed");
        assert_eq!(second.blocking_recv().expect("it is answered"), Ok(()));
        let status = rig.loaded();
        assert_eq!((status.cache.state, status.cache.device), {
            (State::Serving, rig.path("ssd/second.img"))
        });
        assert!(is_gone(&rig, "ssd/first.img"), "it was not formatted");
        assert_eq!(rig.status().cache.device, rig.path("ssd/second.img"));
        assert!(rig.stop().clean);
        assert!(is_gone(&rig, "ssd/first.img"));
    }
}

#[test]
fn a_stop_does_not_wait_for_a_new_device() {
    let Some((mut rig, ssd)) = with_frozen(Duration::from_mins(1)) else { return };
    let asked = begin(&rig, "ssd/new.img");
    assert!(rig.stop().clean);
    let error = asked.blocking_recv().expect("it is answered").expect_err("it stops");
    assert_eq!(error.kind, CommandErrorKind::Stopping);
    drop(ssd);
}

/// One thing at a time: the new device was promised the state that it is asked to take over.
#[test]
fn while_a_device_is_replaced_nothing_else_is_done_to_it() {
    let Some((mut rig, ssd)) = with_frozen(Duration::from_mins(1)) else { return };
    let mut second = rig.volume("vm2");
    second.backend_timeout = Duration::ZERO;
    let first = begin(&rig, "ssd/new.img");
    for _ in 0..2 {
        let error = rig.ask(Message::AbandonCache).expect_err("not now");
        assert_eq!((error.kind, error.hint.as_str()), {
            (CommandErrorKind::Busy, "try again in a moment")
        });
    }
    let (kind, _) = replace(&rig, &rig.path("other.img"), false).expect_err("not now");
    assert_eq!(kind, CommandErrorKind::Busy);
    assert!(!rig.path("other.img").exists());
    let error = rig.ask(|answer| Message::AddVolume(Box::new(second), answer));
    assert_eq!(error.expect_err("not now").kind, CommandErrorKind::Busy);
    assert!(ssd.switch("-u"), "it can be thawed");
    assert_eq!(first.blocking_recv().expect("it is answered"), Ok(()));
    // And afterwards it is the new one that is let go of.
    assert_eq!(rig.ask(Message::AbandonCache), Ok(()));
    let status = rig.status();
    assert_eq!((status.cache.state, status.cache.device), {
        (State::Degraded, rig.path("ssd/new.img"))
    });
    assert_eq!(replace(&rig, &rig.path("other.img"), false), Ok(()));
    assert_eq!(rig.loaded().cache.device, rig.path("other.img"));
    assert!(rig.stop().clean);
}
