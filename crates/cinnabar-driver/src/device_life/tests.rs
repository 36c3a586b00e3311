//! What may follow what in the life of a cache device.

use super::*;
use cinnabar_engine::IoError;

const BOUND: Duration = Duration::from_secs(30);
const FAILED: Failure = Failure::Io(IoError::Io);

type Life = DeviceLife<&'static str>;

/// Seconds of virtual time.
const fn at(seconds: u64) -> Instant {
    Instant(seconds * 1_000_000_000)
}

fn absent() -> Life {
    DeviceLife::new(BOUND, Mutants::default())
}

fn in_use() -> Life {
    let mut life = absent();
    life.begin();
    assert!(life.hurries(), "an opening comes to an end");
    assert!(matches!(life.begun(Ok(())), DeviceStep::Ended(Ok(()))));
    assert_eq!((life.phase(), life.hurries()), (DevicePhase::InUse, false));
    life
}

/// With a device named "new" that is open, and the step that followed.
fn prepared(life: &mut Life) -> DeviceStep<&'static str> {
    let id = life.replace(at(0)).expect("nothing else is done");
    life.prepared(id, "new").expect("it was not given up")
}

#[test]
fn a_replacement_entrusts_the_volumes_between_the_old_device_and_the_new_one() {
    let mut life = in_use();
    let id = life.replace(at(0)).expect("nothing else is done");
    assert_eq!(life.phase(), DevicePhase::InUse, "nothing has changed yet");
    let step = life.prepared(id, "new").expect("it was not given up");
    assert!(matches!(step, DeviceStep::GiveUp) && life.hurries(), "{step:?}");
    assert!(matches!(life.given_up(Ok(())), DeviceStep::LetGo));
    assert!(matches!(life.let_go(), DeviceStep::Entrust));
    assert_eq!((life.phase(), life.new_device()), (DevicePhase::Absent, Some(&"new")));
    assert!(matches!(life.entrusted(), DeviceStep::Install("new")));
    assert!(life.hurries(), "the new one may be silent, too");
    assert!(matches!(life.begun(Ok(())), DeviceStep::Ended(Ok(()))));
    assert_eq!((life.phase(), life.new_device()), (DevicePhase::InUse, None));
    life.replace(at(1)).expect("and once more");
}

#[test]
fn without_a_device_there_is_none_to_let_go_of() {
    let mut life = absent();
    assert!(matches!(life.lost(), DeviceStep::Wait));
    assert!(matches!(life.abandon(), Ok(DeviceStep::Ended(Ok(())))));
    assert!(matches!(prepared(&mut life), DeviceStep::Entrust));
}

#[test]
fn a_loss_is_acted_on_once_and_a_replacement_goes_on_from_there() {
    let mut life = in_use();
    assert!(matches!(life.lost(), DeviceStep::GiveUp));
    assert!(matches!(life.lost(), DeviceStep::Wait));
    assert!(matches!(life.abandon(), Ok(DeviceStep::Wait)), "that is under way");
    assert!(matches!(prepared(&mut life), DeviceStep::Wait), "one command at a time");
    assert!(matches!(life.given_up(Ok(())), DeviceStep::LetGo));
    assert!(matches!(life.let_go(), DeviceStep::Entrust));
}

#[test]
fn a_device_lost_while_another_is_opened_is_let_go_of_at_once() {
    let mut life = in_use();
    let id = life.replace(at(0)).expect("nothing else is done");
    assert!(matches!(life.lost(), DeviceStep::GiveUp));
    assert!(matches!(life.given_up(Ok(())), DeviceStep::LetGo));
    assert!(matches!(life.let_go(), DeviceStep::Wait), "the new one is not there yet");
    assert!(matches!(life.prepared(id, "new"), Ok(DeviceStep::Entrust)));
}

#[test]
fn one_thing_at_a_time() {
    let mut life = in_use();
    life.replace(at(0)).expect("nothing else is done");
    assert_eq!(life.replace(at(0)).err(), Some(DeviceBusy));
    assert_eq!(life.abandon().err(), Some(DeviceBusy));
    let mut life = absent();
    life.begin();
    assert_eq!(life.replace(at(0)).err(), Some(DeviceBusy), "the first one is being opened");
    life.close();
    assert_eq!(life.abandon().err(), Some(DeviceBusy));
    assert!(life.hurries() && matches!(life.lost(), DeviceStep::Wait));
}

#[test]
fn a_new_device_may_be_slow_and_not_silent() {
    let mut life = in_use();
    let first = life.replace(at(0)).expect("nothing else is done");
    assert!(!is_silent_until(&mut life, 0..29, 0));
    assert!(!is_silent_until(&mut life, 29..59, 1), "it got on after 29 s");
    assert!(!life.is_silent(at(59), 1), "30 s have passed since");
    assert!(life.is_silent(at(60), 1), "it was given a look more");
    assert!(!life.is_silent(at(99), 1), "it was given up once");
    assert_eq!(life.phase(), DevicePhase::InUse, "the old one is not touched");
    let second = life.replace(at(100)).expect("the first was given up");
    assert_eq!(
        life.prepared(first, "first").err(),
        Some("first"),
        "it is not taken for the second"
    );
    life.not_prepared(first);
    assert!(matches!(life.prepared(second, "second"), Ok(DeviceStep::GiveUp)));
}

/// Looks once a second.
fn is_silent_until(life: &mut Life, seconds: std::ops::Range<u64>, steps: u64) -> bool {
    seconds.into_iter().any(|second| life.is_silent(at(second), steps))
}

#[test]
fn a_process_that_was_stopped_does_not_find_a_new_device_silent() {
    let mut life = in_use();
    let id = life.replace(at(0)).expect("nothing else is done");
    assert!(!is_silent_until(&mut life, 0..5, 1));
    assert!(!life.is_silent(at(3600), 1), "nobody looked for an hour");
    assert!(life.is_preparing(id) && !is_silent_until(&mut life, 3601..3620, 1));
    assert!(is_silent_until(&mut life, 3620..3640, 1), "it is in the end");
}

/// The engine keeps a device that it has lost, while another one is being opened.
#[test]
fn a_refusal_does_not_end_a_replacement_that_is_prepared() {
    let mut life = in_use();
    let id = life.replace(at(0)).expect("nothing else is done");
    assert!(matches!(life.lost(), DeviceStep::GiveUp));
    let step = life.given_up(Err(Failure::Invalid));
    assert!(matches!(step, DeviceStep::Ended(Err(error)) if error.failure == Failure::Invalid));
    assert!(life.is_preparing(id), "the caller waits for it");
    assert!(matches!(life.prepared(id, "new"), Ok(DeviceStep::GiveUp)), "it is asked again");
    assert!(matches!(life.given_up(Ok(())), DeviceStep::LetGo));
    assert!(matches!(life.let_go(), DeviceStep::Entrust));
}

/// The same, and the other one is open by then.
#[test]
fn a_refusal_ends_a_replacement_that_waits_for_the_old_device() {
    let mut life = in_use();
    assert!(matches!(life.lost(), DeviceStep::GiveUp));
    assert!(matches!(prepared(&mut life), DeviceStep::Wait));
    assert!(matches!(life.given_up(Err(Failure::Invalid)), DeviceStep::Ended(Err(_))));
    assert_eq!((life.phase(), life.new_device()), (DevicePhase::InUse, None));
}

#[test]
fn what_fails_before_the_old_one_is_given_up_changes_nothing() {
    let mut life = in_use();
    let id = life.replace(at(0)).expect("nothing else is done");
    life.not_prepared(id);
    assert_eq!(life.phase(), DevicePhase::InUse);
    assert!(matches!(prepared(&mut life), DeviceStep::GiveUp));
    let step = life.given_up(Err(Failure::Invalid));
    assert!(matches!(step, DeviceStep::Ended(Err(error)) if error.failure == Failure::Invalid));
    assert_eq!((life.phase(), life.new_device()), (DevicePhase::InUse, None));
    assert!(
        matches!(life.lost(), DeviceStep::Wait),
        "an engine that refuses is not asked again and again"
    );
    assert!(matches!(life.abandon(), Ok(DeviceStep::GiveUp)), "unless an operator asks");
}

#[test]
fn what_fails_later_leaves_no_device() {
    let mut life = absent();
    assert!(matches!(prepared(&mut life), DeviceStep::Entrust));
    life.not_installed();
    assert_eq!((life.phase(), life.new_device()), (DevicePhase::Absent, None));
    // The port has no room for another file.
    assert!(matches!(prepared(&mut life), DeviceStep::Entrust));
    assert!(matches!(life.entrusted(), DeviceStep::Install("new")));
    life.not_installed();
    assert_eq!(life.phase(), DevicePhase::Absent);
    // The engine can't begin: some shards may have, and give it up again.
    for given_up in [Ok(()), Err(Failure::Invalid)] {
        let mut life = absent();
        assert!(matches!(prepared(&mut life), DeviceStep::Entrust));
        assert!(matches!(life.entrusted(), DeviceStep::Install("new")));
        assert!(matches!(life.begun(Err(FAILED)), DeviceStep::GiveUp));
        let mut step = life.given_up(given_up);
        if matches!(step, DeviceStep::LetGo) {
            step = life.let_go();
        }
        assert!(matches!(step, DeviceStep::Ended(Err(error)) if error.failure == FAILED));
        life.replace(at(0)).expect("another may be tried");
    }
}

#[test]
fn a_first_device_that_can_not_be_opened_is_absent() {
    let mut life = absent();
    life.begin();
    assert!(matches!(life.begun(Err(FAILED)), DeviceStep::Ended(Err(_))));
    assert_eq!(life.phase(), DevicePhase::Absent);
}

#[test]
fn a_close_ends_a_replacement() {
    let mut life = in_use();
    assert!(matches!(prepared(&mut life), DeviceStep::GiveUp));
    life.close();
    assert!(matches!(life.given_up(Ok(())), DeviceStep::Wait), "the close lets go of it");
    assert_eq!(life.new_device(), None);
}

#[test]
#[should_panic(expected = "nothing was to be entrusted")]
fn volumes_are_entrusted_to_a_device_that_is_prepared() {
    in_use().entrusted();
}

#[test]
#[should_panic(expected = "let go of once")]
fn a_device_in_use_is_given_up_before_it_is_let_go_of() {
    in_use().let_go();
}

/// What the fault simulation is to find.
#[test]
fn mutants_entrust_the_volumes_early_or_not_at_all() {
    let with = |mutant| {
        let mut life = Life::new(BOUND, Mutants::only(mutant));
        life.begin();
        life.begun(Ok(()));
        life
    };
    let mut life = with(Mutant::EntrustedEarly);
    assert!(matches!(prepared(&mut life), DeviceStep::Entrust));
    assert_eq!(life.phase(), DevicePhase::InUse, "the old one is");
    assert!(matches!(life.entrusted(), DeviceStep::GiveUp));
    assert!(matches!(life.given_up(Ok(())), DeviceStep::LetGo));
    assert!(matches!(life.let_go(), DeviceStep::Install("new")));
    // The old one may be lost meanwhile.
    let mut life = with(Mutant::EntrustedEarly);
    assert!(matches!(prepared(&mut life), DeviceStep::Entrust));
    assert!(matches!(life.lost(), DeviceStep::GiveUp));
    assert!(matches!(life.given_up(Ok(())), DeviceStep::LetGo));
    assert!(matches!(life.let_go(), DeviceStep::Wait));
    assert!(matches!(life.entrusted(), DeviceStep::Install("new")));

    let mut life = with(Mutant::NotEntrusted);
    assert!(matches!(prepared(&mut life), DeviceStep::GiveUp));
    assert!(matches!(life.given_up(Ok(())), DeviceStep::LetGo));
    assert!(matches!(life.let_go(), DeviceStep::Install("new")));
}
