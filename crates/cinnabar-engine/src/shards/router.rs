//! The router's tables: volumes as each shard names them, and what is under way.
//!
//! `requests` and `commands` hold what it does with each.

use super::commands::CommandJoin;
use super::io_name::shard_of;
use super::requests::RequestJoin;
use super::{Routed, ShardMap};
use crate::Config;
use crate::limits::{DATA_BLOCKS_MAX, VOLUMES_MAX};
use crate::metadata::superblock::Geometry;
use crate::mutant::Mutants;
use crate::plan::{Plan, VolumePlan};
use crate::units::VolumeId;
use crate::{Bounds, Crossings};
use crate::{Event, Failure, IoDone, Payload, Reply, Request, RequestId};
use slab::Slab;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Lower bits of a shard's request ids: which part it is, or which shard's command, and whether that is
/// its second one.
const PART_BITS: u32 = 16;
// A read or write has no more parts than blocks.
const _: () = assert!(DATA_BLOCKS_MAX < 1 << PART_BITS);
const _: () = assert!(2 * Geometry::SHARDS_MAX < 1 << PART_BITS);

/// A volume as the shards know it.
pub(super) struct RoutedVolume<P> {
    /// The shard of its first block.
    pub(super) first: u32,
    pub(super) size_bytes: u64,
    /// Its name in each shard, as far as that has answered.
    pub(super) ids: SmallVec<[Option<VolumeId>; 4]>,
    pub(super) phase: Phase,
    /// Split requests with parts that no shard has seen yet.
    pub(super) ranges: Vec<usize>,
    /// Requests that wait for such parts to be sent, in order of arrival; none if there are none.
    pub(super) waiting: VecDeque<Request<P>>,
    /// Parts under way beside the first one of each request.
    pub(super) extra_parts: u32,
    /// Invalidations that every shard has, and that have not ended.
    pub(super) announced: u32,
    /// The detach that waits for all of these.
    pub(super) detach: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not every shard has answered.
    Attaching,
    /// The driver that attached it knows its name here.
    Attached,
    /// It takes no more requests; what it has accepted is sent first.
    Leaving,
    /// Some shard refused it; the others let go of it.
    Refused,
}

/// Which volume a shard's I/O belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// To this volume, by the name that drivers know.
    Volume(VolumeId),
    /// To a volume whose attach is not answered yet: ask again then.
    NotYet,
    /// To a volume that could not be attached: the I/O fails.
    None,
}

/// Something under way in one shard or more.
pub(super) enum Join<P> {
    Request(RequestJoin<P>),
    Command(Box<CommandJoin>),
}

/// Splits and joins; see the [module](super).
pub struct Router<P> {
    pub(super) map: ShardMap,
    pub(super) mutants: Mutants,
    pub(super) bounds: Bounds,
    pub(super) crossings: Crossings,
    pub(super) volumes: Vec<Option<RoutedVolume<P>>>,
    /// The other way round: by shard and its name there.
    names: Vec<Vec<Option<VolumeId>>>,
    pub(super) joins: Slab<Join<P>>,
    /// Requests that more than one shard had a part in, flushes left out.
    pub(super) split: u64,
    /// Parts under way beside the first one of each request.
    pub(super) extra_parts: u32,
    /// The command of the last resize, while it is under way.
    pub(super) newest_resize: Option<usize>,
    /// A shard could not go back to the size that it had.
    pub(super) uneven: bool,
}

impl<P: Payload> Router<P> {
    /// A router without volumes.
    ///
    /// # Panics
    /// If there are more shards than a device may have, or a bound of nothing.
    pub fn new(map: ShardMap, config: &Config) -> Self {
        assert!((1..=Geometry::SHARDS_MAX).contains(&map.shards()), "shards that can be named");
        config.bounds.check();
        let names = vec![Vec::new(); map.shards() as usize];
        let (mutants, bounds) = (config.mutants, config.bounds);
        Self {
            map,
            mutants,
            bounds,
            crossings: Crossings::default(),
            volumes: Vec::new(),
            names,
            joins: Slab::new(),
            newest_resize: None,
            uneven: false,
            split: 0,
            extra_parts: 0,
        }
    }

    /// Which shard owns what.
    pub fn map(&self) -> &ShardMap {
        &self.map
    }

    /// Whether shards have different sizes since the last resize: one failed, and then a shard's way
    /// back, too. Another resize, or the next start, evens it out.
    pub fn is_uneven(&self) -> bool {
        self.uneven
    }

    /// Requests so far that more than one shard had a part in, flushes left out.
    pub fn split_requests(&self) -> u64 {
        self.split
    }

    /// How often each bound of its own was run into.
    pub fn crossings(&self) -> &Crossings {
        &self.crossings
    }

    /// Which volume a shard's I/O belongs to.
    pub fn owner(&self, shard: u32, inner: VolumeId) -> Owner {
        let names = &self.names[shard as usize];
        let outer = names.get(usize::from(inner.0)).copied().flatten();
        match outer.and_then(|outer| Some((outer, self.volume(outer)?.phase))) {
            Some((outer, Phase::Attached | Phase::Leaving)) => Owner::Volume(outer),
            Some((_, Phase::Refused)) => Owner::None,
            Some((_, Phase::Attaching)) | None => Owner::NotYet,
        }
    }

    /// A shard has named a volume.
    pub(super) fn name(&mut self, outer: VolumeId, shard: u32, inner: VolumeId) {
        let volume = self.volumes[usize::from(outer.0)].as_mut().expect("a known volume");
        let before = volume.ids[shard as usize].replace(inner);
        assert!(before.is_none(), "a shard names a volume once");
        let names = &mut self.names[shard as usize];
        if names.len() <= usize::from(inner.0) {
            names.resize(usize::from(inner.0) + 1, None);
        }
        names[usize::from(inner.0)] = Some(outer);
    }

    /// A shard has let go of a volume; gives what it called it.
    pub(super) fn unname(&mut self, outer: VolumeId, shard: u32) -> Option<VolumeId> {
        let volume = self.volumes[usize::from(outer.0)].as_mut()?;
        let inner = volume.ids[shard as usize].take()?;
        // The shard may have given the name to another volume already.
        let name = &mut self.names[shard as usize][usize::from(inner.0)];
        *name = name.filter(|name| *name != outer);
        Some(inner)
    }

    /// No shard has the volume any more, and nothing of it is still to be sent.
    pub(super) fn forget(&mut self, outer: VolumeId) {
        let Some(known) = self.volume(outer) else { return };
        assert!(
            known.ranges.is_empty() && known.waiting.is_empty(),
            "a shard is to get more of it"
        );
        assert!(
            known.extra_parts == 0 && known.announced == 0,
            "a shard has not answered all of it"
        );
        for shard in 0..self.map.shards() {
            self.unname(outer, shard);
        }
        self.volumes[usize::from(outer.0)] = None;
    }

    /// What a shard calls a volume.
    pub fn inner(&self, volume: VolumeId, shard: u32) -> Option<VolumeId> {
        self.volume(volume)?.ids[shard as usize]
    }

    pub(super) fn volume(&self, volume: VolumeId) -> Option<&RoutedVolume<P>> {
        self.volumes.get(usize::from(volume.0))?.as_ref()
    }

    /// A place for a volume.
    pub(super) fn new_volume(&mut self, volume: RoutedVolume<P>) -> Option<VolumeId> {
        let index = (0..usize::from(VOLUMES_MAX))
            .find(|&index| self.volumes.get(index).is_none_or(Option::is_none))?;
        if self.volumes.len() <= index {
            self.volumes.resize_with(index + 1, || None);
        }
        self.volumes[index] = Some(volume);
        Some(VolumeId(index as u16))
    }

    /// Any event but a wake, which is a matter between the driver and each shard. I/Os are named by
    /// [`name_io`](super::name_io). Gives the answer to what needs no shard.
    pub fn route(&mut self, event: Event<P>, to: &mut impl FnMut(Routed<P>)) -> Option<Reply<P>> {
        match event {
            Event::Submit(request) => return self.submit(request, to),
            Event::Control(id, command) => return self.control(id, &command, to),
            Event::Adopt(plan) => self.adopt(&plan, to),
            Event::IoDone(done) => {
                let (shard, id) = shard_of(done.id);
                to(Routed { shard, event: Event::IoDone(IoDone { id, ..done }) });
            }
            Event::Overdue(id) => {
                let (shard, id) = shard_of(id);
                to(Routed { shard, event: Event::Overdue(id) });
            }
            Event::Late(id) => return self.late(id, to),
            // The second two are the router's own.
            Event::Wake | Event::Invalidating(_) | Event::Invalidated(_) => {}
        }
        None
    }

    /// New settings: sizes are divided among the shards.
    pub fn adopt(&self, plan: &Plan, to: &mut impl FnMut(Routed<P>)) {
        let shards = u64::from(self.map.shards());
        for shard in 0..self.map.shards() {
            let volumes = plan.volumes.iter().filter_map(|change| {
                Some(VolumePlan {
                    volume: self.inner(change.volume, shard)?,
                    mode: change.mode,
                    share_min_blocks: change.share_min_blocks.map(|blocks| blocks / shards),
                    share_max_blocks: change.share_max_blocks.map(|blocks| share(blocks, shards)),
                    // A target is rounded up, like a maximum: cut to what there is, it promises no more.
                    share_target_blocks: change
                        .share_target_blocks
                        .map(|blocks| share(blocks, shards)),
                    fill_limit_bytes: change.fill_limit_bytes.map(|bytes| bytes.div_ceil(shards)),
                })
            });
            let plan = Plan { volumes: volumes.collect(), admits: plan.admits };
            to(Routed { shard, event: Event::Adopt(plan) });
        }
    }

    /// A shard has answered: gives the answer for the requester, once all of it is there.
    ///
    /// # Panics
    /// If the reply is to nothing that is under way.
    pub fn reply(
        &mut self,
        shard: u32,
        reply: Reply<P>,
        to: &mut impl FnMut(Routed<P>),
    ) -> Option<Reply<P>> {
        let (key, part) = taken_apart(reply.id);
        match self.joins.get_mut(key).expect("a reply to something under way") {
            Join::Request(_) => self.request_part_done(key, part, reply.result, to),
            Join::Command(_) => self.command_part_done(key, (shard, part), reply.result, to),
        }
    }
}

/// The largest share of one shard; no bound stays none.
pub(super) const fn share(blocks: u64, shards: u64) -> u64 {
    if blocks == u64::MAX { blocks } else { blocks.div_ceil(shards) }
}

/// A shard's id for a part of what is under way.
pub(super) fn id_of(key: usize, part: usize) -> RequestId {
    assert!(part < 1 << PART_BITS, "a part number fits");
    RequestId((key as u64) << PART_BITS | part as u64)
}

fn taken_apart(id: RequestId) -> (usize, usize) {
    ((id.0 >> PART_BITS) as usize, (id.0 & ((1 << PART_BITS) - 1)) as usize)
}

/// A reply that needs no shard.
pub(super) const fn refusal<P>(id: RequestId, failure: Failure) -> Reply<P> {
    Reply { id, result: Err(failure) }
}
