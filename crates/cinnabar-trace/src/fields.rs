//! Fields of a line of text: split, and turned into numbers and times.

use crate::error::Problem;
use crate::number::{digits, number};

/// Bytes in a sector, whatever the device's own are: what traces of Linux and SCSI count in.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// Digits of a fraction that count; the rest are finer than any unit used here.
const FRACTION_DIGITS_MAX: u32 = 6;

/// The fields of one line, taken from the left.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    rest: Option<&'a [u8]>,
    /// `None`: any run of blanks.
    separator: Option<u8>,
}

impl<'a> Fields<'a> {
    /// Fields between commas, blanks around them taken off.
    pub(crate) fn commas(line: &'a [u8]) -> Self {
        Self { rest: Some(line), separator: Some(b',') }
    }

    /// Fields between blanks.
    pub(crate) fn blanks(line: &'a [u8]) -> Self {
        Self { rest: Some(line), separator: None }
    }

    /// The next field, whatever it is.
    pub(crate) fn text(&mut self, name: &'static str) -> Result<&'a [u8], Problem> {
        self.next().ok_or(Problem::Missing(name))
    }

    /// The next field, a number.
    pub(crate) fn number(&mut self, name: &'static str) -> Result<u64, Problem> {
        number(self.text(name)?, name)
    }

    /// The next field, a number of sectors, in bytes.
    pub(crate) fn sectors(&mut self, name: &'static str) -> Result<u64, Problem> {
        self.number(name)?.checked_mul(SECTOR_BYTES).ok_or(Problem::End)
    }

    /// The next field, a decimal number of units of so many microseconds (a power of ten), in
    /// microseconds, rounded down.
    pub(crate) fn time(&mut self, name: &'static str, unit_us: u64) -> Result<u64, Problem> {
        decimal(self.text(name)?, unit_us).ok_or(Problem::Decimal(name))
    }

    /// Nothing may follow the `most` fields of the format.
    pub(crate) fn end(&mut self, most: usize) -> Result<(), Problem> {
        match self.next() {
            None => Ok(()),
            Some(_) => Err(Problem::Surplus(most)),
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let (field, rest) = if let Some(separator) = self.separator {
            cut(rest, |byte| byte == separator)
        } else {
            let rest = rest.trim_ascii_start();
            if rest.is_empty() {
                self.rest = None;
                return None;
            }
            cut(rest, |byte| byte.is_ascii_whitespace())
        };
        self.rest = rest;
        Some(field.trim_ascii())
    }
}

/// What is before the first such byte, and what is behind it if there is one.
fn cut(text: &[u8], at: impl Fn(u8) -> bool) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&byte| at(byte)) {
        Some(place) => (&text[..place], Some(&text[place + 1..])),
        None => (text, None),
    }
}

/// `12.5` units of so many microseconds, in microseconds.
fn decimal(text: &[u8], unit_us: u64) -> Option<u64> {
    let (whole, fraction) = cut(text, |byte| byte == b'.');
    let whole_us = digits(whole)?.checked_mul(unit_us)?;
    let fraction = fraction.unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let kept = &fraction[..fraction.len().min(FRACTION_DIGITS_MAX as usize)];
    let value = digits(kept).unwrap_or(0) * unit_us;
    whole_us.checked_add(value / 10_u64.pow(kept.len() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_what_is_between() {
        let of = |fields: Fields<'_>| -> Vec<String> {
            fields.map(|field| String::from_utf8_lossy(field).into_owned()).collect()
        };
        assert_eq!(of(Fields::commas(b"a, b ,,c")), ["a", "b", "", "c"]);
        assert_eq!(of(Fields::commas(b"")), [""]);
        assert_eq!(of(Fields::blanks(b"  a \t b  ")), ["a", "b"]);
        assert!(of(Fields::blanks(b" \t ")).is_empty());
    }

    #[test]
    fn times_are_rounded_down() {
        let second = |text: &str| decimal(text.as_bytes(), 1_000_000);
        assert_eq!(second("1456095145.133076999"), Some(1_456_095_145_133_076));
        assert_eq!(second("2.5"), Some(2_500_000));
        assert_eq!(second("7"), Some(7_000_000));
        assert_eq!(second("7."), Some(7_000_000));
        assert_eq!(decimal(b"1.0009", 1000), Some(1000));
        for bad in ["", ".5", "-1", "1.x", "1e3", "1.2.3", "99999999999999999999"] {
            assert_eq!(second(bad), None, "{bad}");
        }
    }
}
