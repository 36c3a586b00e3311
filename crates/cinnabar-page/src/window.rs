//! What a volume, or the cache, did in a range: the sum of its samples.

use cinnabar_config::history::Point;

/// See the module. Counts of what samples say; times weighted by requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// How long the samples are together, in seconds.
    pub seconds: f64,
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    pub read_blocks: u64,
    /// Of those, from RAM or the SSD.
    pub hit_blocks: u64,
    pub written_blocks: u64,
    /// Reads of the back end.
    pub backend_reads: u64,
    /// Writes of the back end.
    pub backend_writes: u64,
    /// Blocks written to the SSD; of the cache only.
    pub ssd_written_blocks: u64,
    /// Latencies of reads together, in us.
    read_us: f64,
    /// Latencies of writes together, in us.
    write_us: f64,
}

impl Window {
    /// Of samples.
    pub fn of<'p>(points: impl IntoIterator<Item = &'p Point>) -> Self {
        points.into_iter().fold(Self::default(), |sum, point| Self {
            seconds: sum.seconds + f64::from(point.span_ms) / 1000.0,
            reads: sum.reads + u64::from(point.reads),
            writes: sum.writes + u64::from(point.writes),
            read_blocks: sum.read_blocks + u64::from(point.read_blocks),
            hit_blocks: sum.hit_blocks + u64::from(point.hit_blocks),
            written_blocks: sum.written_blocks + u64::from(point.written_blocks),
            backend_reads: sum.backend_reads + u64::from(point.backend_reads),
            backend_writes: sum.backend_writes + u64::from(point.backend_writes),
            ssd_written_blocks: sum.ssd_written_blocks + u64::from(point.ssd_written_blocks),
            read_us: sum.read_us + f64::from(point.read_mean_us) * f64::from(point.reads),
            write_us: sum.write_us + f64::from(point.write_mean_us) * f64::from(point.writes),
        })
    }

    /// Requests of guests.
    pub fn ios(&self) -> u64 {
        self.reads + self.writes
    }

    /// I/Os of guests that the back end did not have to do; negative if it did more.
    pub fn spared(&self) -> i64 {
        let backend = self.backend_reads + self.backend_writes;
        self.ios().cast_signed().saturating_sub(backend.cast_signed())
    }

    /// That as a part of the guests' I/Os.
    pub fn spared_part(&self) -> Option<f64> {
        (self.ios() > 0).then(|| self.spared() as f64 / self.ios() as f64)
    }

    /// The part of the blocks read that hit.
    pub fn hit_ratio(&self) -> Option<f64> {
        (self.read_blocks > 0).then(|| self.hit_blocks as f64 / self.read_blocks as f64)
    }

    /// Mean latency of reads in us.
    pub fn read_mean_us(&self) -> Option<f64> {
        (self.reads > 0).then(|| self.read_us / self.reads as f64)
    }

    /// Mean latency of writes in us.
    pub fn write_mean_us(&self) -> Option<f64> {
        (self.writes > 0).then(|| self.write_us / self.writes as f64)
    }

    /// So many a second, of the time that there are samples of.
    pub fn a_second(&self, count: f64) -> Option<f64> {
        (self.seconds > 0.0).then(|| count / self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_and_times_weighted() {
        let one = Point {
            span_ms: 10_000,
            reads: 30,
            read_blocks: 60,
            hit_blocks: 45,
            backend_reads: 10,
            read_mean_us: 100,
            ..Point::default()
        };
        let two = Point { span_ms: 10_000, reads: 10, read_mean_us: 500, ..Point::default() };
        let sum = Window::of(&[one, two]);
        assert_eq!((sum.ios(), sum.spared(), sum.spared_part()), (40, 30, Some(0.75)));
        assert_eq!((sum.hit_ratio(), sum.read_mean_us()), (Some(0.75), Some(200.0)));
        assert_eq!((sum.write_mean_us(), sum.a_second(40.0)), (None, Some(2.0)));
        let busy = Window { backend_writes: 5, ..Window::default() };
        assert_eq!((busy.spared(), busy.spared_part()), (-5, None));
    }
}
