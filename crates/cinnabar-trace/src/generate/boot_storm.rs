//! Many overlays of one golden image that boot within minutes: a model, not a recording.
//!
//! Volume 0 is the golden image, which all machines read; machine `n` from 1 on has its overlay in
//! volume `n`, where its writes go. All of them read the same places in the same order, but for a
//! few files that each passes over, at speeds that differ. The guide's page on traces gives the
//! sources of the numbers.

use super::chance::Chance;
use super::clock::Clock;
use super::error::{Error, check_number, check_range};
use super::lengths::Lengths;
use super::request;
use super::working_set::BLOCKS_MAX;
use crate::record::Record;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most machines of one storm.
pub const MACHINES_MAX: u32 = 100_000;
/// Longest window: a day.
pub const WINDOW_US_MAX: u64 = 86_400_000_000;
/// Most blocks that a boot reads: 16 GiB, a script of some 30 MiB.
pub const READ_BLOCKS_MAX: u64 = 1 << 22;

/// A part of a boot.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// What is going on.
    pub name: &'static str,
    /// Its part of what the boot reads.
    pub read_share: f64,
    /// Writes, as a share of its requests. Over all phases it is 16 %, as of a measured boot.
    pub write_share: f64,
    /// Requests a second of one machine.
    pub per_second: f64,
    /// Requests to a file, on average: 64 is a kernel, 2 are libraries and settings.
    pub run: f64,
}

/// From power-on to the logon screen.
pub const PHASES: [Phase; 3] = [
    Phase { name: "kernel", read_share: 0.15, write_share: 0.0, per_second: 400.0, run: 64.0 },
    Phase { name: "services", read_share: 0.6, write_share: 0.155, per_second: 200.0, run: 3.0 },
    Phase { name: "logon", read_share: 0.25, write_share: 0.235, per_second: 120.0, run: 2.0 },
];
/// How often a request of the script is passed over.
const PASSED_OVER: f64 = 0.03;
/// How often a write goes to one of the few blocks that are written again and again.
const STATE: f64 = 0.5;
/// Number of blocks that are written again and again.
const STATE_BLOCKS: u64 = 64;
/// How often what is read is what the machine itself wrote.
const READ_BACK: f64 = 0.02;
/// A machine is up to so much slower or faster than another.
const SPEED: std::ops::Range<f64> = 0.8..1.25;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Machines, 1 to [`MACHINES_MAX`].
    pub machines: u32,
    /// Time within which all are switched on, evenly by chance, in microseconds.
    pub window_us: u64,
    /// Blocks of 4 KiB of the golden image and of each overlay.
    pub image_blocks: u64,
    /// Blocks that one boot reads, at most a quarter of the image.
    pub read_blocks: u64,
    /// Every machine is so many times as fast.
    pub speed: f64,
    /// Fixes everything that chance decides.
    pub seed: u64,
}

impl Default for Settings {
    /// 50 machines in five minutes; 200 MiB of 20 GiB.
    fn default() -> Self {
        Self {
            machines: 50,
            window_us: 300_000_000,
            image_blocks: (20 << 30) / 4096,
            read_blocks: (200 << 20) / 4096,
            speed: 1.0,
            seed: 1,
        }
    }
}

/// The requests of all machines, in order of time, until the last one is up.
#[derive(Debug)]
pub struct BootStorm {
    settings: Settings,
    script: Vec<Step>,
    machines: Vec<Machine>,
    /// When each machine goes on.
    next: BinaryHeap<Reverse<(u64, u32)>>,
}

/// One read of the golden image.
#[derive(Clone, Copy, Debug)]
struct Step {
    first: u32,
    blocks: u16,
    phase: u8,
}

#[derive(Debug)]
struct Machine {
    chance: Chance,
    clock: Clock,
    started_us: u64,
    speed: f64,
    /// Place in the script.
    step: usize,
    /// Newly written blocks so far, one behind the other.
    written: u64,
}

impl BootStorm {
    /// Machines that are switched off.
    ///
    /// # Errors
    /// A number out of range, or a boot that reads more than a quarter of the image.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        settings.check()?;
        let mut chance = Chance::new(settings.seed, 0);
        let script = script(&settings, &mut chance);
        let machine = |number: u32| {
            let mut chance = Chance::new(settings.seed, u64::from(number) + 1);
            let started_us = chance.below(settings.window_us + 1);
            let speed = SPEED.start + (SPEED.end - SPEED.start) * chance.unit();
            let speed = speed * settings.speed;
            Machine { chance, clock: Clock::new(), started_us, speed, step: 0, written: 0 }
        };
        let machines: Vec<Machine> = (0..settings.machines).map(machine).collect();
        let starts = machines.iter().zip(0..).map(|(machine, n)| Reverse((machine.started_us, n)));
        let next = starts.collect();
        Ok(Self { settings, script, machines, next })
    }

    /// About how many requests there will be in all.
    pub fn requests_expected(&self) -> u64 {
        let steps = self.script.iter().map(|step| 1.0 / (1.0 - phase(*step).write_share));
        let each: f64 = steps.sum::<f64>() * (1.0 - PASSED_OVER);
        count(each * f64::from(self.settings.machines))
    }
}

impl Settings {
    fn check(&self) -> Result<(), Error> {
        check_range("machines", self.machines.into(), 1, MACHINES_MAX.into())?;
        check_range("a window in microseconds", self.window_us, 0, WINDOW_US_MAX)?;
        // A step's block has 32 bits: 16 TiB.
        check_range(
            "an image in blocks",
            self.image_blocks,
            4096,
            u64::from(u32::MAX).min(BLOCKS_MAX),
        )?;
        check_range("a boot in blocks", self.read_blocks, 256, READ_BLOCKS_MAX)?;
        check_number("a speed", self.speed, 0.001, 1000.0)?;
        let needed = self.read_blocks * 4;
        if needed > self.image_blocks {
            let (parts, whole) = ("four times what a boot reads", "the image");
            return Err(Error::Room { parts, needed, whole, there: self.image_blocks });
        }
        Ok(())
    }
}

fn phase(step: Step) -> &'static Phase {
    &PHASES[usize::from(step.phase)]
}

/// What every boot reads: files one behind the other, phase by phase, with gaps between them, so that
/// no block is read twice.
fn script(settings: &Settings, chance: &mut Chance) -> Vec<Step> {
    let lengths = Lengths::new(&[(1, 0.2), (2, 0.15), (4, 0.3), (8, 0.2), (16, 0.15)])
        .expect("lengths within bounds");
    let mut steps = Vec::new();
    // Half of the image is gaps, in proportion to what is read.
    let gap_per_block = settings.image_blocks as f64 / settings.read_blocks as f64 / 2.0;
    let mut at = 0;
    for (number, phase) in (0..).zip(&PHASES) {
        let (mut left, mut file) = (phase.read_share * settings.read_blocks as f64, 0);
        while left >= 1.0 && at < settings.image_blocks {
            let blocks = lengths.pick(chance).min(settings.image_blocks - at);
            steps.push(Step { first: at as u32, blocks: blocks as u16, phase: number });
            left -= blocks as f64;
            at += blocks;
            file += blocks;
            if chance.with(1.0 / phase.run) {
                at += chance.below(count(2.0 * gap_per_block * file as f64) + 1);
                file = 0;
            }
        }
    }
    steps
}

/// A count, rounded down.
#[expect(clippy::cast_sign_loss, reason = "the cast saturates")]
fn count(number: f64) -> u64 {
    number as u64
}

impl Machine {
    /// What it does next, at a time; none if it only passes something over.
    fn go_on(&mut self, ts_us: u64, volume: u32, settings: &Settings, now: Step) -> Option<Record> {
        let Self { chance, step, written, .. } = self;
        if chance.with(phase(now).write_share) {
            let at = if chance.with(STATE) {
                chance.below(STATE_BLOCKS)
            } else {
                *written += 1;
                STATE_BLOCKS + (*written - 1) % (settings.image_blocks - STATE_BLOCKS)
            };
            return Some(request(ts_us, volume, true, at, 1));
        }
        *step += 1;
        if chance.with(PASSED_OVER) {
            return None;
        }
        if *written > 0 && chance.with(READ_BACK) {
            // What it wrote itself is in its overlay, not in the image.
            let at =
                STATE_BLOCKS + chance.below((*written).min(settings.image_blocks - STATE_BLOCKS));
            return Some(request(ts_us, volume, false, at, 1));
        }
        Some(request(ts_us, 0, false, now.first.into(), now.blocks.into()))
    }
}

impl Iterator for BootStorm {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        loop {
            let Reverse((ts_us, number)) = self.next.pop()?;
            let machine = &mut self.machines[number as usize];
            let step = self.script[machine.step];
            let record = machine.go_on(ts_us, number + 1, &self.settings, step);
            if machine.step < self.script.len() {
                let rate = phase(step).per_second * machine.speed;
                let passed_us = machine.clock.next_us(rate, &mut machine.chance);
                self.next.push(Reverse((machine.started_us + passed_us, number)));
            }
            if record.is_some() {
                return record;
            }
        }
    }
}
