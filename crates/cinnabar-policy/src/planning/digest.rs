//! A number that two plans share if they are made of the same and are the same: to compare those of a
//! running cache with those of a recording, interval by interval.
//!
//! Where the interval lies is no part of it: a recording begins later than the cache did.

use super::live::Closed;
use super::plan::Part;
use crate::reuse::SampledCurves;

/// Sizes at which curves are compared, as powers of two blocks.
const SIZES: std::ops::Range<u32> = 0..34;

/// 64-bit FNV-1a.
struct Fnv(u64);

impl Fnv {
    fn add(&mut self, value: u64) {
        for byte in value.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
    }

    fn add_curves(&mut self, curves: &SampledCurves) {
        let mix = &curves.mix;
        for count in [mix.reads, mix.writes, mix.rar, mix.raw, mix.war, mix.waw] {
            self.add(count);
        }
        for value in [curves.blocks, curves.blocks_again, curves.rate.to_bits()] {
            self.add(value);
        }
        for shift in SIZES {
            let size = 1 << shift;
            let all = [&curves.hits, &curves.read_hits, &curves.destages, &curves.read_only_hits];
            for curve in all {
                self.add(curve.at(size).to_bits());
            }
        }
    }

    fn add_part(&mut self, part: &Part) {
        self.add(part.blocks);
        self.add(part.policy as u64);
    }
}

impl Closed {
    /// See the module.
    pub fn digest(&self) -> u64 {
        let mut fnv = Fnv(0xCBF2_9CE4_8422_2325);
        let Self { interval, ended, curves, parts } = self;
        for count in [interval.requests, interval.references, ended.passed] {
            fnv.add(count);
        }
        fnv.add(ended.seconds.to_bits());
        for curves in curves {
            fnv.add_curves(curves);
        }
        fnv.add(parts.as_ref().map_or(0, |parts| 1 + parts.len() as u64));
        for part in parts.iter().flatten() {
            fnv.add_part(part);
        }
        fnv.0
    }
}
