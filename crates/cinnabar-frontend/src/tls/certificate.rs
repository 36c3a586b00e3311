//! What a certificate says of its owner: names, and from when to when it is valid.
//!
//! Only of certificates whose signatures were checked, or that are our own; still nothing here panics or
//! loops on other bytes. The encoding is DER (X.690), the fields are those of RFC 5280, section 4.1.

/// Most names that are read of one certificate.
const NAMES_MAX: usize = 64;
/// Longest name that is read, as DNS has it.
const NAME_BYTES_MAX: usize = 253;

const BOOLEAN: u8 = 0x01;
const OCTET_STRING: u8 = 0x04;
const OBJECT: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
/// `[0]`: the version of a certificate.
const VERSION: u8 = 0xa0;
/// `[3]`: its extensions.
const EXTENSIONS: u8 = 0xa3;
/// `[2]` in a list of names: one of DNS.
const DNS_NAME: u8 = 0x82;
/// 2.5.29.17
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// Its DNS names, without repetitions.
    pub names: Vec<String>,
    /// From when on it is valid, in seconds since 1970.
    pub not_before: i64,
    /// Until when it is.
    pub not_after: i64,
}

/// Takes values off the front of DER.
#[derive(Clone, Copy)]
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next value: its tag and content.
    fn any(&mut self) -> Option<(u8, Der<'a>)> {
        let (&tag, rest) = self.0.split_first()?;
        // Tags of several bytes do not occur in certificates.
        if tag & 0x1f == 0x1f {
            return None;
        }
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            if bytes.is_empty() || bytes.len() > 4 {
                return None;
            }
            (bytes.iter().fold(0, |len, byte| len << 8 | usize::from(*byte)), rest)
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, Der(content)))
    }

    /// The next value, which must have this tag.
    fn take(&mut self, tag: u8) -> Option<Der<'a>> {
        let mut ahead = *self;
        let (found, content) = ahead.any()?;
        if found != tag {
            return None;
        }
        *self = ahead;
        Some(content)
    }
}

impl Certificate {
    /// Reads a certificate; `None` if it is none.
    pub fn read(der: &[u8]) -> Option<Self> {
        let mut signed = Der(der).take(SEQUENCE)?.take(SEQUENCE)?;
        let _version = signed.take(VERSION);
        // Serial number, algorithm, issuer.
        for _ in 0..3 {
            signed.any()?;
        }
        let mut validity = signed.take(SEQUENCE)?;
        let not_before = time(validity.any()?)?;
        let not_after = time(validity.any()?)?;
        // An authority that may only sign some names is not held to that in the common name of its subject.
        let _subject = signed.take(SEQUENCE)?;
        let mut names = Vec::new();
        while let Some((tag, content)) = signed.any() {
            if tag == EXTENSIONS {
                alternative_names(content, &mut names);
            }
        }
        Some(Self { names, not_before, not_after })
    }

    /// Why it can't be used at this time, in seconds since 1970.
    ///
    /// # Errors
    /// One line.
    pub fn check_time(&self, now: i64) -> Result<(), String> {
        if now < self.not_before {
            let hours = (self.not_before - now) / 3600 + 1;
            return Err(format!("the certificate is not valid yet, only in {hours} h"));
        }
        if now > self.not_after {
            let hours = (now - self.not_after) / 3600;
            return Err(format!("the certificate expired {hours} h ago"));
        }
        Ok(())
    }
}

fn alternative_names(mut content: Der<'_>, names: &mut Vec<String>) {
    let Some(mut extensions) = content.take(SEQUENCE) else { return };
    while let Some(mut extension) = extensions.take(SEQUENCE) {
        if extension.take(OBJECT).is_none_or(|object| object.0 != SUBJECT_ALT_NAME) {
            continue;
        }
        let _critical = extension.take(BOOLEAN);
        let list = extension.take(OCTET_STRING).and_then(|mut value| value.take(SEQUENCE));
        let Some(mut list) = list else { continue };
        while let Some((tag, name)) = list.any() {
            if tag == DNS_NAME {
                add(name.0, names);
            }
        }
    }
}

/// Adds a name if it is one that can be written in a list, and is not there yet.
fn add(name: &[u8], names: &mut Vec<String>) {
    let Ok(name) = std::str::from_utf8(name) else { return };
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
    if fits && names.len() < NAMES_MAX && !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}

/// A time, in seconds since 1970: `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn time((tag, text): (u8, Der<'_>)) -> Option<i64> {
    let digits = text.0.strip_suffix(b"Z")?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year = number(year)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (number(year)?, rest)
        }
        _ => return None,
    };
    if rest.len() != 10 {
        return None;
    }
    let mut fields = rest.chunks(2).map(number);
    let mut field =
        |min: i64, max: i64| fields.next().flatten().filter(|value| (min..=max).contains(value));
    let (month, day) = (field(1, 12)?, field(1, 31)?);
    let (hour, minute, second) = (field(0, 23)?, field(0, 59)?, field(0, 60)?);
    Some(((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

fn number(digits: &[u8]) -> Option<i64> {
    let value = |sum: Option<i64>, digit: &u8| {
        Some(sum? * 10 + i64::from(char::from(*digit).to_digit(10)?))
    };
    digits.iter().fold(Some(0), value)
}

/// Days from 1970 to a day of the Gregorian calendar; years begin in March here, so that the leap day is the
/// last of one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    fn sample() -> Vec<u8> {
        signed(&["host-a.example", "10.0.0.7"])
    }

    fn signed(names: &[&str]) -> Vec<u8> {
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::OrganizationName, "not a name");
        params.distinguished_name.push(DnType::CommonName, "vm host");
        params.not_before = date_time_ymd(1999, 12, 31);
        params.not_after = date_time_ymd(2052, 2, 29);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().to_vec()
    }

    #[test]
    fn names_and_times_are_read() {
        let certificate = Certificate::read(&sample()).expect("a certificate");
        assert_eq!(certificate.names, ["host-a.example"], "an address is no name");
        assert_eq!(certificate.not_before, 946_598_400);
        assert_eq!(certificate.not_after, 2_592_777_600);
        certificate.check_time(1_800_000_000).expect("it is valid");
        assert!(certificate.check_time(946_598_399).expect_err("early").contains("not valid yet"));
        assert!(certificate.check_time(2_592_777_601).expect_err("late").contains("expired"));
    }

    /// A common name is not held to what its authority may sign.
    #[test]
    fn a_common_name_is_no_name() {
        for names in [&[][..], &["10.0.0.7"]] {
            let certificate = Certificate::read(&signed(names)).expect("a certificate");
            assert_eq!(certificate.names, [""; 0]);
        }
    }

    #[test]
    fn other_bytes_are_no_certificate() {
        let whole = sample();
        for len in 0..whole.len() {
            assert_eq!(Certificate::read(&whole[..len]), None, "{len} bytes of it");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut wrong = whole.clone();
                wrong[at] ^= 1 << bit;
                // Whatever it is now, it is read without a panic.
                let _read = Certificate::read(&wrong);
            }
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(days(1970, 1, 1), 0);
        assert_eq!(days(2000, 2, 29), 11_016);
        assert_eq!(days(2000, 3, 1), 11_017);
        assert_eq!(days(2026, 1, 1), 20_454);
        assert_eq!(time((UTC_TIME, Der(b"491231235959Z"))), Some(2_524_607_999));
        assert_eq!(time((UTC_TIME, Der(b"500101000000Z"))), Some(-631_152_000));
        for wrong in [&b"491331235959Z"[..], b"4912312359Z", b"491231235959", b"4912312359-1Z"] {
            assert_eq!(time((UTC_TIME, Der(wrong))), None, "{wrong:?}");
        }
    }
}
