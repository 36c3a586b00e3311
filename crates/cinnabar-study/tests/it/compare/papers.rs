//! The papers' model against lists that are searched from one end to the other.

use cinnabar_policy::sizing::WritePolicy;
use cinnabar_study::analysis::Part;
use cinnabar_study::compare::papers::Papers;
use cinnabar_study::compare::{Counts, Division, Outcome};
use cinnabar_study::rng::Rng;

const VOLUMES: usize = 3;
const CAPACITY: u64 = 12;

/// A list of (volume, block, dirty), most recently used first.
#[derive(Default)]
struct List {
    room: usize,
    blocks: Vec<(usize, u64, bool)>,
}

/// Everything done the slow way.
struct Naive {
    lists: Vec<List>,
    policies: Vec<WritePolicy>,
    outcome: Outcome,
}

impl Naive {
    fn new(is_shared: bool) -> Self {
        let lists = if is_shared { 1 } else { VOLUMES };
        Self {
            lists: (0..lists).map(|_| List::default()).collect(),
            policies: vec![WritePolicy::Back; VOLUMES],
            outcome: Outcome { volumes: vec![Counts::default(); VOLUMES], ..Outcome::default() },
        }
    }

    fn adopt(&mut self, plan: &Division) {
        let Division::Divided(parts) = plan else {
            self.lists[0].room = CAPACITY as usize;
            return;
        };
        for (volume, part) in parts.iter().enumerate() {
            let room = if part.policy == WritePolicy::Bypass { 0 } else { part.blocks as usize };
            self.lists[volume].room = room;
            self.policies[volume] = part.policy;
            self.trim(volume);
            if part.policy != WritePolicy::Back {
                self.destage_all(volume);
            }
        }
    }

    fn trim(&mut self, list: usize) {
        while self.lists[list].blocks.len() > self.lists[list].room {
            let (volume, _, dirty) =
                self.lists[list].blocks.pop().expect("more than there is room");
            self.outcome.volumes[volume].backend_writes += u64::from(dirty);
        }
    }

    fn destage_all(&mut self, list: usize) {
        for (volume, _, dirty) in &mut self.lists[list].blocks {
            self.outcome.volumes[*volume].backend_writes += u64::from(std::mem::take(dirty));
        }
    }

    fn access(&mut self, volume: usize, block: u64, is_write: bool) {
        let at = if self.lists.len() == 1 { 0 } else { volume };
        let list = &mut self.lists[at];
        let policy = self.policies[volume];
        let counts = &mut self.outcome.volumes[volume];
        let place = list.blocks.iter().position(|one| (one.0, one.1) == (volume, block));
        let was = place.map(|place| list.blocks.remove(place));
        if is_write {
            counts.writes += 1;
            let keeps = list.room > 0 && matches!(policy, WritePolicy::Back | WritePolicy::Through);
            let is_back = keeps && policy == WritePolicy::Back;
            counts.writes_back += u64::from(is_back);
            counts.backend_writes += u64::from(!is_back);
            if keeps {
                self.outcome.ssd_writes += 1;
                list.blocks.insert(0, (volume, block, is_back));
            }
        } else {
            counts.reads += 1;
            counts.read_hits += u64::from(was.is_some());
            if list.room > 0 {
                self.outcome.ssd_writes += u64::from(was.is_none());
                list.blocks.insert(0, (volume, block, was.is_some_and(|was| was.2)));
            }
        }
        self.trim(at);
    }

    fn finish(mut self) -> Outcome {
        (0..self.lists.len()).for_each(|list| self.destage_all(list));
        self.outcome.ssd_writes_back = self.outcome.ssd_writes;
        self.outcome
    }
}

fn random_plan(rng: &mut Rng) -> Division {
    let mut left = CAPACITY;
    let part = |_| {
        let blocks = rng.below(left + 1);
        left -= blocks;
        Part { blocks, policy: rng.pick(&WritePolicy::ALL) }
    };
    Division::Divided((0..VOLUMES).map(part).collect())
}

#[test]
fn the_papers_model_equals_brute_force() {
    let (mut hits, mut destages, mut dirty_shrinks) = (0, 0, 0);
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let is_shared = seed % 4 == 0;
        let mut papers = Papers::new(CAPACITY, VOLUMES, is_shared);
        let mut naive = Naive::new(is_shared);
        for _ in 0..4 {
            let plan = if is_shared { Division::Shared } else { random_plan(&mut rng) };
            let before = naive.outcome.total().backend_writes;
            papers.adopt(&plan);
            naive.adopt(&plan);
            dirty_shrinks += naive.outcome.total().backend_writes - before;
            for _ in 0..40 {
                let volume = rng.below(VOLUMES as u64) as usize;
                let (first, count) = (rng.below(8), 1 + rng.below(3));
                let is_write = rng.below(2) == 0;
                papers.request(volume, first..first + count, is_write).expect("few blocks");
                (first..first + count).for_each(|block| naive.access(volume, block, is_write));
            }
            let held: Vec<u64> = papers.cached_blocks().collect();
            let wanted: Vec<u64> =
                naive.lists.iter().map(|list| list.blocks.len() as u64).collect();
            assert_eq!(held, wanted, "seed {seed}");
            assert!(held.iter().sum::<u64>() <= CAPACITY, "seed {seed}");
        }
        let (found, wanted) = (papers.finish(), naive.finish());
        assert_eq!(found, wanted, "seed {seed}");
        hits += found.total().read_hits;
        destages += found.total().backend_writes;
    }
    assert!(hits > 10_000 && destages > 10_000 && dirty_shrinks > 1000, "something happened");
}

#[test]
fn a_volume_without_room_reads_the_backend() {
    let none = Part { blocks: 0, policy: WritePolicy::Back };
    let all = Part { blocks: CAPACITY, policy: WritePolicy::Back };
    let mut papers = Papers::new(CAPACITY, 2, false);
    papers.adopt(&Division::Divided(vec![none, all]));
    for _ in 0..5 {
        for volume in 0..2 {
            papers.request(volume, 0..4, false).expect("few blocks");
            papers.request(volume, 4..6, true).expect("few blocks");
        }
    }
    let found = papers.finish();
    let without = Counts::without_cache([20, 10]);
    assert_eq!(found.volumes[0], without);
    assert_eq!((found.volumes[1].read_hits, found.volumes[1].writes_back), (16, 10));
    assert_eq!(found.volumes[1].backend_writes, 2, "two dirty blocks, written over");
    assert_eq!(found.ssd_writes, 4 + 10, "misses and kept writes of the other one");
}
