//! A device that one shard lost is given up by all: what one can't record, no other may rely on.

use super::ShardMap;
use crate::RequestId;
use crate::health::{Health, PassThroughReason};

/// Names the commands that no operator gave; drivers leave it free.
pub const OWN_COMMAND: RequestId = RequestId(u64::MAX);

#[derive(Clone, Copy, Debug, Default)]
struct Shard {
    /// It has lost its device by itself.
    lost: bool,
    /// It is to give up its device, because another shard lost it, as soon as it can.
    gives_up: bool,
}

/// See the module. It is the moment of a loss that counts: a shard that has taken up another device
/// keeps it, whatever the others, which will take it up, too, have lost before.
#[derive(Debug)]
pub struct Losses(Vec<Shard>);

impl Losses {
    /// Nothing is lost.
    pub fn new(map: &ShardMap) -> Self {
        Self(vec![Shard::default(); map.shards() as usize])
    }

    /// Looks at the health of all shards, in order; gives those that are to give up their device
    /// now ([`Command::Abandon`](crate::Command::Abandon)).
    pub fn notice(&mut self, health: impl Iterator<Item = Health> + Clone) -> Vec<u32> {
        if self.0.len() == 1 {
            return Vec::new();
        }
        debug_assert_eq!(health.clone().count(), self.0.len(), "of every shard, in order");
        let mut newly = false;
        for (shard, health) in self.0.iter_mut().zip(health.clone()) {
            let lost = matches!(health, Health::PassThrough(PassThroughReason::Failed(_)));
            newly |= lost && !shard.lost;
            shard.lost = lost;
        }
        let mut now = Vec::new();
        for ((number, shard), health) in (0..).zip(&mut self.0).zip(health) {
            let without = matches!(health, Health::PassThrough(_) | Health::Closed);
            shard.gives_up = (shard.gives_up || newly) && !without;
            if shard.gives_up && matches!(health, Health::Serving | Health::Loading { .. }) {
                shard.gives_up = false;
                now.push(number);
            }
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IoError;

    #[test]
    fn all_give_up_what_one_has_lost_and_keep_what_they_take_up_next() {
        let mut losses = Losses::new(&ShardMap::usual(3));
        let (well, opening) = (Health::Serving, Health::Opening);
        let failed = Health::PassThrough(PassThroughReason::Failed(IoError::Io));
        let left = Health::PassThrough(PassThroughReason::Abandoned);
        let mut notice = |health: [Health; 3]| losses.notice(health.into_iter());
        assert!(notice([well, opening, well]).is_empty());
        assert_eq!(notice([failed, opening, well]), [2]);
        assert!(notice([failed, opening, well]).is_empty(), "told once");
        assert_eq!(notice([failed, well, left]), [1], "as soon as it uses it");
        assert!(notice([failed, left, left]).is_empty());
        assert!(
            notice([failed, well, well]).is_empty(),
            "another device, which the first gets next"
        );
        assert!(notice([well, well, well]).is_empty());
        assert_eq!(notice([well, failed, well]), [0, 2]);
    }
}
