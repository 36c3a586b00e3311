//! A ruler: where on an axis a value lies, and which ticks the axis has.

use super::{Axis, Scale};
use crate::Unit;
use crate::unit::{decimal, exponent};

/// Values beyond are no values: so that differences are always finite.
const LARGEST: f64 = 1e300;
/// Steps of a linear axis, about.
const STEPS: f64 = 6.0;
/// What zero and marks may leave empty of an axis, as a part of it.
const EMPTY_MAX: f64 = 0.2;
/// How much longer an end of an axis may get to be a round number, as a part of it.
const ROUND_MAX: f64 = 0.05;
/// How much longer it gets else, so that nothing lies on the edge.
const EDGE: f64 = 0.02;
/// Labelled ticks of a logarithmic axis.
const LOG_TICKS_MAX: i32 = 9;

#[derive(Clone, Debug)]
pub(super) struct Ruler {
    low: f64,
    high: f64,
    scale: Scale,
    ticks: Vec<(f64, String)>,
    /// The unit of the tick labels, if they don't say it: for the label of the axis.
    suffix: &'static str,
}

impl Ruler {
    /// A ruler that has all values on it that can be drawn and lie within the bounds of the axis, and
    /// 0 and marks if they are near: at most [`EMPTY_MAX`] of it is for them.
    pub(super) fn new(
        axis: &Axis,
        values: impl Iterator<Item = f64>,
        marks: impl Iterator<Item = f64>,
    ) -> Self {
        let drawable = |value: &f64| draws(axis, *value);
        // Wide enough that ticks are different numbers.
        let range = |(low, high): &(f64, f64)| {
            let size = high.abs().max(low.abs());
            high - low > size * 1e-6 && high - low >= 1.0 / LARGEST
        };
        let bounds =
            axis.bounds.filter(|(low, high)| drawable(low) && drawable(high)).filter(range);
        let within = |value: f64| bounds.map_or(value, |(low, high)| value.clamp(low, high));
        let found = values.filter(drawable).fold(None, |found: Option<(f64, f64)>, value| {
            let value = within(value);
            let (low, high) = found.unwrap_or((value, value));
            Some((low.min(value), high.max(value)))
        });
        // Where differences are lengths.
        let flat = |value: f64| if axis.scale == Scale::Log { value.ln() } else { value };
        let default = if axis.scale == Scale::Log { (1.0, 10.0) } else { (0.0, 1.0) };
        let zero = (axis.scale == Scale::Linear).then_some(0.0);
        let data = found.or(bounds).unwrap_or(default);
        let marks = marks.filter(drawable).map(within);
        // Each may take some of what is for all of them together.
        let near = |range: (f64, f64), more: f64| {
            let (lower, higher) = (range.0.min(more), range.1.max(more));
            let part = (flat(data.1) - flat(data.0)) / (flat(higher) - flat(lower));
            if part >= 1.0 - EMPTY_MAX { (lower, higher) } else { range }
        };
        let zero = zero.filter(|zero| bounds.is_none_or(|(low, high)| (low..=high).contains(zero)));
        let (low, high) = zero.into_iter().chain(marks).fold(data, near);
        match axis.scale {
            Scale::Linear => Self::linear(axis.unit, bounds, roomy((low, high))),
            Scale::Log => Self::log(axis.unit, bounds, (low, high)),
        }
    }

    fn linear(unit: Unit, bounds: Option<(f64, f64)>, (low, high): (f64, f64)) -> Self {
        let shown = unit.step(high.abs().max(low.abs()), (high - low) / STEPS);
        let (from, to) = (low / shown.factor, high / shown.factor);
        let step = nice((to - from) / STEPS);
        let ends = ((from / step).floor() * step, (to / step).ceil() * step);
        let (from, to) = ended((from, to), ends);
        let (low, high) = (from * shown.factor, to * shown.factor);
        let (low, high) =
            bounds.map_or((low, high), |(least, most)| (low.max(least), high.min(most)));
        let (from, to) = (low / shown.factor, high / shown.factor);
        // A hair's breadth, so that 0.7 / 0.1 is on a ruler that ends at 0.7.
        let (first, last) = ((from / step - 1e-6).ceil(), (to / step + 1e-6).floor());
        let decimals = usize::try_from(-exponent(step * 1.000_001)).unwrap_or(0);
        // Time and bytes are named at the axis, "k" and "%" belong to the number.
        let (suffix, behind) = match unit {
            Unit::Count | Unit::Ratio => ("", shown.suffix),
            _ => (shown.suffix.trim_start(), ""),
        };
        let ticks: Vec<(f64, String)> = (first as i64..=last as i64)
            .map(|index| index as f64 * step)
            .map(|tick| {
                let behind = if tick == 0.0 && unit == Unit::Count { "" } else { behind };
                (tick * shown.factor, decimal(tick, decimals) + behind)
            })
            .collect();
        Self { low, high, scale: Scale::Linear, ticks, suffix }
    }

    fn log(unit: Unit, bounds: Option<(f64, f64)>, (low, high): (f64, f64)) -> Self {
        let ladder = if unit == Unit::Bytes { Ladder::Two } else { Ladder::Ten };
        let (low, high) =
            if high <= low * (1.0 + 1e-6) { (low / 2.0, high * 2.0) } else { (low, high) };
        let ends = (ladder.rung(ladder.below(low)).ln(), ladder.rung(ladder.above(high)).ln());
        let (low, high) = ended((low.ln(), high.ln()), ends);
        let (low, high) = (low.exp(), high.exp());
        let (low, high) =
            bounds.map_or((low, high), |(least, most)| (low.max(least), high.min(most)));
        let (first, last) = (ladder.above(low), ladder.below(high));
        let mut ticks: Vec<f64> =
            ladder.chosen(first, last).map(|rung| ladder.rung(rung)).collect();
        if ticks.len() < 2 {
            ticks = vec![low, high];
        }
        let ticks = ticks.into_iter().map(|tick| (tick, unit.show(tick))).collect();
        Self { low, high, scale: Scale::Log, ticks, suffix: "" }
    }

    /// A linear ruler with ticks of its own, the lowest first.
    pub(super) fn with_ticks(low: f64, high: f64, ticks: Vec<(f64, String)>) -> Self {
        Self { low, high, scale: Scale::Linear, ticks, suffix: "" }
    }

    /// The values at its ends.
    pub(super) const fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Whether equal differences or equal ratios are equally far apart.
    pub(super) const fn scale(&self) -> Scale {
        self.scale
    }

    /// Its ticks, the lowest first.
    pub(super) fn ticks(&self) -> &[(f64, String)] {
        &self.ticks
    }

    /// Where a value lies: 0 at the low end, 1 at the high end, beyond them outside; none if it
    /// can't be drawn.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        // The last tick may lie a little beyond the largest value.
        if value.is_nan() || value.abs() > LARGEST * 10.0 {
            return None;
        }
        match self.scale {
            Scale::Linear => Some((value - self.low) / (self.high - self.low)),
            Scale::Log if value < 0.1 / LARGEST => None,
            Scale::Log => Some((value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln())),
        }
    }

    /// The tick's label, if labels that need such a part of the ruler leave room for it.
    pub(super) fn label(&self, tick: f64, each: f64) -> String {
        let places: Vec<f64> =
            self.ticks.iter().filter_map(|(tick, _)| self.place(*tick)).collect();
        let gaps = places.array_windows().map(|[one, next]| next - one);
        let gap = gaps.fold(1.0, f64::min);
        let nth = (1..=self.ticks.len()).find(|nth| gap * *nth as f64 >= each);
        let nth = nth.unwrap_or(self.ticks.len()).max(1);
        let shown = self.ticks.iter().step_by(nth);
        let found = shown.into_iter().find(|(value, _)| value.total_cmp(&tick).is_eq());
        found.map(|(_, label)| label.clone()).unwrap_or_default()
    }

    pub(super) fn labels(&self) -> impl Iterator<Item = &str> {
        self.ticks.iter().map(|(_, label)| label.as_str())
    }

    /// The label of the axis, with the unit of its ticks.
    pub(super) fn title(&self, label: &str) -> String {
        match (label.is_empty(), self.suffix.is_empty()) {
            (_, true) => label.to_owned(),
            (true, false) => self.suffix.to_owned(),
            (false, false) => format!("{label} ({})", self.suffix),
        }
    }
}

/// Whether an axis has a place for the value.
pub(super) fn draws(axis: &Axis, value: f64) -> bool {
    match axis.scale {
        Scale::Linear => value.abs() <= LARGEST,
        Scale::Log => (1.0 / LARGEST..=LARGEST).contains(&value),
    }
}

/// A range that can be divided.
fn roomy((low, high): (f64, f64)) -> (f64, f64) {
    let size = low.abs().max(high.abs());
    if size < 1.0 / LARGEST {
        (0.0, 1.0)
    } else if high - low > size * 1e-6 {
        (low, high)
    } else {
        // All values are equal, or as good as.
        (low - size / 2.0, high + size / 2.0)
    }
}

/// A range that ends at round numbers if they are near, else a little beyond its ends.
fn ended((low, high): (f64, f64), (below, above): (f64, f64)) -> (f64, f64) {
    let length = high - low;
    let end = |end: f64, round: f64, edge: f64| {
        if (end - round).abs() <= length * ROUND_MAX { round } else { end + edge * length }
    };
    (end(low, below, -EDGE), end(high, above, EDGE))
}

/// 1, 2 or 5 times a power of ten, the first that is not below.
fn nice(step: f64) -> f64 {
    let power = 10f64.powi(exponent(step));
    let times = [1.0, 2.0, 5.0].into_iter().find(|times| times * power >= step * 0.999_999);
    times.unwrap_or(10.0) * power
}

/// The round numbers of a logarithmic axis, numbered.
#[derive(Clone, Copy, Debug)]
enum Ladder {
    /// 1, 2, 5, 10, 20 and so on.
    Ten,
    /// Powers of two.
    Two,
}

impl Ladder {
    fn rung(self, index: i32) -> f64 {
        match self {
            Self::Ten => {
                let times = [1.0, 2.0, 5.0][index.rem_euclid(3) as usize];
                times * 10f64.powi(index.div_euclid(3))
            }
            Self::Two => 2f64.powi(index),
        }
    }

    /// The last rung that is not above a value.
    fn below(self, value: f64) -> i32 {
        // The logarithm may be off by a hair, so begin one too high.
        let start = match self {
            Self::Ten => exponent(value) * 3 + 4,
            Self::Two => value.log2().floor() as i32 + 2,
        };
        let mut index = start;
        while self.rung(index) > value * (1.0 + 1e-9) {
            index -= 1;
        }
        index
    }

    /// The first rung that is not below a value.
    fn above(self, value: f64) -> i32 {
        let below = self.below(value);
        if self.rung(below) >= value * (1.0 - 1e-9) { below } else { below + 1 }
    }

    /// Not too many rungs between two, round ones first.
    fn chosen(self, first: i32, last: i32) -> impl Iterator<Item = i32> {
        let steps: [i32; 3] = match self {
            Self::Ten => [1, 3, 6],
            Self::Two => [1, 2, 4],
        };
        let count = |step: i32| last.div_euclid(step) - (first - 1).div_euclid(step);
        let few = steps.into_iter().find(|step| count(*step) <= LOG_TICKS_MAX);
        let step = few.unwrap_or_else(|| {
            let wide = (last - first) / LOG_TICKS_MAX + 1;
            (wide + steps[1] - 1) / steps[1] * steps[1]
        });
        (first..=last).filter(move |index| index.rem_euclid(step) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ruler(axis: &Axis, values: &[f64]) -> Ruler {
        Ruler::new(axis, values.iter().copied(), [].into_iter())
    }

    fn labels(axis: &Axis, values: &[f64]) -> Vec<String> {
        ruler(axis, values).labels().map(str::to_owned).collect()
    }

    #[test]
    fn linear_ticks_are_round_and_in_one_unit() {
        let axis = Axis::linear("time", Unit::Micros);
        let ruler = ruler(&axis, &[800.0, 29_000.0]);
        let found: Vec<&str> = ruler.labels().collect();
        assert_eq!(found, ["0", "5", "10", "15", "20", "25", "30"]);
        assert_eq!(ruler.title("time"), "time (ms)");
        let axis = Axis::linear("", Unit::Count);
        assert_eq!(labels(&axis, &[0.0, 480_000.0]), ["0", "100k", "200k", "300k", "400k", "500k"]);
        let ruler = Ruler::new(&axis, [1e6, 1e6 + 3.0].into_iter(), [].into_iter());
        let found: Vec<&str> = ruler.labels().take(2).collect();
        assert_eq!(found, ["1000000.0", "1000000.5"]);
        let axis = Axis::linear("", Unit::Ratio).between(0.0, 1.0);
        let whole = ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"];
        assert_eq!(labels(&axis, &[0.02, 0.98, 7.0]), whole);
        assert_eq!(labels(&axis, &[0.9, 0.99]), ["90 %", "92 %", "94 %", "96 %", "98 %"]);
        let axis = Axis::linear("", Unit::Count);
        assert_eq!(labels(&axis, &[-0.5, 0.3]), ["-0.4", "-0.2", "0", "0.2"]);
    }

    #[test]
    fn logarithmic_ticks_are_round() {
        let axis = Axis::log("", Unit::Micros);
        assert_eq!(labels(&axis, &[90.0, 2100.0]), ["100 us", "200 us", "500 us", "1 ms", "2 ms"]);
        assert_eq!(labels(&axis, &[1.0, 1e6, 0.0]).first().map(String::as_str), Some("1 us"));
        let axis = Axis::log("", Unit::Bytes);
        assert_eq!(
            labels(&axis, &[4096.0, 65536.0]),
            ["4 KiB", "8 KiB", "16 KiB", "32 KiB", "64 KiB"]
        );
    }

    #[test]
    fn little_of_an_axis_is_empty() {
        let ranges =
            [(0.9, 1.0), (0.1, 3.17), (26.0, 93.0), (4096.0, 5e9), (3.0, 1e5), (-7.0, -5.0)];
        let axes = [Axis::linear("", Unit::Count), Axis::log("", Unit::Bytes)];
        for (low, high) in ranges {
            for axis in &axes {
                // Marks and zero may lie anywhere.
                for mark in [0.0, 1e-3, high * 1.1, high * 2.0, 1e9] {
                    let ruler = Ruler::new(axis, [low, high].into_iter(), [mark].into_iter());
                    let places = [low, high].map(|value| ruler.place(value));
                    let [Some(first), Some(last)] = places else { continue };
                    let seen = last - first;
                    assert!(seen > 0.7, "{low} {high} {mark}: {seen} {ruler:?}");
                    assert!(first >= 0.0 && last <= 1.0, "{low} {high} {mark}: {ruler:?}");
                }
            }
        }
    }

    #[test]
    fn places_are_fractions() {
        let linear = ruler(&Axis::linear("", Unit::Count), &[0.0, 10.0]);
        assert_eq!(linear.place(5.0), Some(0.5));
        assert_eq!(linear.place(f64::NAN), None);
        let log = ruler(&Axis::log("", Unit::Count), &[1.0, 100.0]);
        assert!((log.place(10.0).expect("it is positive") - 0.5).abs() < 1e-12);
        assert_eq!(log.place(0.0), None);
        assert_eq!(log.place(-1.0), None);
    }

    #[test]
    fn labels_leave_each_other_room() {
        let ruler = ruler(&Axis::linear("", Unit::Count), &[0.0, 6.0]);
        let shown = |each: f64| {
            let labels = ruler.ticks.iter().map(|(tick, _)| ruler.label(*tick, each));
            labels.filter(|label| !label.is_empty()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(0.1), "0 1 2 3 4 5 6");
        assert_eq!(shown(0.2), "0 2 4 6");
        assert_eq!(shown(9.0), "0");
    }

    #[test]
    fn whatever_the_values_the_ticks_are_few_and_in_order() {
        let values = [
            0.0,
            -0.0,
            1.0,
            1.0 + 1e-15,
            -3.0,
            7e-9,
            5e-324,
            1e-300,
            1e300,
            -1e300,
            1e308,
            4096.0,
            f64::MAX,
            f64::MIN,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            1e15,
            1e15 + 1.0,
        ];
        let units = [Unit::Count, Unit::Micros, Unit::Seconds, Unit::Bytes, Unit::Ratio];
        for (unit, scale) in
            units.into_iter().flat_map(|unit| [(unit, Scale::Linear), (unit, Scale::Log)])
        {
            for low in values {
                for high in values {
                    for bounds in [None, Some((low, high))] {
                        let axis = Axis { label: String::new(), scale, unit, bounds };
                        let ruler = Ruler::new(&axis, [low, high].into_iter(), [high].into_iter());
                        let case = format!("{axis:?} {low} {high}: {ruler:?}");
                        assert!(ruler.low < ruler.high, "{case}");
                        assert!(ruler.ticks.len() <= 14, "{case}");
                        assert!(ruler.ticks.is_sorted_by(|a, b| a.0 < b.0), "{case}");
                        assert!(bounds.is_some() || ruler.ticks.len() >= 2, "{case}");
                        for place in [low, high].into_iter().filter_map(|value| ruler.place(value))
                        {
                            let inside = (-1e-6..=1.0 + 1e-6).contains(&place);
                            assert!(inside || bounds.is_some(), "{place} {case}");
                        }
                    }
                }
            }
        }
    }
}
