//! A trace cut into intervals, by the rule of a running cache: measurement and replay cut alike.

use cinnabar_policy::planning::{Every, Interval};
use cinnabar_trace::{Op, Record, TraceError};

/// A trace, interval by interval.
#[derive(Debug)]
pub struct Intervals<I> {
    records: I,
    every: Every,
    /// The first request of the next interval.
    next: Option<Record>,
    begun: u64,
}

impl<I: Iterator<Item = Result<Record, TraceError>>> Intervals<I> {
    /// Cuts `records`, which are in order of time.
    pub fn new(records: I, every: Every) -> Self {
        Self { records, every, next: None, begun: 0 }
    }

    /// Goes through the next interval, handing each request to `each`; `None` at the end.
    ///
    /// # Errors
    /// What the trace says; requests before it were handed on.
    pub fn next(&mut self, mut each: impl FnMut(&Record)) -> Result<Option<Interval>, TraceError> {
        let Some(first) = self.next.take().map(Ok).or_else(|| self.records.next()) else {
            return Ok(None);
        };
        let first = first?;
        let mut found = self.every.begin(self.begun, first.ts_us);
        self.begun += 1;
        let mut record = first;
        loop {
            let refers = matches!(record.op, Op::Read | Op::Write);
            let blocks = if refers { record.blocks() } else { 0..0 };
            found.count(record.ts_us, blocks.end - blocks.start);
            each(&record);
            let Some(next) = self.records.next() else { return Ok(Some(found)) };
            record = next?;
            if self.every.is_behind(&found, record.ts_us) {
                self.next = Some(record);
                return Ok(Some(found));
            }
        }
    }

    /// Where the requests come from.
    pub const fn records(&self) -> &I {
        &self.records
    }

    /// When the next interval's first request comes; `None` at the end. Known behind an interval.
    pub fn next_us(&self) -> Option<u64> {
        self.next.map(|record| record.ts_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(times_us: &[u64], every: Every) -> Vec<(u64, u64, u64, u64)> {
        let record = |&ts_us: &u64| {
            let (op, length_bytes) = (Op::Read, 8192);
            Ok(Record { ts_us, volume: 0, op, offset_bytes: 0, length_bytes })
        };
        let mut intervals = Intervals::new(times_us.iter().map(record), every);
        let mut found = Vec::new();
        let mut seen = 0;
        while let Some(part) = intervals.next(|_| seen += 1).expect("a good trace") {
            assert_eq!(intervals.next_us(), times_us.get(seen).copied(), "what comes next");
            found.push((part.number, part.start_us, part.last_us, part.references));
        }
        assert_eq!(seen, times_us.len(), "each request once");
        found
    }

    #[test]
    fn time_is_cut_on_multiples_and_silence_left_out() {
        let found = cut(&[0, 9, 10, 57], Every::Time(10));
        assert_eq!(found, [(0, 0, 9, 4), (1, 10, 10, 2), (5, 50, 57, 2)]);
    }

    #[test]
    fn references_are_cut_behind_whole_requests() {
        let found = cut(&[0, 0, 0, 4], Every::References(3));
        assert_eq!(found, [(0, 0, 0, 4), (1, 0, 4, 4)]);
        assert_eq!(cut(&[3, 8], Every::Never), [(0, 3, 8, 4)]);
        assert_eq!(cut(&[], Every::Never), []);
    }

    #[test]
    fn an_error_ends_it() {
        let bad = || TraceError::Io { line: 7, source: std::io::ErrorKind::Other.into() };
        let record =
            Record { ts_us: 0, volume: 0, op: Op::Flush, offset_bytes: 0, length_bytes: 0 };
        let mut intervals = Intervals::new([Ok(record), Err(bad())].into_iter(), Every::Never);
        assert!(intervals.next(|_| {}).is_err());
    }
}
