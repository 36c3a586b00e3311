//! Values of `analyze`'s flags as people write them.
//!
//! They are value parsers of flags: what they say goes behind clap's complaint.

use crate::cli::parse::{duration, size};
use cinnabar_study::analysis::Every;
use std::time::Duration;

/// No interval is shorter, and none has fewer references.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
/// A latency above is a mistake.
const PRICE_MAX: Duration = Duration::from_hours(1);
/// A weight or factor above is a mistake.
const FACTOR_MAX: f64 = 1e6;

/// Where to cut: `10min`, or `100000refs`.
pub(super) fn every(text: &str) -> Result<Every, String> {
    if let Some(number) = text.trim().strip_suffix("refs") {
        return match number.trim().parse() {
            Ok(references) if references > 0 => Ok(Every::References(references)),
            _ => Err("write a number of references above 0, such as 100000refs".to_owned()),
        };
    }
    let length = duration(text).map_err(|_| {
        format!(
            "{text:?} is no interval; write a time such as 10min, or references such as 100000refs"
        )
    })?;
    if length < INTERVAL_MIN {
        return Err("it is less than 1ms".to_owned());
    }
    u64::try_from(length.as_micros()).map(Every::Time).map_err(|_| "it is too long".to_owned())
}

/// A part, from 0 to 1.
pub(super) fn part(text: &str) -> Result<f64, String> {
    number(text).filter(|part| *part <= 1.0).ok_or_else(|| "write a part from 0 to 1".to_owned())
}

/// A rate, above 0 to 1.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let good = |rate: &f64| *rate > 0.0 && *rate <= 1.0;
    number(text).filter(good).ok_or_else(|| "write a part above 0, up to 1".to_owned())
}

pub(super) fn factor(text: &str) -> Result<f64, String> {
    let good = |factor: &f64| *factor <= FACTOR_MAX;
    number(text).filter(good).ok_or_else(|| "write a number from 0 to 1000000".to_owned())
}

/// A latency, or a price: a time in microseconds.
pub(super) fn price(text: &str) -> Result<f64, String> {
    match duration(text)? {
        long if long > PRICE_MAX => Err("that is more than an hour".to_owned()),
        time => Ok(time.as_secs_f64() * 1e6),
    }
}

/// Bytes in a day: `500GiB/day`.
pub(super) fn amount_a_day(text: &str) -> Result<u64, String> {
    let amount = text.trim().strip_suffix("/day");
    size(amount.ok_or("write bytes in a day, such as 500GiB/day")?)
}

/// `VOLUME=VALUE`; the name may have `=` in it.
pub(super) fn at_volume<T: 'static>(
    value: fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<(String, T), String> + Clone {
    move |text| {
        let (name, text) = text.rsplit_once('=').ok_or("write VOLUME=VALUE")?;
        Ok((name.to_owned(), value(text)?))
    }
}

fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    // `f64` would take "inf", "nan" and "+5", too.
    let plain = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    text.parse().ok().filter(|number: &f64| plain && number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_times_or_references() {
        assert_eq!(every("10min"), Ok(Every::Time(600_000_000)));
        assert_eq!(every("5 refs"), Ok(Every::References(5)));
        for text in ["", "10", "0refs", "-1refs", "1e9refs", "0s", "1us", "99999999999999999999d"] {
            every(text).expect_err(text);
        }
    }

    #[test]
    fn numbers_are_bounded() {
        assert_eq!((part("1"), rate(".01"), factor("2.5")), (Ok(1.0), Ok(0.01), Ok(2.5)));
        for text in ["", "nan", "inf", "-0.1", "+1", "1.1", "x"] {
            part(text).expect_err(text);
            rate(text).expect_err(text);
        }
        rate("0").expect_err("nothing to look at");
        factor("1e7").expect_err("too much");
        assert_eq!(price("88us"), Ok(88.0));
        price("2h").expect_err("too long");
        assert_eq!(amount_a_day("1GiB/day"), Ok(1 << 30));
        amount_a_day("1GiB").expect_err("in what time?");
        let min = at_volume(size);
        assert_eq!(min("a=b=1KiB"), Ok(("a=b".to_owned(), 1024)));
        min("1KiB").expect_err("of which volume?");
    }
}
