//! How a run of the simulation is, and what has happened in it.

use super::mirror::MirrorSettings;
use super::rng::Rng;
use cinnabar_writeback::Config;
use cinnabar_writeback::bounds::{Bound, Bounds, Crossings};
use cinnabar_writeback::mutant::Mutants;
use rand::RngExt;

/// How a run is. Probabilities are for each step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) steps: u32,
    pub(crate) volumes: usize,
    pub(crate) blocks: u64,
    /// Sectors behind the last whole block.
    pub(crate) tail: u64,
    pub(crate) flush: f64,
    pub(crate) fua: f64,
    pub(crate) crash: f64,
    pub(crate) close: f64,
    pub(crate) restart: f64,
    pub(crate) rot: f64,
    pub(crate) partial: f64,
    pub(crate) range: f64,
    pub(crate) large: f64,
    /// Commands: drains, volumes that come, grow and go.
    pub(crate) command: f64,
    /// A back end does nothing for many steps.
    pub(crate) away: f64,
    /// Of each request to an engine: it fails.
    pub(crate) engine_fails: f64,
    /// Of each I/O of the log's device: it fails.
    pub(crate) ssd_fails: f64,
    pub(crate) in_flight: usize,
    /// Preference for ending SSD I/O, engine I/O, and new requests.
    pub(crate) weights: [f64; 3],
    pub(crate) dirty_max_percent: u8,
    pub(crate) age_max_ns: u64,
    pub(crate) bounds: Bounds,
    /// Pages of the write memory, if there is one.
    pub(crate) memory: Option<u32>,
    /// The daemon is killed between two stores to it.
    pub(crate) memory_kill: f64,
    /// Of each attach: writes are acknowledged from memory.
    pub(crate) from_memory: f64,
    /// At a crash: another file is there, or none.
    pub(crate) memory_lost: f64,
    pub(crate) memory_age_ns: u64,
    /// How often the pace of a destage is decided on, if it is.
    pub(crate) pace_ns: u64,
    /// So many of the volumes are one guest's, in a write group: none, or at least two.
    pub(crate) group: usize,
    /// The log has two SSDs.
    pub(crate) mirror: Option<MirrorSettings>,
    pub(crate) mutants: Mutants,
}

impl Settings {
    pub(crate) fn drawn(seed: u64) -> Self {
        // Dice of its own for the memory: runs without one are what they were.
        let memory = &mut Rng::seed_from_u64(seed ^ 0x3E30_1977);
        Self::draw(&mut Rng::seed_from_u64(seed ^ 0x5E77_1965), memory)
    }

    pub(crate) fn draw(rng: &mut Rng, memory: &mut Rng) -> Self {
        let mut pick = |list: &[f64]| list[rng.random_range(0..list.len())];
        let (flush, fua) = (pick(&[0.0, 0.02, 0.1, 0.3]), pick(&[0.0, 0.05, 0.3]));
        let (crash, restart) = (pick(&[0.0, 0.002, 0.01]), pick(&[0.0, 0.0, 0.01]));
        let (partial, range, large) =
            (pick(&[0.0, 0.2, 0.8]), pick(&[0.0, 0.05, 0.3]), pick(&[0.0, 0.0, 0.1, 0.3]));
        let rot = pick(&[0.0, 0.0, 0.0, 0.005]);
        let (close, command) = (pick(&[0.0, 0.0, 0.002]), pick(&[0.002, 0.002, 0.05]));
        let away = pick(&[0.0, 0.0, 0.01]);
        let (engine_fails, ssd_fails) = (pick(&[0.0, 0.0, 0.05]), pick(&[0.0, 0.0, 0.0, 0.002]));
        let weights = [pick(&[1.0, 4.0]), pick(&[1.0, 4.0]), pick(&[1.0, 4.0])];
        let bounds = Self::bounds(rng);
        let mut choose = |list: &[f64]| list[memory.random_range(0..list.len())];
        let (memory_kill, from_memory) = (choose(&[0.0, 0.003, 0.02]), choose(&[1.0, 1.0, 0.5]));
        let memory_lost = choose(&[0.0, 0.3]);
        let memory_age_ns = [100_000, 3_000_000][memory.random_range(0..2)];
        let pages = [None, None, Some(64), Some(100), Some(400)];
        let write_memory = pages[memory.random_range(0..pages.len())];
        let pace_ns = [0, 0, 30_000][memory.random_range(0..3)];
        Self {
            steps: rng.random_range(200..1_500),
            volumes: [1, 1, 2, 3, 4][rng.random_range(0..5)],
            blocks: [4, 12, 40][rng.random_range(0..3)],
            tail: [0, 0, 3][rng.random_range(0..3)],
            flush,
            fua,
            crash,
            close,
            restart,
            rot,
            partial,
            range,
            large,
            command,
            away,
            engine_fails,
            ssd_fails,
            in_flight: [1, 4, 12][rng.random_range(0..3)],
            weights,
            dirty_max_percent: [80, 80, 10, 2][rng.random_range(0..4)],
            age_max_ns: [30_000_000_000, 3_000_000][rng.random_range(0..2)],
            bounds,
            memory: write_memory,
            memory_kill,
            from_memory,
            memory_lost,
            memory_age_ns,
            pace_ns,
            group: 0,
            mirror: None,
            mutants: Mutants::default(),
        }
    }

    /// The same, with two SSDs in a third of the runs.
    pub(crate) fn mirrored(self, seed: u64) -> Self {
        let mut rng = Rng::seed_from_u64(seed ^ 0x3122_4242);
        if !rng.random_ratio(1, 3) {
            return self;
        }
        // What rots, and where, is the mirror's to say.
        let mirror = Some(MirrorSettings::draw(&mut rng));
        let crash = self.crash.max([0.0, 0.005][rng.random_range(0..2)]);
        Self { mirror, crash, rot: 0.0, ssd_fails: 0.0, memory_lost: 0.0, ..self }
    }

    /// The same, with a write group in a third of the runs.
    pub(crate) fn grouped(self, seed: u64) -> Self {
        let mut rng = Rng::seed_from_u64(seed ^ 0x6209_0002);
        if !rng.random_ratio(1, 3) {
            return self;
        }
        let volumes = self.volumes.max(2);
        let flush = self.flush.max([0.02, 0.1][rng.random_range(0..2)]);
        Self { group: rng.random_range(2..=volumes), volumes, flush, ..self }
    }

    /// Of each bound the usual one, the smallest, or one between.
    fn bounds(rng: &mut Rng) -> Bounds {
        let (usual, tiny) = (Bounds::default(), Bounds::TINY);
        let small = [0.0, 0.3, 1.0][rng.random_range(0..3)];
        let mut draw = |usual: u64, tiny: u64, between: u64| {
            if rng.random_bool(small) { [tiny, between][rng.random_range(0..2)] } else { usual }
        };
        Bounds {
            volumes: draw(usual.volumes.into(), tiny.volumes.into(), 5) as u16,
            gaps: draw(usual.gaps as u64, tiny.gaps as u64, 2) as usize,
            ranges: draw(usual.ranges as u64, tiny.ranges as u64, 4) as usize,
            range_blocks: draw(usual.range_blocks, tiny.range_blocks, 7),
            append_blocks: draw(usual.append_blocks, tiny.append_blocks, 5),
            entries: draw(usual.entries as u64, tiny.entries as u64, 3) as usize,
            chunks: draw(usual.chunks as u64, tiny.chunks as u64, 2) as usize,
            window_pages: draw(usual.window_pages as u64, tiny.window_pages as u64, 3) as usize,
            destage_blocks: draw(usual.destage_blocks as u64, tiny.destage_blocks as u64, 3)
                as usize,
            // Not drawn: a draw more would move every seed.
            asked: usual.asked,
            retire_pages: draw(usual.retire_pages.into(), tiny.retire_pages.into(), 20) as u32,
            first_number: draw(usual.first_number, tiny.first_number, (1 << 32) - 100),
            first_epoch: draw(usual.first_epoch, tiny.first_epoch, (1 << 40) - 20),
        }
    }

    pub(crate) fn config(&self) -> Config {
        Config {
            destage_after_ns: 1_000_000,
            retry_ns: 100_000,
            dirty_max_percent: self.dirty_max_percent,
            age_max_ns: self.age_max_ns,
            memory_age_ns: self.memory_age_ns,
            pace_ns: self.pace_ns,
            groups: true,
            bounds: self.bounds,
            mutants: self.mutants,
        }
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What has happened.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Counts { $($(#[$doc])* pub(crate) $name: u64,)* pub(crate) crossings: Crossings }

        impl Counts {
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
                self.crossings.add(&other.crossings);
            }

            pub(crate) fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counts! {
    writes,
    reads,
    flushes,
    kills,
    power_cuts,
    killed_opening,
    closes,
    restarts,
    /// Sectors that a power cut has set back.
    lost,
    backend_writes,
    backend_flushes,
    ssd_fua,
    ssd_flushes,
    drains,
    /// Requests that failed for rot, and with a lost device.
    failed,
    failed_lost,
    /// The log's device has failed.
    ssd_lost,
    /// Requests of the engine that failed.
    engine_failed,
    grown,
    removed,
    discarded,
    /// A destage waited for another volume of its group.
    waited_for,
    /// Commands that were refused.
    refused,
    no_place,
    away,
    /// Blocks that were replaced in the write memory.
    absorbed,
    /// Steps at which the pace of a destage had a bound.
    paced,
    /// Kills between two stores to the write memory.
    memory_kills,
    /// A memory that is not there, or another one, was refused.
    memory_refused,
    /// Stale content of it was there after a power cut.
    memory_stale,
    /// Halves of a mirrored log that failed, that became complete, that were not served, and that the
    /// operator's word let go on alone.
    halves_dropped,
    halves_filled,
    halves_refused,
    halves_forced,
    /// Pages that one half had and the other one did not.
    pages_healed,
}

impl Counts {
    /// Everything that a run can meet has been met, and every bound was crossed.
    pub(crate) fn check(&self) {
        for (name, count) in self.all() {
            assert!(count > 0, "{name} never happened: {self:?}");
        }
        for bound in Bound::ALL {
            assert!(self.crossings.of(*bound) > 0, "{bound:?} was never crossed: {self:?}");
        }
    }
}
