//! Values as plans and `--set` write them: sizes and times with units, shares, policies.

use crate::timed::WritePolicy;
use crate::timed::config::Service;
use cinnabar_engine::units::BLOCK_BYTES;
use cinnabar_text::suggest;
use cinnabar_text::toml_reader::Scalar;
use cinnabar_text::{parse_duration, parse_size, write_size};

/// A value, before it is known what it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Literal(pub(super) Scalar);

/// What is wrong with a value: one line, and one that helps.
pub type Wrong = (String, String);

const SIZE_HINT: &str = "write a size with its unit: \"64GiB\", \"256MiB\", or \"0\" for none";
const TIME_HINT: &str = "write a time with its unit: \"88us\", \"400ns\", \"7.9ms\"";

impl Literal {
    /// A value of the command line; quotes are not needed there.
    pub fn of_flag(text: &str) -> Self {
        let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        Self(match (bare, text.parse::<bool>(), text.parse::<i64>(), text.parse::<f64>()) {
            (Some(bare), ..) => Scalar::Text(bare.to_owned()),
            (_, Ok(flag), ..) => Scalar::Flag(flag),
            (_, _, Ok(number), _) => Scalar::Integer(number),
            (_, _, _, Ok(number)) if text.starts_with(|c: char| c.is_ascii_digit()) => {
                Scalar::Float(number)
            }
            _ => Scalar::Text(text.to_owned()),
        })
    }

    pub(super) fn blocks(&self) -> Result<u64, Wrong> {
        match &self.0 {
            Scalar::Integer(0) => Ok(0),
            Scalar::Text(text) if text.trim() == "0" => Ok(0),
            Scalar::Text(text) if is_bare(text) => Err(self.without_unit(SIZE_HINT)),
            Scalar::Text(text) => {
                let bytes = parse_size(text).map_err(|(message, _)| (message, SIZE_HINT.into()))?;
                match bytes / BLOCK_BYTES {
                    0 if bytes > 0 => Err((
                        format!("{text} is less than a block"),
                        "a block has 4KiB; \"0\" is none".to_owned(),
                    )),
                    blocks => Ok(blocks),
                }
            }
            Scalar::Integer(_) | Scalar::Float(_) => Err(self.without_unit(SIZE_HINT)),
            Scalar::Flag(_) => Err(self.wrong("a size", SIZE_HINT)),
        }
    }

    pub(super) fn nanoseconds(&self) -> Result<u64, Wrong> {
        match &self.0 {
            Scalar::Integer(0) => Ok(0),
            Scalar::Text(text) if text.trim() == "0" => Ok(0),
            Scalar::Text(text) if is_bare(text) => Err(self.without_unit(TIME_HINT)),
            Scalar::Text(text) => {
                let time = parse_duration(text).map_err(|_| self.wrong("a time", TIME_HINT))?;
                Ok(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
            }
            Scalar::Integer(_) | Scalar::Float(_) => Err(self.without_unit(TIME_HINT)),
            Scalar::Flag(_) => Err(self.wrong("a time", TIME_HINT)),
        }
    }

    pub(super) fn share(&self) -> Result<f64, Wrong> {
        let hint = "write a part of 1, or a percentage in quotes: 0.2, \"20%\"";
        match &self.0 {
            Scalar::Integer(_) | Scalar::Float(_) => self.float(),
            Scalar::Text(text) => {
                let percent = text.trim().strip_suffix('%').map(|number| number.trim().parse());
                match percent {
                    Some(Ok(percent)) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
                    _ => Err(self.wrong("a share", hint)),
                }
            }
            Scalar::Flag(_) => Err(self.wrong("a share", hint)),
        }
    }

    pub(super) fn float(&self) -> Result<f64, Wrong> {
        match self.0 {
            Scalar::Integer(number) => Ok(number as f64),
            Scalar::Float(number) if number.is_finite() => Ok(number),
            _ => Err(self.wrong("a number", "write a number without quotes: 2.5")),
        }
    }

    pub(super) fn whole(&self) -> Result<u64, Wrong> {
        match self.0 {
            Scalar::Integer(number) => u64::try_from(number).ok(),
            _ => None,
        }
        .ok_or_else(|| self.wrong("a whole number", "write a whole number without quotes: 8"))
    }

    pub(super) fn flag(&self) -> Result<bool, Wrong> {
        match self.0 {
            Scalar::Flag(flag) => Ok(flag),
            _ => Err(self.wrong("true or false", "write true or false, without quotes")),
        }
    }

    pub(super) fn policy(&self) -> Result<WritePolicy, Wrong> {
        let hint = "write \"s\", \"a\", \"n\", or \"p\" with a number of seconds: \"p5\"";
        match &self.0 {
            Scalar::Text(text) => text.parse().map_err(|_| self.wrong("a write policy", hint)),
            _ => Err(self.wrong("a write policy", hint)),
        }
    }

    pub(super) fn service(&self) -> Result<Service, Wrong> {
        let hint = "write \"delay\", or how many requests are served at a time: 1";
        match &self.0 {
            Scalar::Text(text) if text == "delay" => Ok(Service::Delay),
            Scalar::Integer(servers) => {
                let servers = u32::try_from(*servers).map_err(|_| self.wrong("a service", hint))?;
                Ok(Service::Servers(servers))
            }
            _ => Err(self.wrong("a service", hint)),
        }
    }

    pub(super) fn one_of(&self, known: &'static [&'static str]) -> Result<&'static str, Wrong> {
        let Scalar::Text(text) = &self.0 else {
            let list = known.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
            return Err(self.wrong("a name", &format!("write one of {list}")));
        };
        let found = known.iter().find(|name| *name == text);
        found.copied().ok_or_else(|| (format!("unknown value {text:?}"), suggest(text, known)))
    }

    pub(super) fn is_text(&self, wanted: &str) -> bool {
        matches!(&self.0, Scalar::Text(text) if text == wanted)
    }

    /// The text, for keys that have no other values.
    pub(super) fn text(&self) -> Result<&str, Wrong> {
        match &self.0 {
            Scalar::Text(text) => Ok(text),
            _ => Err(self.wrong("a string", "write it in quotes")),
        }
    }

    fn without_unit(&self, hint: &str) -> Wrong {
        (format!("{self} has no unit"), hint.to_owned())
    }

    fn wrong(&self, wanted: &str, hint: &str) -> Wrong {
        (format!("{self} is not {wanted}"), hint.to_owned())
    }
}

impl std::fmt::Display for Literal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Scalar::Text(text) => write!(f, "{text:?}"),
            Scalar::Integer(number) => write!(f, "{number}"),
            Scalar::Float(number) => write!(f, "{number}"),
            Scalar::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

fn is_bare(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// A number of blocks as a plan would say it: `64GiB`.
pub(super) fn show_blocks(blocks: u64) -> String {
    write_size(blocks.saturating_mul(BLOCK_BYTES))
}

/// A time as a plan would say it: `32.768us`.
pub(super) fn show_ns(ns: u64) -> String {
    match (ns / 1000, ns % 1000) {
        (0, 0) => "0".to_owned(),
        (0, ns) => format!("{ns}ns"),
        (us, 0) => format!("{us}us"),
        (us, ns) => format!("{us}.{ns:03}").trim_end_matches('0').to_owned() + "us",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Literal {
        Literal(Scalar::Text(text.to_owned()))
    }

    #[test]
    fn sizes_and_times_need_units() {
        assert_eq!(text("64GiB").blocks(), Ok(64 << 18));
        assert_eq!(text("10GB").blocks(), Ok(2_441_406), "rounded down to whole blocks");
        assert_eq!(text("0").blocks(), Ok(0));
        assert_eq!(text("7952us").nanoseconds(), Ok(7_952_000));
        assert_eq!(text("32.768us").nanoseconds(), Ok(32_768));
        assert_eq!(text("400ns").nanoseconds(), Ok(400));
        for literal in
            [text("64"), text("1.5"), Literal(Scalar::Integer(64)), Literal(Scalar::Float(0.5))]
        {
            for wrong in [literal.blocks(), literal.nanoseconds()] {
                let (message, hint) = wrong.expect_err("there is no unit");
                assert!(message.contains("no unit") && hint.contains("unit"), "{message}: {hint}");
            }
        }
        for wrong in ["64G", "88", "", "ten", "1KiB", "-1us"] {
            assert!(text(wrong).blocks().is_err(), "{wrong}");
        }
        for wrong in ["88", "", "ten", "64GiB", "-1us", "1e3us"] {
            assert!(text(wrong).nanoseconds().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read() {
        for ns in [0, 1, 400, 8_200, 32_768, 88_000, 7_952_000, 900_000_000_000] {
            assert_eq!(text(&show_ns(ns)).nanoseconds(), Ok(ns), "{}", show_ns(ns));
        }
        for blocks in [0, 1, 3, 1 << 18, (64 << 18) + 1, 1 << 28] {
            assert_eq!(text(&show_blocks(blocks)).blocks(), Ok(blocks), "{}", show_blocks(blocks));
        }
    }

    #[test]
    fn flags_of_the_command_line_need_no_quotes() {
        assert_eq!(Literal::of_flag("64GiB"), text("64GiB"));
        assert_eq!(Literal::of_flag("\"p5\""), text("p5"));
        assert_eq!(Literal::of_flag("true"), Literal(Scalar::Flag(true)));
        assert_eq!(Literal::of_flag("8"), Literal(Scalar::Integer(8)));
        assert_eq!(Literal::of_flag("0.3"), Literal(Scalar::Float(0.3)));
        assert_eq!(Literal::of_flag("inf"), text("inf"), "a name is no number");
        assert_eq!(Literal::of_flag("30%").share(), Ok(0.3));
    }
}
