//! Long requests of one tenant, and what others notice of them; and their order.

use super::Routed;
use super::tests::{Blocks, Rig, span};
use crate::limits::{EXTRA_PARTS_MAX, REQUESTS_MAX};
use crate::mutant::Mutant;
use crate::mutant::Mutants;
use crate::units::{BLOCK_BYTES, ByteSpan, VolumeId};
use crate::{Answer, Command, Event, Failure, IoError, Op, Payload, RequestId};

const VOLUME_PARTS: u32 = EXTRA_PARTS_MAX / 8;

impl Rig {
    fn trim(&mut self, id: u64, volume: VolumeId, block: u64, blocks: u64) {
        let op = Op::Trim { span: span(block, blocks), fua: false };
        assert!(self.submit_as(id, volume, op).is_none());
    }

    fn write(&mut self, id: u64, volume: VolumeId, block: u64, blocks: u64) {
        let data = Blocks::alloc(blocks as u32);
        let op = Op::Write { span: span(block, blocks), data, fua: false };
        assert!(self.submit_as(id, volume, op).is_none());
    }

    fn read(&mut self, id: u64, volume: VolumeId, block: u64) {
        let op = Op::Read { span: span(block, 1), data: Blocks::alloc(1) };
        assert!(self.submit_as(id, volume, op).is_none());
    }

    fn asked_ops(&self) -> impl Iterator<Item = &Op<Blocks>> {
        self.asked.iter().filter_map(|routed| match &routed.event {
            Event::Submit(request) => Some(&request.op),
            _ => None,
        })
    }

    /// Answers the oldest part; gives who has the answer to all of it then.
    fn answer_next(&mut self) -> Option<u64> {
        let shard = self.asked.first().expect("something is under way").shard;
        self.reply(shard, Ok(Answer::Done)).map(|reply| reply.id.0)
    }

    fn late(&mut self, id: u64) -> Option<Failure> {
        let mut sent = Vec::new();
        let reply = self.router.late(RequestId(id), &mut |routed| sent.push(routed));
        self.note(sent);
        reply.map(|reply| reply.result.expect_err("it was not served"))
    }
}

/// How many parts are under way when tenants with full queues give up all they have.
fn parts_of_long_trims(mutants: Mutants) -> usize {
    let mut rig = Rig::new(mutants);
    let volumes: Vec<_> = (0..12).map(|_| rig.attach()).collect();
    for n in 0..512 {
        for volume in &volumes {
            rig.trim(n, *volume, n * 2000, 2000);
        }
    }
    let mut per_shard = [0; 3];
    rig.asked.iter().for_each(|routed| per_shard[routed.shard as usize] += 1);
    // The others' requests, all in one shard.
    per_shard.into_iter().max().expect("three shards") + 14_336 - 12 * 512
}

#[test]
fn all_go_on_whatever_the_others_have_under_way() {
    let mut rig = Rig::new(Mutants::default());
    let volumes: Vec<_> = (0..10).map(|_| rig.attach()).collect();
    for n in 0..16 {
        for volume in &volumes {
            rig.trim(n, *volume, n * 200, 200);
        }
    }
    assert_eq!(rig.asked.len(), 160 + EXTRA_PARTS_MAX as usize);
    let mut answered = 0;
    while answered < 160 {
        answered += usize::from(rig.answer_next().is_some());
    }
    assert!(rig.asked.is_empty());
    rig.write(1, volumes[0], 2, 30);
    assert_eq!(rig.asked.len(), 8, "all are given back");
}

#[test]
fn long_trims_leave_room_for_the_others() {
    assert!(parts_of_long_trims(Mutants::default()) <= REQUESTS_MAX);
}

#[test]
fn a_tenant_that_fills_the_engine_is_found() {
    assert!(parts_of_long_trims(Mutants::only(Mutant::PartsUnbounded)) > REQUESTS_MAX);
}

#[test]
fn one_volume_leaves_parts_to_the_next() {
    let mut rig = Rig::new(Mutants::default());
    let (first, second) = (rig.attach(), rig.attach());
    for n in 0..100 {
        rig.trim(n, first, n * 400, 400);
    }
    assert_eq!(rig.asked.len(), 100 + VOLUME_PARTS as usize);
    rig.trim(1, second, 0, 400);
    assert_eq!(rig.asked.len(), 100 + VOLUME_PARTS as usize + 32);
}

/// A trim of many parts, then a read and a write of what no shard has been told of yet.
fn overtaken(mutants: Mutants, op: impl Fn(ByteSpan) -> Op<Blocks>) -> bool {
    let mut rig = Rig::new(mutants);
    let volume = rig.attach();
    assert!(rig.submit_as(1, volume, op(span(0, 4000))).is_none());
    assert_eq!(rig.asked.len(), 32);
    rig.write(2, volume, 3001, 1);
    rig.read(3, volume, 3001);
    // What will be refused does not wait.
    let wild = ByteSpan::new(3001 * BLOCK_BYTES, 511);
    assert!(rig.submit_as(6, volume, Op::Trim { span: wild, fua: false }).is_none());
    // Of another place; and a flush covers what was answered only.
    rig.read(4, volume, 9000);
    assert!(rig.submit_as(5, volume, Op::Flush).is_none());
    let mut reached = false;
    let mut order = Vec::new();
    let mut answered = Vec::new();
    while let Some(Routed { event: Event::Submit(request), .. }) = rig.asked.first() {
        match &request.op {
            Op::Write { .. } => order.push(('w', reached)),
            Op::Read { span, .. } if span.first_block() == 3001 => order.push(('r', reached)),
            Op::Read { .. } | Op::Flush => assert!(!reached, "it does not wait"),
            Op::Trim { span, .. } if *span == wild => assert!(!reached, "it does not wait"),
            Op::Trim { span, .. } | Op::Invalidate { span } | Op::WriteZeroes { span, .. } => {
                reached |= (span.first_block()..span.end_block()).contains(&3001);
            }
        }
        answered.extend(rig.answer_next());
    }
    answered.sort_unstable();
    assert_eq!(answered, [1, 2, 3, 4, 5, 6]);
    order != [('w', true), ('r', true)]
}

#[test]
fn nothing_overtakes_parts_that_are_still_to_be_sent() {
    assert!(!overtaken(Mutants::default(), |span| Op::Trim { span, fua: false }));
    assert!(!overtaken(Mutants::default(), |span| Op::Invalidate { span }));
    assert!(!overtaken(Mutants::default(), |span| Op::WriteZeroes {
        span,
        fua: true,
        may_punch: true
    }));
}

#[test]
fn what_overtakes_an_invalidation_is_found() {
    assert!(overtaken(Mutants::only(Mutant::PartsOvertaken), |span| Op::Invalidate { span }));
}

/// What shards get of an invalidation of so many blocks: when it has been accepted, behind a long
/// trim or not, and when that and it have been answered.
fn told_of_an_invalidation(mutants: Mutants, behind: bool, blocks: u64) -> [Vec<(u32, bool)>; 2] {
    let mut rig = Rig::new(mutants);
    let volume = rig.attach();
    if behind {
        rig.trim(1, volume, 0, 400_000);
    }
    assert!(rig.submit_as(2, volume, Op::Invalidate { span: span(3000, blocks) }).is_none());
    let begun = std::mem::take(&mut rig.told);
    let detach = Command::Detach(volume);
    assert!(rig.control(3, &detach).is_none());
    let detached = |rig: &Rig| {
        let detach = |routed: &Routed<Blocks>| matches!(routed.event, Event::Control(..));
        rig.asked.iter().any(detach)
    };
    let mut answered = Vec::new();
    while !rig.asked.is_empty() {
        let before = rig.told.len();
        assert!(!detached(&rig) || rig.told.len() == begun.len(), "not before they were told");
        answered.extend(rig.answer_next());
        assert!(rig.told.len() == before || answered.contains(&2), "not before it has ended");
    }
    answered.sort_unstable();
    assert_eq!(answered, if behind { vec![1, 2, 3] } else { vec![2, 3] }, "each is answered once");
    [begun, rig.told]
}

/// Until a shard knows of it, a flush of its own would cover what a server has lost.
#[test]
fn every_shard_is_told_of_an_invalidation_that_does_not_reach_it_at_once() {
    let all = |ends| (0..3).map(|shard| (shard, ends)).collect::<Vec<_>>();
    let sound = Mutants::default();
    for (behind, blocks) in [(true, 4000), (true, 1), (false, 4000)] {
        assert_eq!(told_of_an_invalidation(sound, behind, blocks), [all(false), all(true)]);
    }
    let nothing = [vec![], vec![]];
    assert_eq!(told_of_an_invalidation(sound, false, 1), nothing, "it reaches its shard at once");
}

#[test]
fn an_invalidation_that_is_not_announced_is_found() {
    let mutants = Mutants::only(Mutant::InvalidationInParts);
    assert_eq!(told_of_an_invalidation(mutants, true, 4000), [vec![], vec![]]);
}

/// One that waits in the router, and one of which some parts are under way.
#[test]
fn an_invalidation_that_takes_too_long_ends_in_every_shard() {
    let mut rig = Rig::new(Mutants::default());
    let volume = rig.attach();
    rig.trim(1, volume, 0, 400_000);
    for (id, block) in [(2, 3000), (3, 500_000)] {
        assert!(rig.submit_as(id, volume, Op::Invalidate { span: span(block, 4000) }).is_none());
    }
    assert_eq!(rig.told.len(), 6);
    assert_eq!(rig.late(2), Some(Failure::Io(IoError::TimedOut)));
    assert_eq!(rig.told.iter().filter(|(_, ends)| *ends).count(), 3);
    assert_eq!(rig.late(3), None, "some shards have parts of it");
    let mut answered = Vec::new();
    while !rig.asked.is_empty() {
        let late = matches!(rig.asked[0].event, Event::Late(_));
        if late {
            rig.asked.remove(0);
        } else {
            answered.extend(rig.answer_next());
        }
    }
    assert_eq!(rig.told.iter().filter(|(_, ends)| *ends).count(), 6);
    answered.sort_unstable();
    assert_eq!(answered, [1, 3]);
}

#[test]
fn what_is_waited_for_is_sent_next() {
    let mut rig = Rig::new(Mutants::default());
    let volume = rig.attach();
    rig.trim(1, volume, 0, 400_000);
    rig.read(2, volume, 300_001);
    rig.read(3, volume, 399_999);
    for _ in 0..2 {
        assert!(rig.answer_next().is_none());
    }
    let reads = rig.asked_ops().filter(|op| matches!(op, Op::Read { .. })).count();
    assert_eq!(reads, 2, "not after 100,000 parts");
    let mut trimmed = rig.router.split_requests();
    while !rig.asked.is_empty() {
        trimmed += u64::from(rig.answer_next() == Some(1));
    }
    assert_eq!(trimmed, 2);
}

/// A detach comes after all that was accepted before, waiting or not.
#[test]
fn a_detach_waits_for_those_that_wait() {
    let mut rig = Rig::new(Mutants::default());
    let volume = rig.attach();
    rig.trim(1, volume, 0, 4000);
    rig.trim(2, volume, 2000, 4000);
    rig.write(3, volume, 3999, 9);
    let asked = &mut rig.asked;
    let detach = Command::Detach(volume);
    assert!(rig.router.control(RequestId(4), &detach, &mut |routed| asked.push(routed)).is_none());
    let mut answered = Vec::new();
    while let Some(Routed { event, .. }) = rig.asked.first() {
        if matches!(event, Event::Control(..)) {
            answered.sort_unstable();
            assert_eq!(answered, [1, 2, 3]);
        }
        answered.extend(rig.answer_next());
    }
    assert_eq!(answered, [1, 2, 3, 4]);
}

#[test]
fn a_request_whose_time_is_over_goes_wherever_it_is() {
    let mut rig = Rig::new(Mutants::default());
    let volume = rig.attach();
    rig.trim(1, volume, 0, 4000);
    rig.write(2, volume, 3001, 1);
    rig.read(3, volume, 3001);
    let timed_out = Failure::Io(IoError::TimedOut);
    assert_eq!(rig.late(2), Some(timed_out), "no shard has seen it");
    assert_eq!(rig.late(9), None);
    let before = rig.asked.len();
    // What is not sent never is; the shards answer for the rest.
    assert_eq!(rig.late(1), None);
    let late = rig.asked.iter().filter(|routed| matches!(routed.event, Event::Late(_))).count();
    assert_eq!((late, rig.asked.len()), (3, before + 4), "a word each, and the read");
    rig.asked.retain(|routed| matches!(routed.event, Event::Submit(_)));
    let mut answers = Vec::new();
    while let Some(first) = rig.asked.first() {
        let shard = first.shard;
        let trim = matches!(&first.event, Event::Submit(r) if matches!(r.op, Op::Trim { .. }));
        let result = if trim { Err(timed_out) } else { Ok(Answer::Done) };
        answers.extend(rig.reply(shard, result).map(|reply| (reply.id.0, reply.result.is_ok())));
    }
    assert_eq!(answers, [(1, false), (3, true)]);
    assert_eq!(BLOCK_BYTES, 4096);
}

/// A back end that falls silent under many requests costs each shard its own of them, not all.
#[test]
fn only_the_shards_that_have_a_late_request_hear_of_it() {
    let mut rig = Rig::new(Mutants::default());
    let volume = rig.attach();
    for n in 0..300 {
        rig.read(n, volume, n);
    }
    // Two of its stripes, which two shards have.
    rig.write(300, volume, 3, 2);
    let had: Vec<_> = rig.asked.drain(..).map(|routed| (routed.shard, id_of(&routed))).collect();
    assert_eq!(had.len(), 302);
    let asked = &mut rig.asked;
    let late = (0..=300).rev().map(RequestId).collect();
    let replies = rig.router.all_late(late, &mut |routed| asked.push(routed));
    assert!(replies.is_empty(), "the shards answer");
    let heard: Vec<_> = rig.asked.iter().map(|routed| (routed.shard, id_of(routed))).collect();
    assert_eq!(heard, had);
}

/// Those that wait are taken out before any of them goes on.
#[test]
fn all_that_wait_and_are_late_are_answered_at_once() {
    let mut rig = Rig::new(Mutants::default());
    let volume = rig.attach();
    rig.trim(1, volume, 0, 4000);
    for n in 2..50 {
        rig.write(n, volume, 3001, 1);
    }
    let before = rig.asked.len();
    let asked = &mut rig.asked;
    let replies =
        rig.router.all_late((1..50).map(RequestId).collect(), &mut |routed| asked.push(routed));
    let answered: Vec<u64> = replies.iter().map(|reply| reply.id.0).collect();
    assert_eq!(answered, (2..50).collect::<Vec<_>>());
    assert_eq!(rig.asked.len(), before + 3, "a word to each shard");
}

fn id_of(routed: &Routed<Blocks>) -> RequestId {
    match &routed.event {
        Event::Submit(request) => request.id,
        Event::Late(id) => *id,
        other => panic!("{other:?}"),
    }
}
