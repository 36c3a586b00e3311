//! Numbers for people: 12.3k, 450 us, 1.5 ms, 64 MiB, 38 %.

/// What the values of an axis are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// A number of things, or things a second: 250k, 1.2M.
    #[default]
    Count,
    /// Microseconds; shown as us, ms or s.
    Micros,
    /// Seconds; shown as ms, s, min, h or days.
    Seconds,
    /// Bytes; shown as KiB, MiB, GiB or TiB.
    Bytes,
    /// A part of 1; shown as per cent.
    Ratio,
}

/// A unit for showing: from which size on, how much one of it is, its name behind a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    from: f64,
    /// Divide by this.
    pub factor: f64,
    /// With the blank before it, if it has one.
    pub suffix: &'static str,
}

const fn step(from: f64, factor: f64, suffix: &'static str) -> Step {
    Step { from, factor, suffix }
}

/// A part below is as good as none.
const PART_MIN: f64 = 1e-4;

const KIB: f64 = 1024.0;

const COUNTS: &[Step] = &[
    step(0.0, 1.0, ""),
    step(999.5, 1e3, "k"),
    step(999.5e3, 1e6, "M"),
    step(999.5e6, 1e9, "G"),
    step(999.5e9, 1e12, "T"),
];
const MICROS: &[Step] = &[step(0.0, 1.0, " us"), step(999.5, 1e3, " ms"), step(999.5e3, 1e6, " s")];
const SECONDS: &[Step] = &[
    step(0.0, 1e-3, " ms"),
    step(0.9995, 1.0, " s"),
    step(180.0, 60.0, " min"),
    step(10_800.0, 3600.0, " h"),
    step(259_200.0, 86_400.0, " d"),
];
const BYTES: &[Step] = &[
    step(0.0, 1.0, " B"),
    // 1020 KiB are 0.996 MiB: three digits.
    step(999.5, KIB, " KiB"),
    step(999.5 * KIB, KIB * KIB, " MiB"),
    step(999.5 * KIB * KIB, KIB * KIB * KIB, " GiB"),
    step(999.5 * KIB * KIB * KIB, KIB * KIB * KIB * KIB, " TiB"),
];
const RATIOS: &[Step] = &[step(0.0, 0.01, " %")];

impl Unit {
    /// A value with three significant digits and its unit; a hyphen for what is no number.
    ///
    /// ```
    /// use cinnabar_text::Unit;
    /// assert_eq!(Unit::Micros.show(1534.0), "1.53 ms");
    /// assert_eq!(Unit::Count.show(250_000.0), "250k");
    /// ```
    pub fn show(self, value: f64) -> String {
        if !value.is_finite() {
            return "-".to_owned();
        }
        if self == Self::Ratio && value != 0.0 && value.abs() < PART_MIN {
            return if value > 0.0 { "<0.01 %" } else { "-0 %" }.to_owned();
        }
        let step = self.step(value.abs(), f64::INFINITY);
        let scaled = value / step.factor;
        let digits = if scaled == 0.0 { 0 } else { exponent(scaled.abs()) };
        // 12345 of the largest unit are 12300: the other digits don't count.
        let scaled = if digits > 2 && digits < 12 {
            let unit = 10f64.powi(digits - 2);
            (scaled / unit).round() * unit
        } else {
            scaled
        };
        let text = decimal(scaled, usize::try_from(2 - digits).unwrap_or(0));
        let text = match text.split_once('.') {
            Some((_, tail)) if !tail.contains('e') => {
                text.trim_end_matches('0').trim_end_matches('.')
            }
            _ => &text,
        };
        format!("{text}{}", step.suffix)
    }

    /// A change by so much: with its sign, if there is one.
    ///
    /// ```
    /// use cinnabar_text::Unit;
    /// assert_eq!(Unit::Ratio.change(2.684), "+268 %");
    /// ```
    pub fn change(self, value: f64) -> String {
        let sign = if value > 0.0 { "+" } else { "" };
        format!("{sign}{}", self.show(value))
    }

    /// In what values up to `largest` that differ by so little are best shown: 1000003 can be read,
    /// 1.000003M can't.
    pub fn step(self, largest: f64, difference: f64) -> Step {
        let steps = self.steps();
        let fits = |step: &&Step| largest >= step.from && difference >= step.factor / 1e3;
        *steps.iter().rev().find(fits).unwrap_or(&steps[0])
    }

    fn steps(self) -> &'static [Step] {
        match self {
            Self::Count => COUNTS,
            Self::Micros => MICROS,
            Self::Seconds => SECONDS,
            Self::Bytes => BYTES,
            Self::Ratio => RATIOS,
        }
    }
}

/// The power of ten of a positive number: 2 for 750.
pub fn exponent(value: f64) -> i32 {
    value.log10().floor() as i32
}

/// A number with so many decimals, as long as that stays readable.
pub fn decimal(value: f64, decimals: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if value.abs() >= 1e12 || decimals > 7 {
        // 1.00e9 says no more than 1e9.
        return format!("{value:.2e}").replace(".00e", "e");
    }
    format!("{value:.decimals$}")
}

/// `12.3 %`: a part of 1 with one decimal, as tables have it whose rows are compared; a hyphen of what is no number.
pub fn percent(part: f64) -> String {
    if part.is_finite() { format!("{:.1} %", part * 100.0) } else { "-".to_owned() }
}

/// So many of a whole as [`percent`]; a hyphen of nothing.
pub fn percent_of(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { percent(part as f64 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let count = |value| Unit::Count.show(value);
        assert_eq!(count(0.0), "0");
        assert_eq!(count(-0.0), "0");
        assert_eq!(count(98.63), "98.6");
        assert_eq!(count(1514.92), "1.51k");
        assert_eq!(count(999.7), "1k");
        assert_eq!(count(123_456e12), "123000T");
        assert_eq!(Unit::Ratio.show(3.64e-6), "<0.01 %");
        assert_eq!(Unit::Bytes.show(1020.0 * 1024.0), "0.996 MiB");
        assert_eq!(count(-12_345.0), "-12.3k");
        assert_eq!(count(500_000.0), "500k");
        assert_eq!(count(1e300), "1e288T");
        assert_eq!(count(1e-12), "1e-12");
        assert_eq!(count(f64::NAN), "-");
        assert_eq!(count(f64::NEG_INFINITY), "-");
    }

    #[test]
    fn units_grow_with_the_value() {
        assert_eq!(Unit::Micros.show(289.5), "290 us");
        assert_eq!(Unit::Micros.show(30_000.0), "30 ms");
        assert_eq!(Unit::Micros.show(2_500_000.0), "2.5 s");
        assert_eq!(Unit::Seconds.show(0.25), "250 ms");
        assert_eq!(Unit::Seconds.show(90.0), "90 s");
        assert_eq!(Unit::Seconds.show(57_600.0), "16 h");
        assert_eq!(Unit::Bytes.show(512.0), "512 B");
        assert_eq!(Unit::Bytes.show(1_048_576.0), "1 MiB");
        assert_eq!(Unit::Ratio.show(0.4457), "44.6 %");
        assert_eq!(Unit::Ratio.show(1.0), "100 %");
    }
}
