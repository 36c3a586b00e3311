//! Scripts of a volume's life, and of the bugs that no seed finds.

use super::*;
use cinnabar_engine::IoError;

const V: VolumeId = VolumeId(3);
const RANGE: ByteSpan = ByteSpan::new(0, 4096);

fn new(mutants: Mutants) -> VolumeLife {
    VolumeLife::new("v".into(), 7, mutants)
}

fn serving_with(mutants: Mutants) -> VolumeLife {
    let mut life = new(mutants);
    let answer = Ok(Answer::<()>::Attached { volume: V, warmth: Warmth::New });
    assert_eq!(life.attached(&answer), Ok((V, Warmth::New)));
    life
}

fn serving() -> VolumeLife {
    serving_with(Mutants::default())
}

/// The backend's word is asked with this attachment's proof, and both are the engine's.
#[test]
fn an_attach_brings_belief_and_a_proof_of_this_attachment() {
    let life = new(Mutants::default());
    let spec =
        VolumeSpec { proof: Some(ProofToken([1; 64])), ..VolumeSpec::new("v".into(), 1 << 20) };
    let recorded = [Recorded { proof: Some(ProofToken([2; 64])), written: true }];
    let command = life.attach(spec, &recorded, |record, now| {
        assert!(record.written);
        assert_eq!(now.map(ProofToken::attachment), Some(7));
        Belief::Unchanged
    });
    let Command::Attach(spec) = command else { panic!("{command:?}") };
    assert_eq!(spec.belief, Belief::Unchanged);
    assert_eq!(spec.proof.map(|proof| proof.attachment()), Some(7));
}

#[test]
fn a_volume_has_its_name_from_the_answer_until_the_engine_lets_go() {
    assert_eq!(new(Mutants::default()).id(), None);
    let mut life = serving();
    assert_eq!((life.id(), life.serving()), (Some(V), Some(V)));
    assert!(matches!(life.leave(), Some(Command::Detach(V))));
    assert_eq!((life.id(), life.serving(), life.phase()), (Some(V), None, Phase::Leaving));
    assert!(life.leave().is_none(), "it ends once");
    assert!(matches!(life.answered(Ok(())), EndStep::TakeProof));
    assert!(matches!(life.proved(None), Command::Seal(V, None)));
    assert!(matches!(life.answered(Ok(())), EndStep::Gone(Ok(()))));
    assert_eq!((life.id(), life.phase()), (None, Phase::Gone));
    assert!(life.is_over());
}

#[test]
fn one_that_is_refused_is_over_at_once() {
    let mut life = new(Mutants::default());
    assert!(!life.is_over());
    assert_eq!(life.attached(&Err::<Answer<()>, _>(Failure::Limit)), Err(Failure::Limit));
    assert!(life.is_over());
    let mut life = new(Mutants::default());
    assert_eq!(life.attached(&Ok(Answer::<()>::Done)), Err(Failure::Invalid));
    assert!(life.leave().is_none());
}

fn gone_with_io(mutants: Mutants) -> VolumeLife {
    let mut life = serving_with(mutants);
    life.ios().begin();
    let _ = life.leave();
    let error = Err(Failure::Io(IoError::Io));
    assert!(matches!(life.answered(error), EndStep::Gone(Err(_))));
    life
}

#[test]
fn it_is_not_over_while_its_io_is_under_way() {
    let life = gone_with_io(Mutants::default());
    assert!(!life.is_over());
    assert!(life.ios().end(), "who ends the last one says so");
    assert!(life.is_over());
}

#[test]
fn the_mutant_that_lets_go_of_a_busy_volume_is_found() {
    assert!(gone_with_io(Mutants::only(Mutant::BusyVolumeLetGo)).is_over());
}

/// What was lost waits for the volume to serve; what is lost while it leaves has it discarded.
#[test]
fn what_is_lost_is_invalidated_or_discarded() {
    let mut life = new(Mutants::default());
    life.lost(&[RANGE], 0);
    assert!(life.invalidations().is_empty() && life.discard().is_none());
    let answer = Ok(Answer::<()>::Attached { volume: V, warmth: Warmth::New });
    let _ = life.attached(&answer);
    assert!(life.discard().is_none());
    assert_eq!(life.invalidations(), [RANGE]);
    assert!(life.invalidations().is_empty());
    life.put_back(RANGE);
    let _ = life.leave();
    assert!(life.invalidations().is_empty());
    assert!(matches!(life.discard(), Some(Command::Discard(V))));
    assert!(life.discard().is_none(), "the engine knows");
}

/// A second load is one of another device; what is cached by then is not of an earlier run.
#[test]
fn warmth_is_settled_once() {
    let mut life = new(Mutants::default());
    let _ = life.attached(&Ok(Answer::<()>::Attached { volume: V, warmth: Warmth::Loading }));
    let counters = |cached_blocks| VolumeCounters { cached_blocks, ..VolumeCounters::default() };
    life.settle(&counters(9));
    life.settle(&counters(10));
    assert_eq!(life.warmth(), Warmth::Warm { blocks: 9 });
}

/// What a crash finds between its attach and the end of the dropping must prove nothing.
#[test]
fn one_that_others_wrote_records_no_proof_until_their_changes_are_dropped() {
    let proof = || Some(ProofToken([1; 64]));
    let mut life = new(Mutants::default());
    let spec = VolumeSpec { proof: proof(), ..VolumeSpec::new("v".into(), 1 << 20) };
    let command = life.attach_returned(spec, &[RANGE]);
    let Command::Attach(spec) = command else { panic!("{command:?}") };
    assert_eq!((spec.belief, spec.proof), (Belief::Unchanged, None));
    assert!(life.is_returning() && !life.has_returned(0), "nothing is dropped yet");
    let answer = Ok(Answer::<()>::Attached { volume: V, warmth: Warmth::Loading });
    life.attached(&answer).expect("it serves");
    assert_eq!(life.proof_to_record(proof()), None, "a heartbeat's");
    assert_eq!(life.invalidations(), [RANGE]);
    assert!(!life.has_returned(1), "it is under way");
    life.put_back(RANGE);
    assert!(!life.has_returned(0), "it failed, and is to be tried again");
    assert_eq!(life.invalidations(), [RANGE]);
    assert_eq!(life.proof_to_record(proof()), None);
    assert!(life.has_returned(0) && !life.has_returned(0), "once");
    assert_eq!(life.proof_to_record(proof()), proof());
    assert!(!serving().has_returned(0), "it was not away");
}

/// A range that could not be dropped when the volume leaves takes all of its blocks along.
#[test]
fn one_that_leaves_before_changes_are_dropped_keeps_nothing() {
    let mut life = new(Mutants::default());
    let _attach = life.attach_returned(VolumeSpec::new("v".into(), 1 << 20), &[RANGE]);
    let answer = Ok(Answer::<()>::Attached { volume: V, warmth: Warmth::New });
    life.attached(&answer).expect("it serves");
    assert!(life.leave().is_some());
    assert!(matches!(life.discard(), Some(Command::Discard(V))));
}
