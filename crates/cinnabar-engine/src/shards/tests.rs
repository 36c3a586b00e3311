//! The router alone, with shards that answer what the test says.

use super::{Owner, Routed, Router, ShardMap};
use crate::Config;
use crate::metadata::superblock::Geometry;
use crate::mutant::Mutants;
use crate::units::{BLOCK_BYTES, ByteSpan, VolumeId};
use crate::volume::{VolumeSpec, Warmth};
use crate::{Answer, Command, Event, Failure, IoError, Op, Payload, Reply, Request, RequestId};
use std::cell::RefCell;
use std::rc::Rc;

/// One number a block.
#[derive(Clone, Debug)]
pub(super) struct Blocks(pub(super) Rc<RefCell<Vec<u64>>>);

impl Payload for Blocks {
    fn alloc(blocks: u32) -> Self {
        Self(Rc::new(RefCell::new(vec![0; blocks as usize])))
    }
    fn copy_from(&self, at: u64, from: &Self, from_at: u64, len: u64) {
        for block in 0..len / BLOCK_BYTES {
            let value = from.0.borrow()[(from_at / BLOCK_BYTES + block) as usize];
            self.0.borrow_mut()[(at / BLOCK_BYTES + block) as usize] = value;
        }
    }
    fn zero(&self, _: u64, _: u64) {}
    fn checksum(&self, _: u64, _: u64) -> u32 {
        0
    }
}

/// A router over three shards with stripes of four blocks, and what it asked of them.
pub(super) struct Rig {
    pub(super) router: Router<Blocks>,
    pub(super) asked: Vec<Routed<Blocks>>,
    /// Of an invalidation, to which no shard replies: whether it ends.
    pub(super) told: Vec<(u32, bool)>,
    volumes: u16,
}

const SIZE_BLOCKS: u64 = 1 << 20;

impl Rig {
    pub(super) fn new(mutants: Mutants) -> Self {
        let geometry = Geometry::for_capacity(1020, 1).divided(3, 2);
        let config = Config { mutants, ..Config::default() };
        let router = Router::new(ShardMap::of(&geometry), &config);
        Self { router, asked: Vec::new(), told: Vec::new(), volumes: 0 }
    }

    fn attached() -> (Self, VolumeId) {
        let mut rig = Self::new(Mutants::default());
        let volume = rig.attach();
        (rig, volume)
    }

    pub(super) fn attach(&mut self) -> VolumeId {
        let rig = self;
        assert!(rig.control(1, &Command::Attach(spec())).is_none());
        let mut volume = None;
        for shard in [2, 0, 1] {
            let inner = VolumeId(10 * (1 + rig.volumes) + shard as u16);
            let warmth = Warmth::Warm { blocks: 5 };
            let reply = rig.answer(shard, Ok(Answer::Attached { volume: inner, warmth }));
            assert_eq!(reply.is_some(), shard == 1, "all must have answered");
            if let Some(Ok(Answer::Attached { volume: outer, warmth })) = reply {
                assert_eq!(warmth, Warmth::Warm { blocks: 15 });
                volume = Some(outer);
            }
        }
        rig.volumes += 1;
        volume.expect("attached")
    }

    pub(super) fn control(&mut self, id: u64, command: &Command) -> Option<Reply<Blocks>> {
        let mut sent = Vec::new();
        let reply = self.router.control(RequestId(id), command, &mut |routed| sent.push(routed));
        self.note(sent);
        reply
    }

    pub(super) fn submit(&mut self, volume: VolumeId, op: Op<Blocks>) -> Option<Reply<Blocks>> {
        self.submit_as(7, volume, op)
    }

    pub(super) fn submit_as(
        &mut self,
        id: u64,
        volume: VolumeId,
        op: Op<Blocks>,
    ) -> Option<Reply<Blocks>> {
        let request = Request { id: RequestId(id), volume, op };
        let mut sent = Vec::new();
        let reply = self.router.submit(request, &mut |routed| sent.push(routed));
        self.note(sent);
        reply
    }

    pub(super) fn note(&mut self, sent: Vec<Routed<Blocks>>) {
        for routed in sent {
            match routed.event {
                Event::Invalidating(_) => self.told.push((routed.shard, false)),
                Event::Invalidated(_) => self.told.push((routed.shard, true)),
                _ => self.asked.push(routed),
            }
        }
    }

    /// Answers the oldest thing that a shard was asked.
    pub(super) fn answer(
        &mut self,
        shard: u32,
        result: Result<Answer<Blocks>, Failure>,
    ) -> Option<Result<Answer<Blocks>, Failure>> {
        self.reply(shard, result).map(|reply| reply.result)
    }

    pub(super) fn reply(
        &mut self,
        shard: u32,
        result: Result<Answer<Blocks>, Failure>,
    ) -> Option<Reply<Blocks>> {
        self.reply_to(0, shard, result)
    }

    /// The same for the thing that it was asked after so many others that it has not answered.
    fn reply_to(
        &mut self,
        nth: usize,
        shard: u32,
        result: Result<Answer<Blocks>, Failure>,
    ) -> Option<Reply<Blocks>> {
        let of_shard =
            |(at, routed): (usize, &Routed<Blocks>)| (routed.shard == shard).then_some(at);
        let at = self.asked.iter().enumerate().filter_map(of_shard).nth(nth).expect("was asked");
        let id = match self.asked.remove(at).event {
            Event::Submit(request) => request.id,
            Event::Control(id, _) => id,
            other => panic!("{other:?}"),
        };
        let (reply, mut sent) = (Reply { id, result }, Vec::new());
        let reply = self.router.reply(shard, reply, &mut |routed| sent.push(routed));
        self.note(sent);
        reply
    }
}

fn spec() -> VolumeSpec {
    let spec = VolumeSpec::new("volume".into(), SIZE_BLOCKS * BLOCK_BYTES);
    VolumeSpec { share_min_blocks: 300, ..spec }
}

pub(super) fn span(block: u64, blocks: u64) -> ByteSpan {
    ByteSpan::new(block * BLOCK_BYTES, blocks * BLOCK_BYTES)
}

#[test]
fn a_read_across_shards_is_put_together_in_order() {
    let (mut rig, volume) = Rig::attached();
    let data = Blocks::alloc(9);
    // Half a block is not asked for at either end.
    let wanted = ByteSpan::new(2 * BLOCK_BYTES + 2048, 8 * BLOCK_BYTES);
    assert!(rig.submit(volume, Op::Read { span: wanted, data: data.clone() }).is_none());
    assert_eq!(rig.router.split_requests(), 1);
    let mut parts = Vec::new();
    for routed in &rig.asked {
        let Event::Submit(Request { volume, op: Op::Read { span, data }, .. }) = &routed.event
        else {
            panic!("{:?}", routed.event)
        };
        assert_eq!(*volume, VolumeId(10 + routed.shard as u16));
        assert_eq!(data.0.borrow().len() as u64, span.blocks());
        for (block, value) in (span.first_block()..).zip(data.0.borrow_mut().iter_mut()) {
            *value = 100 + block;
        }
        parts.push((routed.shard, *span, data.clone()));
    }
    assert_eq!(parts.iter().map(|part| part.1.len).sum::<u64>(), wanted.len);
    for (shard, _, own) in parts.into_iter().rev() {
        let reply = rig.answer(shard, Ok(Answer::Data(own)));
        assert_eq!(reply.is_some(), rig.asked.is_empty());
    }
    assert_eq!(*data.0.borrow(), (102..111).collect::<Vec<_>>());
}

#[test]
fn a_write_across_shards_fails_if_a_part_does_and_waits_for_all() {
    let (mut rig, volume) = Rig::attached();
    let data = Blocks(Rc::new(RefCell::new((0..6).collect())));
    assert!(rig.submit(volume, Op::Write { span: span(3, 6), data, fua: true }).is_none());
    let mut seen = Vec::new();
    for routed in &rig.asked {
        let Event::Submit(Request { op: Op::Write { span, data, fua }, .. }) = &routed.event else {
            panic!("{:?}", routed.event)
        };
        assert!(fua);
        seen.extend((span.first_block()..).zip(data.0.borrow().iter().copied()));
    }
    assert_eq!(seen, (0..6).map(|i| (3 + i, i)).collect::<Vec<_>>());
    let shards: Vec<u32> = rig.asked.iter().map(|routed| routed.shard).collect();
    assert!(rig.answer(shards[0], Err(Failure::Io(IoError::NoSpace))).is_none());
    assert!(rig.answer(shards[1], Ok(Answer::Done)).is_none());
    let reply = rig.answer(shards[2], Ok(Answer::Done)).expect("the last");
    assert_eq!(reply.expect_err("failed"), Failure::Io(IoError::NoSpace));
}

#[test]
fn what_a_shard_would_refuse_is_not_carried_out_in_part() {
    let (mut rig, volume) = Rig::attached();
    let end = SIZE_BLOCKS * BLOCK_BYTES;
    let beyond = [
        ByteSpan::new(end - 4 * BLOCK_BYTES, 9 * BLOCK_BYTES),
        ByteSpan::new(u64::MAX - 511, 1024),
    ];
    for span in beyond {
        let reply = rig.submit(volume, Op::Trim { span, fua: false }).expect("at once");
        assert_eq!(reply.result.expect_err("refused"), Failure::Invalid);
    }
    for span in [ByteSpan::new(100, 8 * BLOCK_BYTES), ByteSpan::new(0, 0)] {
        assert!(rig.submit(volume, Op::Trim { span, fua: false }).is_none());
        assert_eq!(rig.asked.len(), 1, "{span:?} goes to one shard, which refuses it");
        let shard = rig.asked[0].shard;
        let reply = rig.answer(shard, Err(Failure::Invalid)).expect("at once");
        assert_eq!(reply.expect_err("refused"), Failure::Invalid);
    }
    let reply = rig.submit(VolumeId(9), Op::Flush).expect("at once");
    assert_eq!(reply.result.expect_err("unknown"), Failure::NoVolume);
}

#[test]
fn a_long_trim_is_begun_bit_by_bit_and_a_flush_goes_to_all() {
    let (mut rig, volume) = Rig::attached();
    assert!(rig.submit(volume, Op::Trim { span: span(0, 4000), fua: false }).is_none());
    let (mut trimmed, mut longest) = (0, 0);
    loop {
        longest = longest.max(rig.asked.len());
        let Some(first) = rig.asked.first() else { panic!("no answer") };
        let Event::Submit(Request { op: Op::Trim { span, .. }, .. }) = &first.event else {
            panic!("{:?}", first.event)
        };
        trimmed += span.blocks();
        let shard = first.shard;
        if let Some(reply) = rig.answer(shard, Ok(Answer::Done)) {
            reply.expect("all went well");
            break;
        }
    }
    assert_eq!((trimmed, rig.asked.len()), (4000, 0));
    assert!(longest <= 32, "{longest} at a time");
    assert!(rig.submit(volume, Op::Flush).is_none());
    assert_eq!(rig.asked.len(), 3);
    assert!(rig.answer(0, Ok(Answer::Done)).is_none());
    assert!(rig.answer(2, Ok(Answer::Done)).is_none());
    rig.answer(1, Ok(Answer::Done)).expect("the last").expect("well");
}

#[test]
fn a_detach_waits_for_what_was_accepted_before() {
    let (mut rig, volume) = Rig::attached();
    assert!(rig.submit(volume, Op::Trim { span: span(0, 400), fua: false }).is_none());
    assert!(rig.control(2, &Command::Detach(volume)).is_none());
    let again = rig.control(3, &Command::Detach(volume)).expect("at once");
    assert_eq!(again.result.expect_err("it leaves"), Failure::NoVolume);
    let refused = rig.submit(volume, Op::Flush).expect("at once");
    assert_eq!(refused.result.expect_err("it leaves"), Failure::NoVolume);
    let mut answered = 0;
    while let Some(routed) = rig.asked.first() {
        let (shard, trim) = (routed.shard, matches!(routed.event, Event::Submit(_)));
        assert!(trim || answered == 100, "after {answered} of 100 parts");
        answered += u32::from(trim);
        rig.answer(shard, Ok(Answer::Done));
    }
    assert_eq!(answered, 100);
}

#[test]
fn an_attach_that_one_shard_refuses_is_taken_back_in_the_others() {
    let mut rig = Rig::new(Mutants::default());
    assert!(rig.control(1, &Command::Attach(spec())).is_none());
    let Event::Control(_, Command::Attach(part)) = &rig.asked[0].event else { panic!("an attach") };
    assert_eq!((part.share_min_blocks, part.share_max_blocks), (100, u64::MAX));
    let inner = VolumeId(4);
    let attached = Answer::Attached { volume: inner, warmth: Warmth::New };
    assert!(rig.answer(0, Ok(attached.clone())).is_none());
    assert_eq!(rig.router.owner(0, inner), Owner::NotYet);
    assert!(rig.answer(1, Err(Failure::Limit)).is_none());
    assert!(rig.answer(2, Ok(attached)).is_none());
    // Their last flush has no requester any more.
    assert_eq!(rig.router.owner(0, inner), Owner::None);
    assert!(rig.answer(2, Err(Failure::Io(IoError::Io))).is_none());
    assert!(rig.answer(0, Ok(Answer::Done)).is_none());
    let sealed = matches!(&rig.asked[0].event, Event::Control(_, Command::Seal(VolumeId(4), None)));
    assert!(sealed && rig.asked.len() == 1, "{:?}", rig.asked);
    let reply = rig.answer(0, Ok(Answer::Done)).expect("the last");
    assert_eq!(reply.expect_err("refused"), Failure::Limit);
    assert_eq!(rig.router.owner(0, inner), Owner::NotYet, "forgotten");
}

#[test]
fn a_detach_that_fails_in_one_shard_leaves_no_proof_in_the_others() {
    let (mut rig, volume) = Rig::attached();
    assert!(rig.control(2, &Command::Detach(volume)).is_none());
    assert!(rig.answer(0, Ok(Answer::Done)).is_none());
    assert!(rig.answer(1, Err(Failure::Io(IoError::Io))).is_none());
    assert!(rig.answer(2, Ok(Answer::Done)).is_none());
    assert_eq!(rig.asked.len(), 2, "{:?}", rig.asked);
    assert!(rig.answer(0, Ok(Answer::Done)).is_none());
    let reply = rig.answer(2, Ok(Answer::Done)).expect("the last");
    assert_eq!(reply.expect_err("failed"), Failure::Io(IoError::Io));
    assert_eq!(rig.control(3, &Command::Detach(volume)).map(|r| r.result.is_err()), Some(true));
}

/// Until all shards know of a volume's new size, the first one must not take for its own what
/// lies in all of them.
#[test]
fn nothing_beyond_the_size_that_all_shards_know_of_reaches_one_of_them() {
    let (mut rig, volume) = Rig::attached();
    let bytes = (SIZE_BLOCKS + 100) * BLOCK_BYTES;
    assert!(rig.control(1, &Command::Grow(volume, bytes, None)).is_none());
    assert!(rig.answer(0, Ok(Answer::Done)).is_none());
    let beyond = ByteSpan::new(SIZE_BLOCKS * BLOCK_BYTES, BLOCK_BYTES);
    let trim = Op::Trim { span: beyond, fua: false };
    let refused = rig.submit(volume, trim).expect("it is answered at once");
    assert_eq!(refused.result.err(), Some(Failure::Invalid));
    // What all shards hold is dropped in all of them.
    let all = Op::Invalidate { span: ByteSpan::new(0, bytes) };
    let before = rig.asked.len();
    assert!(rig.submit(volume, all).is_none());
    let mut shards: Vec<u32> = rig.asked[before..].iter().map(|routed| routed.shard).collect();
    shards.sort_unstable();
    shards.dedup();
    assert_eq!(shards, [0, 1, 2]);
}

fn resized(rig: &Rig) -> Vec<(u32, u32)> {
    let of = |routed: &Routed<Blocks>| match &routed.event {
        Event::Control(_, Command::Resize { segments, .. }) => (routed.shard, *segments),
        other => panic!("{other:?}"),
    };
    rig.asked.iter().map(of).collect()
}

/// Shards of different sizes would divide no volume evenly, and no operator could say what there is.
#[test]
fn what_one_shard_can_not_do_is_taken_back_in_all_of_them() {
    let mut rig = Rig::new(Mutants::default());
    let resize = Command::Resize { segments: 40, otherwise: 20 };
    assert!(rig.control(3, &resize).is_none());
    assert!(rig.answer(0, Ok(Answer::Done)).is_none(), "one is as large as it should be");
    assert!(rig.answer(1, Err(Failure::Io(IoError::NoSpace))).is_none());
    assert_eq!(resized(&rig), [(2, 40), (0, 20), (1, 20), (2, 20)]);
    assert!(rig.answer(2, Err(Failure::Interrupted)).is_none(), "by its way back");
    for shard in 0..2 {
        assert!(rig.answer(shard, Ok(Answer::Done)).is_none());
    }
    let answer = rig.answer(2, Ok(Answer::Done)).expect("all have answered");
    assert_eq!(answer.err(), Some(Failure::Io(IoError::NoSpace)));
    assert!(!rig.router.is_uneven());
}

/// One shard has given its room back already when another refuses, and gets none any more.
#[test]
fn a_shard_that_can_not_go_back_is_told_of_until_the_next_resize() {
    let mut rig = Rig::new(Mutants::default());
    let resize = Command::Resize { segments: 20, otherwise: 40 };
    assert!(rig.control(3, &resize).is_none());
    assert!(rig.answer(0, Ok(Answer::Done)).is_none(), "one is as small as it should be");
    assert!(rig.answer(1, Err(Failure::Limit)).is_none());
    assert!(rig.answer(2, Err(Failure::Limit)).is_none(), "it has not begun");
    assert!(rig.answer(0, Err(Failure::Io(IoError::NoSpace))).is_none(), "its way back");
    assert!(rig.answer(1, Ok(Answer::Done)).is_none());
    let answer = rig.answer(2, Ok(Answer::Done)).expect("all have answered");
    assert_eq!(answer.err(), Some(Failure::Limit));
    assert!(rig.router.is_uneven());
    assert!(rig.control(4, &Command::Resize { segments: 40, otherwise: 40 }).is_none());
    for shard in 0..3 {
        rig.answer(shard, Ok(Answer::Done));
    }
    assert!(!rig.router.is_uneven());
}

/// Two threads have run the shard one after the other, and are heard the other way round.
#[test]
fn a_way_back_that_is_heard_of_first_is_not_taken_for_the_way_there() {
    let mut rig = Rig::new(Mutants::default());
    assert!(rig.control(3, &Command::Resize { segments: 20, otherwise: 40 }).is_none());
    assert!(rig.answer(1, Err(Failure::Limit)).is_none());
    assert_eq!(resized(&rig), [(0, 20), (2, 20), (0, 40), (1, 40), (2, 40)]);
    let no_room = Err(Failure::Io(IoError::NoSpace));
    assert!(rig.reply_to(1, 0, no_room).is_none(), "its way back");
    assert!(rig.answer(0, Ok(Answer::Done)).is_none(), "it had become small");
    assert!(rig.reply_to(1, 2, Ok(Answer::Done)).is_none());
    assert!(rig.answer(2, Err(Failure::Interrupted)).is_none(), "by its way back");
    let answer = rig.answer(1, Ok(Answer::Done)).expect("all have answered");
    assert_eq!(answer.err(), Some(Failure::Limit));
    assert!(rig.router.is_uneven());
}

#[test]
fn a_resize_that_another_one_overtakes_takes_nothing_back() {
    let mut rig = Rig::new(Mutants::default());
    let to = |segments, otherwise| Command::Resize { segments, otherwise };
    assert!(rig.control(3, &to(40, 20)).is_none());
    assert!(rig.control(4, &to(30, 20)).is_none());
    assert_eq!(resized(&rig), [(0, 40), (1, 40), (2, 40), (0, 30), (1, 30), (2, 30)]);
    for shard in 0..3 {
        let failure = if shard == 1 { Failure::Limit } else { Failure::Interrupted };
        let answer = rig.reply(shard, Err(failure));
        let answered = answer.map(|reply| (reply.id, reply.result.err()));
        let last = Some((RequestId(3), Some(Failure::Interrupted)));
        assert_eq!(answered, last.filter(|_| shard == 2));
    }
    assert_eq!(resized(&rig), [(0, 30), (1, 30), (2, 30)], "nothing else was sent");
    for shard in 0..3 {
        let answer = rig.reply(shard, Ok(Answer::Done));
        assert_eq!(
            answer.map(|reply| (reply.id, reply.result.is_ok())),
            (shard == 2).then_some((RequestId(4), true))
        );
    }
}
