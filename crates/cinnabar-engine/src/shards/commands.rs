//! Operators' commands: each shard carries them out, and the answer sums up the shards' answers.
//!
//! A volume is in all shards or in none: an attach or detach that fails in one is taken back in the
//! others before the answer is sent.

use super::Routed;
use super::router::{Join, Phase, RoutedVolume, Router, id_of, refusal, share};
use crate::health::{LoadReport, Start};
use crate::units::VolumeId;
use crate::volume::{VolumeSpec, Warmth};
use crate::{Answer, Command, Event, Failure, Payload, Reply, RequestId};
use smallvec::smallvec;
use std::collections::VecDeque;

/// A command under way.
pub(super) struct CommandJoin {
    id: RequestId,
    what: What,
    outstanding: u32,
    failure: Option<Failure>,
    /// A shard could not go back to the size that it had.
    uneven: bool,
    /// Shards that know nothing of the volume to be forgotten.
    unknown: u32,
    report: Option<LoadReport>,
    warmth: Option<Warmth>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Load,
    Attach(VolumeId),
    /// An attach failed in some shard: the others detach, then drop what they hold of it.
    TakeBack(VolumeId),
    Detach(VolumeId),
    Seal(VolumeId),
    /// To so many bytes.
    Grow(VolumeId, u64),
    Forget,
    /// To so many segments in each shard, or back to so many.
    Resize {
        otherwise: u32,
    },
    /// A shard could not: all go back.
    ResizeBack,
    Other,
}

impl<P: Payload> Router<P> {
    /// An operator's command. Answered at once only if it can't be carried out.
    pub fn control(
        &mut self,
        id: RequestId,
        command: &Command,
        to: &mut impl FnMut(Routed<P>),
    ) -> Option<Reply<P>> {
        let what = match command {
            Command::AwaitLoad => What::Load,
            Command::Forget(_) => What::Forget,
            Command::Attach(spec) => match self.begin_attach(spec) {
                Some(volume) => What::Attach(volume),
                None => return Some(refusal(id, Failure::Limit)),
            },
            // One detach at a time: another would overtake the first, which may wait.
            Command::Detach(volume) if !self.is_attached(*volume) => {
                return Some(refusal(id, Failure::NoVolume));
            }
            Command::Seal(volume, _) if self.volume(*volume).is_none() => {
                return Some(refusal(id, Failure::NoVolume));
            }
            Command::Grow(volume, ..) if !self.is_attached(*volume) => {
                return Some(refusal(id, Failure::NoVolume));
            }
            Command::Discard(volume) if !self.is_served(*volume) => {
                return Some(refusal(id, Failure::NoVolume));
            }
            Command::Detach(volume) => What::Detach(*volume),
            Command::Seal(volume, _) => What::Seal(*volume),
            Command::Grow(volume, size_bytes, _) => What::Grow(*volume, *size_bytes),
            Command::Resize { otherwise, .. } => What::Resize { otherwise: *otherwise },
            Command::Open
            | Command::Discard(_)
            | Command::Replace(_)
            | Command::Abandon
            | Command::Close => What::Other,
        };
        let key = self.joins.insert(Join::Command(Box::new(CommandJoin {
            id,
            what,
            outstanding: 0,
            uneven: false,
            failure: None,
            unknown: 0,
            report: None,
            warmth: None,
        })));
        match command {
            Command::Resize { .. } => self.newest_resize = Some(key),
            // What that device's shards had is of no interest any more.
            Command::Open | Command::Replace(_) => self.uneven = false,
            _ => {}
        }
        if let Command::Detach(volume) = *command {
            self.begin_detach(key, volume, to);
        } else {
            self.send_to_all(key, command, to);
        }
        None
    }

    fn is_attached(&self, volume: VolumeId) -> bool {
        self.volume(volume).is_some_and(|known| known.phase == Phase::Attached)
    }

    /// Attached, or on its way out.
    fn is_served(&self, volume: VolumeId) -> bool {
        let served =
            |known: &RoutedVolume<P>| matches!(known.phase, Phase::Attached | Phase::Leaving);
        self.volume(volume).is_some_and(served)
    }

    fn send_to_all(&mut self, key: usize, command: &Command, to: &mut impl FnMut(Routed<P>)) {
        for shard in 0..self.map.shards() {
            if let Some(command) = self.for_shard(shard, command) {
                self.send_command(key, shard, command, to);
            }
        }
    }

    /// Refuses new requests; the shards hear of it once they have all parts of the old ones.
    fn begin_detach(&mut self, key: usize, volume: VolumeId, to: &mut impl FnMut(Routed<P>)) {
        let known = self.volumes[usize::from(volume.0)].as_mut().expect("a known volume");
        assert!(known.phase == Phase::Attached && known.detach.is_none(), "one detach at a time");
        known.phase = Phase::Leaving;
        if known.ranges.is_empty() && known.announced == 0 {
            self.send_to_all(key, &Command::Detach(volume), to);
        } else {
            known.detach = Some(key);
        }
    }

    /// Once the last part of the last split request has been sent, and no shard is to hear more of an
    /// invalidation, a detach goes on.
    pub(super) fn detach_if_sent(&mut self, volume: VolumeId, to: &mut impl FnMut(Routed<P>)) {
        let known = self.volumes[usize::from(volume.0)].as_mut().expect("it has a request");
        if known.ranges.is_empty()
            && known.announced == 0
            && let Some(key) = known.detach.take()
        {
            self.send_to_all(key, &Command::Detach(volume), to);
        }
    }

    fn begin_attach(&mut self, spec: &VolumeSpec) -> Option<VolumeId> {
        self.new_volume(RoutedVolume {
            first: self.map.first_shard(&spec.name),
            size_bytes: spec.size_bytes,
            ids: smallvec![None; self.map.shards() as usize],
            phase: Phase::Attaching,
            ranges: Vec::new(),
            waiting: VecDeque::new(),
            extra_parts: 0,
            announced: 0,
            detach: None,
        })
    }

    /// The part of one shard.
    fn for_shard(&self, shard: u32, command: &Command) -> Option<Command> {
        let shards = u64::from(self.map.shards());
        Some(match command {
            Command::Attach(spec) => Command::Attach(VolumeSpec {
                share_min_blocks: spec.share_min_blocks / shards,
                share_max_blocks: share(spec.share_max_blocks, shards),
                fill_limit_bytes: spec.fill_limit_bytes.div_ceil(shards),
                ..spec.clone()
            }),
            Command::Detach(volume) => Command::Detach(self.inner(*volume, shard)?),
            Command::Discard(volume) => Command::Discard(self.inner(*volume, shard)?),
            Command::Seal(volume, proof) => {
                Command::Seal(self.inner(*volume, shard)?, proof.clone())
            }
            Command::Grow(volume, size_bytes, proof) => {
                Command::Grow(self.inner(*volume, shard)?, *size_bytes, proof.clone())
            }
            Command::Replace(first) => Command::Replace(Box::new(first.for_shard(shard))),
            other => other.clone(),
        })
    }

    fn send_command(
        &mut self,
        key: usize,
        shard: u32,
        command: Command,
        to: &mut impl FnMut(Routed<P>),
    ) {
        let shards = self.map.shards();
        let Join::Command(join) = &mut self.joins[key] else { unreachable!("a command") };
        join.outstanding += 1;
        // A way back may be answered before the way there, as far as is heard.
        let part = if join.what == What::ResizeBack { shards + shard } else { shard };
        to(Routed { shard, event: Event::Control(id_of(key, part as usize), command) });
    }

    /// A shard has answered a command, or the part of it with this number.
    pub(super) fn command_part_done(
        &mut self,
        key: usize,
        (shard, part): (u32, usize),
        result: Result<Answer<P>, Failure>,
        to: &mut impl FnMut(Routed<P>),
    ) -> Option<Reply<P>> {
        let is_second = part >= self.map.shards() as usize;
        let Join::Command(join) = &mut self.joins[key] else { unreachable!("a command") };
        assert!(join.outstanding > 0, "an answer to a command that was sent");
        join.outstanding -= 1;
        match (result, join.what) {
            (Ok(Answer::Attached { volume, warmth }), What::Attach(outer)) => {
                join.warmth = Some(join.warmth.map_or(warmth, |so_far| both_warm(so_far, warmth)));
                self.name(outer, shard, volume);
            }
            (Ok(Answer::Loaded(report)), _) => {
                join.report =
                    Some(join.report.map_or(report, |so_far| both_loaded(so_far, report)));
            }
            (Err(Failure::NoVolume), What::Forget) => join.unknown += 1,
            (Err(Failure::Interrupted), What::ResizeBack) => {}
            // The others would go on for nothing, and shards would differ.
            (Err(failure), What::Resize { otherwise })
                if failure != Failure::Interrupted && self.newest_resize == Some(key) =>
            {
                join.failure.get_or_insert(failure);
                join.what = What::ResizeBack;
                let segments = otherwise;
                self.send_to_all(key, &Command::Resize { segments, otherwise }, to);
            }
            (Err(_), What::ResizeBack) if is_second => join.uneven = true,
            (Err(failure), what) => {
                join.failure.get_or_insert(failure);
                // It has let go of the volume, or never had it.
                if let What::Detach(outer) | What::TakeBack(outer) = what {
                    self.unname(outer, shard);
                }
            }
            // Detached: what it holds goes, too.
            (Ok(_), What::TakeBack(outer)) => {
                if let Some(inner) = self.unname(outer, shard) {
                    self.send_command(key, shard, Command::Seal(inner, None), to);
                }
            }
            (Ok(_), _) => {}
        }
        let Join::Command(join) = &self.joins[key] else { unreachable!("a command") };
        if join.outstanding > 0 {
            return None;
        }
        self.command_done(key, to)
    }

    /// Every shard has answered: a volume is in all of them, or in none.
    fn command_done(&mut self, key: usize, to: &mut impl FnMut(Routed<P>)) -> Option<Reply<P>> {
        let Join::Command(join) = &mut self.joins[key] else { unreachable!("a command") };
        let failed = join.failure.is_some();
        match join.what {
            What::Attach(volume) if failed => {
                join.what = What::TakeBack(volume);
                self.set_phase(volume, Phase::Refused);
                return self.take_back(key, volume, to, Command::Detach);
            }
            // Those that detached well wait for a proof, which there will be none of.
            What::Detach(volume) if failed => {
                join.what = What::Seal(volume);
                return self.take_back(key, volume, to, |inner| Command::Seal(inner, None));
            }
            What::Attach(volume) => {
                let named = self.volume(volume).is_some_and(|v| v.ids.iter().all(Option::is_some));
                assert!(named, "an attached volume is known to every shard");
                self.set_phase(volume, Phase::Attached);
            }
            What::Seal(volume) | What::TakeBack(volume) => self.forget(volume),
            What::Forget if join.unknown == self.map.shards() => {
                join.failure.get_or_insert(Failure::NoVolume);
            }
            // Requests to the new part are let in when every shard knows of it.
            What::Grow(volume, size_bytes) if !failed => {
                if let Some(known) = self.volumes[usize::from(volume.0)].as_mut() {
                    known.size_bytes = size_bytes;
                }
            }
            What::Resize { .. } | What::ResizeBack if self.newest_resize == Some(key) => {
                self.newest_resize = None;
                self.uneven = join.uneven;
            }
            What::Load
            | What::Detach(_)
            | What::Grow(..)
            | What::Resize { .. }
            | What::ResizeBack
            | What::Forget
            | What::Other => {}
        }
        let Join::Command(join) = self.joins.remove(key) else { unreachable!("a command") };
        let answer = match (join.what, join.report, join.warmth) {
            (What::Attach(volume), _, Some(warmth)) => Answer::Attached { volume, warmth },
            (What::Load, Some(report), _) => Answer::Loaded(report),
            _ => Answer::Done,
        };
        Some(Reply { id: join.id, result: join.failure.map_or(Ok(answer), Err) })
    }

    /// Goes on with those shards that still have the volume.
    fn take_back(
        &mut self,
        key: usize,
        volume: VolumeId,
        to: &mut impl FnMut(Routed<P>),
        command: impl Fn(VolumeId) -> Command,
    ) -> Option<Reply<P>> {
        let ids = self.volume(volume).map(|known| known.ids.clone()).unwrap_or_default();
        let mut any = false;
        for (shard, inner) in (0..).zip(ids) {
            if let Some(inner) = inner {
                any = true;
                self.send_command(key, shard, command(inner), to);
            }
        }
        if any {
            return None;
        }
        self.forget(volume);
        let Join::Command(join) = self.joins.remove(key) else { unreachable!("a command") };
        Some(refusal(join.id, join.failure.unwrap_or(Failure::Invalid)))
    }

    fn set_phase(&mut self, volume: VolumeId, phase: Phase) {
        let known = self.volumes[usize::from(volume.0)].as_mut().expect("a known volume");
        known.phase = phase;
    }
}

/// What became of a volume's blocks, over two shards or more.
fn both_warm(one: Warmth, other: Warmth) -> Warmth {
    use Warmth::{Dropped, Loading, New, Partly, Warm};
    // What is believed, and what was dropped and why.
    let parts = |warmth| match warmth {
        New => (None, None),
        Loading => (Some(0), None),
        Warm { blocks } => (Some(blocks), None),
        Partly { blocks, dropped, reason } => (Some(blocks), Some((dropped, reason))),
        Dropped { blocks, reason } => (None, Some((blocks, reason))),
    };
    let ((kept, lost), (more_kept, more_lost)) = (parts(one), parts(other));
    let blocks = kept.unwrap_or(0) + more_kept.unwrap_or(0);
    let lost = match (lost, more_lost) {
        (Some((dropped, reason)), Some((more, _))) => Some((dropped + more, reason)),
        (lost, more_lost) => lost.or(more_lost),
    };
    match (kept.or(more_kept), lost) {
        (None, None) => New,
        (None, Some((blocks, reason))) => Dropped { blocks, reason },
        (Some(_), Some((dropped, reason))) => Partly { blocks, dropped, reason },
        (Some(_), None) if [one, other].contains(&Loading) => Loading,
        (Some(_), None) => Warm { blocks },
    }
}

fn both_loaded(one: LoadReport, other: LoadReport) -> LoadReport {
    let severity = |start| match start {
        Start::New => 0,
        Start::Clean => 1,
        Start::Crashed => 2,
        Start::Damaged => 3,
    };
    let worse = severity(one.start) >= severity(other.start);
    LoadReport {
        start: if worse { one.start } else { other.start },
        blocks: one.blocks + other.blocks,
        replayed_blocks: one.replayed_blocks + other.replayed_blocks,
        unflushed_blocks: one.unflushed_blocks + other.unflushed_blocks,
        doubtful_blocks: one.doubtful_blocks + other.doubtful_blocks,
        overwritten_blocks: one.overwritten_blocks + other.overwritten_blocks,
        pages: one.pages + other.pages,
        damaged_pages: one.damaged_pages + other.damaged_pages,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::DropReason;

    #[test]
    fn what_one_shard_dropped_is_told_with_the_reason_whatever_the_others_believe() {
        use Warmth::{Dropped, Loading, New, Partly, Warm};
        let reason = DropReason::BackendChanged;
        let all = |warmths: &[Warmth]| warmths.iter().copied().reduce(both_warm).expect("some");
        let dropped = Dropped { blocks: 7, reason };
        for (others, blocks) in [
            ([Warm { blocks: 5 }, Warm { blocks: 1 }], 6),
            ([Loading, Loading], 0),
            ([New, Loading], 0),
        ] {
            let [one, other] = others;
            for order in [[dropped, one, other], [one, dropped, other], [one, other, dropped]] {
                assert_eq!(all(&order), Partly { blocks, dropped: 7, reason }, "{order:?}");
            }
        }
        assert_eq!(all(&[dropped, New, dropped]), Dropped { blocks: 14, reason });
        assert_eq!(all(&[New, Warm { blocks: 5 }, Loading]), Loading);
        assert_eq!(all(&[New, Warm { blocks: 5 }, New]), Warm { blocks: 5 });
        assert_eq!(all(&[New, New]), New);
    }
}
