//! Clock time on an axis: milliseconds since 1970 as dates and times in UTC, and the ticks between
//! two of them.

use crate::chart::ruler::Ruler;

/// The end of the year 9999.
const LAST_MS: u64 = 253_402_300_799_999;
/// The zone of all that is written here.
pub(super) const ZONE: &str = "UTC";

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// 1970 began on a Thursday; weeks begin on Mondays.
const MONDAY: u64 = 4 * DAY;

/// Between two ticks, while these are equally far apart.
const STEPS: [u64; 20] = [
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
];
/// Between two ticks in months.
const MONTHS: [u64; 10] = [1, 3, 6, 12, 24, 60, 120, 240, 600, 1200];
const NAMES: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) year: u64,
    /// From 1 on.
    pub(super) month: u64,
    /// From 1 on.
    pub(super) day: u64,
    /// Milliseconds since midnight.
    pub(super) of_day: u64,
}

impl Moment {
    /// Of milliseconds since 1970. Years begin in March here, so that the leap day is the last one of
    /// its year.
    pub(super) fn of(ms: u64) -> Self {
        const DAYS_400_YEARS: u64 = 146_097;
        let ms = ms.min(LAST_MS);
        // 1970-01-01 is day 719468 from 0000-03-01 on.
        let days = ms / DAY + 719_468;
        let (era, day) = (days / DAYS_400_YEARS, days % DAYS_400_YEARS);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        Self { year: era * 400 + year + next, month, day, of_day: ms % DAY }
    }

    /// `27 Nov 2026`.
    pub(super) fn date(self) -> String {
        format!("{} {}", self.day_of_month(), self.year)
    }

    fn day_of_month(self) -> String {
        format!("{} {}", self.day, self.month_name())
    }

    fn month_name(self) -> &'static str {
        NAMES[(self.month - 1) as usize % 12]
    }

    /// `05:32`.
    fn time(self) -> String {
        format!("{:02}:{:02}", self.of_day / HOUR, self.of_day / MINUTE % 60)
    }

    /// `05:32:11`.
    pub(super) fn seconds(self) -> String {
        format!("{}:{:02}", self.time(), self.of_day / SECOND % 60)
    }
}

/// Milliseconds as a whole number in the range that has dates.
#[expect(clippy::cast_sign_loss, reason = "it is between 0 and the last one")]
pub(super) fn whole(ms: f64) -> u64 {
    if ms.is_finite() { ms.clamp(0.0, LAST_MS as f64).round() as u64 } else { 0 }
}

/// `2026-11-27T05:32:11Z`, with milliseconds if there are any.
pub(super) fn iso(ms: f64) -> String {
    let moment = Moment::of(whole(ms));
    let rest = moment.of_day % SECOND;
    let part = if rest == 0 { String::new() } else { format!(".{rest:03}") };
    let (year, month, day) = (moment.year, moment.month, moment.day);
    format!("{year:04}-{month:02}-{day:02}T{}{part}Z", moment.seconds())
}

/// `27 Nov 05:32:11`, for tables.
pub(super) fn short(ms: f64) -> String {
    let moment = Moment::of(whole(ms));
    format!("{} {}", moment.day_of_month(), moment.seconds())
}

/// What an axis between two moments is called: the zone and the days.
pub(super) fn title(from: f64, to: f64) -> String {
    let (first, last) = (Moment::of(whole(from)).date(), Moment::of(whole(to)).date());
    if first == last {
        format!("time ({ZONE}), {first}")
    } else {
        format!("time ({ZONE}), {first} to {last}")
    }
}

/// A ruler from a moment to another one with at most so many ticks.
pub(super) fn ruler(from: f64, to: f64, ticks_max: usize) -> Ruler {
    let first = whole(from).min(LAST_MS - SECOND);
    let last = whole(to).max(first + SECOND);
    Ruler::with_ticks(first as f64, last as f64, ticks(first, last, ticks_max.max(2)))
}

fn ticks(first: u64, last: u64, ticks_max: usize) -> Vec<(f64, String)> {
    let fits = |step: &u64| (last - first) / step < ticks_max as u64;
    if let Some(step) = STEPS.into_iter().find(fits) {
        return even(first, last, step);
    }
    let months = MONTHS.into_iter().map(|months| by_months(first, last, months));
    let mut found = Vec::new();
    for ticks in months {
        found = ticks;
        if found.len() <= ticks_max {
            break;
        }
    }
    found.truncate(ticks_max);
    found
}

/// Ticks at multiples of a step, which are round in the clock and in the calendar.
fn even(first: u64, last: u64, step: u64) -> Vec<(f64, String)> {
    let shift = if step.is_multiple_of(7 * DAY) { MONDAY } else { 0 };
    let begin = first.saturating_sub(shift).div_ceil(step) * step + shift;
    let label = |ms: u64| {
        let moment = Moment::of(ms);
        match (moment.of_day, step) {
            (0, _) => moment.day_of_month(),
            (_, step) if step < MINUTE => moment.seconds(),
            _ => moment.time(),
        }
    };
    (begin..=last).step_by(step as usize).map(|ms| (ms as f64, label(ms))).collect()
}

/// Ticks at the first days of months, a number of months apart.
fn by_months(first: u64, last: u64, months: u64) -> Vec<(f64, String)> {
    let mut ticks = Vec::new();
    let begin = Moment::of(first);
    let mut month = (begin.year * 12 + begin.month - 1) / months * months;
    while let Some(ms) = first_of(month).filter(|ms| *ms <= last) {
        let moment = Moment::of(ms);
        // The month of the first moment began before it.
        if ms >= first {
            let year = moment.year;
            let whole = months.is_multiple_of(12);
            let month = if whole { "" } else { moment.month_name() };
            let label = format!("{month} {year}").trim_start().to_owned();
            ticks.push((ms as f64, label));
        }
        month += months;
    }
    ticks
}

/// The first moment of a month, counted from the year 0; none beyond the calendar. Before 1970 it is
/// 1970.
fn first_of(month: u64) -> Option<u64> {
    let (year, month) = (month / 12, month % 12 + 1);
    if year < 1970 {
        return Some(0);
    }
    // Years from March on, as above.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5;
    Some((days - 719_468) * DAY).filter(|ms| *ms <= LAST_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-27T05:32:11Z.
    const NOW: f64 = 1_795_757_531_000.0;

    fn labels(from: f64, to: f64) -> Vec<String> {
        ruler(from, to, 7).labels().map(str::to_owned).collect()
    }

    #[test]
    fn moments_are_dates() {
        assert_eq!(iso(NOW), "2026-11-27T05:32:11Z");
        assert_eq!(iso(0.0), "1970-01-01T00:00:00Z");
        assert_eq!(iso(951_782_400_123.0), "2000-02-29T00:00:00.123Z");
        assert_eq!(iso(f64::NAN), "1970-01-01T00:00:00Z");
        assert_eq!(iso(1e300), "9999-12-31T23:59:59.999Z");
        assert_eq!(short(NOW), "27 Nov 05:32:11");
        assert_eq!(title(NOW, NOW + 1e6), "time (UTC), 27 Nov 2026");
        assert_eq!(title(NOW, NOW + 1e8), "time (UTC), 27 Nov 2026 to 28 Nov 2026");
    }

    #[test]
    fn ticks_are_round_in_the_clock() {
        let minutes = ["05:33", "05:34", "05:35", "05:36", "05:37"];
        assert_eq!(labels(NOW, NOW + 300e3), minutes);
        assert_eq!(
            labels(NOW, NOW + 25e3),
            ["05:32:15", "05:32:20", "05:32:25", "05:32:30", "05:32:35"]
        );
        let day = ["06:00", "12:00", "18:00", "28 Nov"];
        assert_eq!(labels(NOW, NOW + 864e5), day);
        // 30 November 2026 is a Monday.
        assert_eq!(labels(NOW, NOW + 30.0 * 864e5)[0], "30 Nov");
        assert_eq!(
            labels(NOW, NOW + 120.0 * 864e5),
            ["Dec 2026", "Jan 2027", "Feb 2027", "Mar 2027"]
        );
        let years = labels(0.0, 1e15);
        assert_eq!(years.first().map(String::as_str), Some("1970"), "{years:?}");
    }

    #[test]
    fn whatever_the_range_ticks_are_few_and_in_it() {
        let ends = [0.0, 1.0, NOW, NOW + 1.0, NOW + 61e3, NOW * 2.0, 1e14, 1e300, -5.0, f64::NAN];
        for from in ends {
            for length in (0..45).map(|power| 2f64.powi(power)) {
                for ticks_max in [0, 2, 5, 12] {
                    let ruler = ruler(from, from + length, ticks_max);
                    let ticks = ruler.ticks();
                    assert!(ticks.len() <= ticks_max.max(2), "{from} {length}: {ruler:?}");
                    assert!(ticks.is_sorted_by(|one, next| one.0 < next.0), "{ruler:?}");
                    let places = ticks.iter().map(|tick| ruler.place(tick.0));
                    let outside = |place: Option<f64>| !(0.0..=1.0).contains(&place.unwrap_or(9.0));
                    assert!(!places.into_iter().any(outside), "{ruler:?}");
                }
            }
        }
    }
}
