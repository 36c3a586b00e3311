//! A trace in periods: the last one is the test, and those before it warm the cache.

use super::error::ReplayError;
use super::survey::Survey;
use std::ops::Range;
use std::time::Duration;

/// How a trace is cut. Periods begin at multiples of their length, so that days are days whatever
/// the time of the first record in them is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Periods {
    length_us: u64,
    first: u64,
    last: u64,
}

impl Periods {
    pub(super) fn new(length: Duration, survey: &Survey) -> Self {
        let length_us = u64::try_from(length.as_micros()).unwrap_or(u64::MAX).max(1);
        Self { length_us, first: survey.first_us / length_us, last: survey.last_us / length_us }
    }

    /// Time of the test, in microseconds of the trace.
    pub(super) fn test(&self) -> Range<u64> {
        self.last * self.length_us..u64::MAX
    }

    /// Time of so many periods before the test.
    ///
    /// # Errors
    /// [`ReplayError::Periods`] if there are fewer.
    pub(super) fn warming(&self, asked: u64) -> Result<Range<u64>, ReplayError> {
        let periods = self.last - self.first;
        if asked > periods {
            return Err(ReplayError::Periods { periods, asked });
        }
        Ok((self.last - asked) * self.length_us..self.last * self.length_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_cut_at_midnight() {
        let survey = Survey { first_us: 130, last_us: 450, ..Survey::default() };
        let periods = Periods::new(Duration::from_micros(100), &survey);
        assert_eq!(periods.test().start, 400);
        assert_eq!(periods.warming(0).expect("none"), 400..400);
        assert_eq!(periods.warming(1).expect("one"), 300..400);
        assert_eq!(periods.warming(3).expect("all"), 100..400);
        let error = periods.warming(4).expect_err("too many");
        assert!(matches!(error, ReplayError::Periods { periods: 3, asked: 4 }), "{error}");
    }

    #[test]
    fn a_trace_within_a_period_is_all_test() {
        let survey = Survey { first_us: 130, last_us: 450, ..Survey::default() };
        let periods = Periods::new(Duration::from_secs(1), &survey);
        assert!(periods.test().contains(&130));
        assert!(periods.warming(1).is_err());
        Periods::new(Duration::MAX, &survey).warming(0).expect("no overflow");
        Periods::new(Duration::ZERO, &survey).warming(0).expect("no division by zero");
    }
}
