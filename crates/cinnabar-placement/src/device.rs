//! What a pool's devices take for a request, and what the fast pool saves.
//!
//! `t(op, length, sequential) = L + length / B`, refined by what a probe measured at several lengths.

use crate::geometry::Pool;
use crate::limits::POINTS_MAX;
use thiserror::Error;

/// The direction of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the pool.
    Read,
    /// To the pool.
    Write,
}

/// A time that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Bytes of the request.
    pub length: u32,
    /// Its service time in ns.
    pub ns: f64,
}

/// Service times by length: straight between the points, level before the first one, and beyond the
/// last one as steep as between the last two.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve(Vec<Point>);

/// Why service times are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DeviceError {
    /// Too many, or none.
    #[error("a curve of {0} points; it has 1 to {POINTS_MAX}")]
    Points(usize),
    /// A time that falls or is no time, or lengths out of order.
    #[error(
        "lengths rise and service times do not fall from point to point; at {0} bytes they do not"
    )]
    Order(u32),
    /// There would be nothing to gain.
    #[error("the fast pool is not faster than the slow one at 4 KiB")]
    NotFaster,
}

impl Curve {
    /// Through the points.
    ///
    /// # Errors
    /// When there are too many or none, or they are out of order.
    pub fn new(points: &[Point]) -> Result<Self, DeviceError> {
        if !(1..=POINTS_MAX).contains(&points.len()) {
            return Err(DeviceError::Points(points.len()));
        }
        let sound = |p: &Point| p.ns.is_finite() && p.ns > 0.0 && p.ns < 1e12;
        if let Some(point) = points.iter().find(|point| !sound(point)) {
            return Err(DeviceError::Order(point.length));
        }
        let rises = |pair: &&[Point]| pair[0].length < pair[1].length && pair[0].ns <= pair[1].ns;
        if let Some(pair) = points.windows(2).find(|pair| !rises(pair)) {
            return Err(DeviceError::Order(pair[1].length));
        }
        Ok(Self(points.to_vec()))
    }

    /// `latency_ns + length / bytes_per_s`.
    ///
    /// # Errors
    /// When these are no times.
    pub fn line(latency_ns: f64, bytes_per_s: f64) -> Result<Self, DeviceError> {
        let at = |length: u32| latency_ns + f64::from(length) / bytes_per_s * 1e9;
        let point = |length: u32| Point { length, ns: at(length) };
        Self::new(&[point(512), point(1 << 20)])
    }

    /// The service time of a request in ns.
    pub fn ns(&self, length: u64) -> f64 {
        let length = length as f64;
        let at = self.0.partition_point(|point| f64::from(point.length) <= length);
        if at == 0 || self.0.len() == 1 {
            return self.0[0].ns;
        }
        let right = at.min(self.0.len() - 1);
        let (a, b) = (self.0[right - 1], self.0[right]);
        let slope = (b.ns - a.ns) / f64::from(b.length - a.length);
        a.ns + slope * (length - f64::from(a.length))
    }

    pub fn points(&self) -> &[Point] {
        &self.0
    }
}

/// A pool's devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Reads anywhere.
    pub read: Curve,
    /// Writes anywhere.
    pub write: Curve,
    /// Reads that go on where an earlier one ended.
    pub read_on: Curve,
    /// Writes that go on where an earlier one ended.
    pub write_on: Curve,
}

impl Device {
    /// The service time of a request in ns.
    pub fn ns(&self, direction: Direction, length: u64, sequential: bool) -> f64 {
        let curve = match (direction, sequential) {
            (Direction::Read, false) => &self.read,
            (Direction::Write, false) => &self.write,
            (Direction::Read, true) => &self.read_on,
            (Direction::Write, true) => &self.write_on,
        };
        curve.ns(length)
    }
}

/// Both pools.
#[derive(Clone, Debug, PartialEq)]
pub struct Devices {
    slow: Device,
    fast: Device,
    unit_ns: f64,
}

impl Devices {
    /// Of two pools.
    ///
    /// # Errors
    /// When the fast one saves nothing.
    pub fn new(slow: Device, fast: Device) -> Result<Self, DeviceError> {
        let saves = |d| slow.ns(d, 4096, false) - fast.ns(d, 4096, false);
        let unit_ns = f64::max(saves(Direction::Read), saves(Direction::Write));
        if unit_ns <= 0.0 {
            return Err(DeviceError::NotFaster);
        }
        Ok(Self { slow, fast, unit_ns })
    }

    /// What the fast pool saves of a random request of 4 KiB, in ns: the unit of scores.
    pub fn unit_ns(&self) -> f64 {
        self.unit_ns
    }

    /// What the fast pool saves of a request, in units of [`Devices::unit_ns`].
    pub fn score(&self, direction: Direction, length: u64, sequential: bool) -> f32 {
        let slow = self.slow.ns(direction, length, sequential);
        let saved = slow - self.fast.ns(direction, length, sequential);
        (saved.max(0.0) / self.unit_ns) as f32
    }

    /// What both pools do for copying `bytes` out of one of them, in ns.
    pub fn copy_ns(&self, from: Pool, bytes: u64, sequential: bool) -> f64 {
        let (from, to) = match from {
            Pool::Slow => (&self.slow, &self.fast),
            Pool::Fast => (&self.fast, &self.slow),
        };
        from.ns(Direction::Read, bytes, sequential) + to.ns(Direction::Write, bytes, sequential)
    }

    /// What both pools do for copying `bytes` to the fast pool and, one day, back; in ns.
    pub fn both_copies_ns(&self, bytes: u64) -> f64 {
        self.copy_ns(Pool::Slow, bytes, true) + self.copy_ns(Pool::Fast, bytes, true)
    }
}

impl Default for Devices {
    /// Disks of 8 ms and 120 MB/s, and SSDs of 0.2 ms and 400 MB/s, as they commonly are.
    fn default() -> Self {
        let device = |random_ns: f64, on_ns: f64, bytes_per_s: f64| {
            let curve = |ns| Curve::line(ns, bytes_per_s).expect("times");
            let (read, read_on) = (curve(random_ns), curve(on_ns));
            Device { write: read.clone(), write_on: read_on.clone(), read, read_on }
        };
        let slow = device(8e6, 2e5, 120e6);
        Self::new(slow, device(2e5, 1e5, 400e6)).expect("the fast one is faster")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_goes_through_its_points() {
        let points = [(4096, 100.0), (65_536, 700.0), (1 << 20, 5000.0)];
        let points = points.map(|(length, ns)| Point { length, ns });
        let curve = Curve::new(&points).expect("in order");
        assert!((curve.ns(512) - 100.0).abs() < 1e-9, "level before the first one");
        assert!((curve.ns(65_536) - 700.0).abs() < 1e-9);
        assert!((curve.ns(34_816) - 400.0).abs() < 1e-9);
        let slope = 4300.0 / f64::from((1 << 20) - 65_536);
        assert!((curve.ns(2 << 20) - 5000.0 - slope * f64::from(1 << 20)).abs() < 1e-6);
        let line = Curve::line(1e6, 1e9).expect("times");
        assert!((line.ns(4 << 20) - 1e6 - f64::from(4 << 20)).abs() < 1.0);
    }

    #[test]
    fn what_is_no_curve_is_refused() {
        let point = |length, ns| Point { length, ns };
        assert_eq!(Curve::new(&[]), Err(DeviceError::Points(0)));
        assert_eq!(Curve::new(&[point(1, 1.0); 9]), Err(DeviceError::Points(9)));
        assert_eq!(Curve::new(&[point(8, 2.0), point(9, 1.0)]), Err(DeviceError::Order(9)));
        assert_eq!(Curve::new(&[point(8, 1.0), point(8, 2.0)]), Err(DeviceError::Order(8)));
        assert_eq!(Curve::new(&[point(7, f64::NAN)]), Err(DeviceError::Order(7)));
        assert!(Curve::line(1.0, 0.0).is_err());
    }

    #[test]
    fn small_random_requests_gain_most() {
        let devices = Devices::default();
        let score = |length, on| devices.score(Direction::Read, length, on);
        assert!((score(4096, false) - 1.0).abs() < 1e-6);
        assert!(score(4096, true) < 0.02, "a disk is good at what goes on");
        let gain_per_byte = |length: u64| score(length, false) / length as f32;
        assert!(gain_per_byte(1 << 20) < gain_per_byte(4096) / 50.0);
        let same = devices.fast.clone();
        assert_eq!(Devices::new(same.clone(), same), Err(DeviceError::NotFaster));
    }
}
