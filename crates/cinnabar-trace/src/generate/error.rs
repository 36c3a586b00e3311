//! What can't be generated, and why: the errors of most generators.

/// Why settings give no workload.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("{what} of {value}: from {least} to {most} can be asked for")]
    Range { what: &'static str, value: u64, least: u64, most: u64 },
    #[error("{what} of {value}: from {least} to {most} can be asked for")]
    Number { what: &'static str, value: f64, least: f64, most: f64 },
    #[error("{parts} need {needed} blocks of 4 KiB, and {whole} has {there}")]
    Room { parts: &'static str, needed: u64, whole: &'static str, there: u64 },
    #[error("{0} add up to more than 1")]
    Shares(&'static str),
}

impl Error {
    /// A line that helps.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Range { .. } | Self::Number { .. } => "--help shows the defaults",
            Self::Room { .. } => "ask for a larger whole, or for smaller or fewer parts",
            Self::Shares(_) => "a share is a number from 0 to 1; what they leave goes to the rest",
        }
    }
}

/// A whole number of something, within bounds.
pub(super) const fn check_range(
    what: &'static str,
    value: u64,
    least: u64,
    most: u64,
) -> Result<(), Error> {
    if value < least || value > most {
        return Err(Error::Range { what, value, least, most });
    }
    Ok(())
}

/// A number within bounds; what is not a number is not.
pub(super) fn check_number(
    what: &'static str,
    value: f64,
    least: f64,
    most: f64,
) -> Result<(), Error> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::Number { what, value, least, most })
}

/// A share of a whole, 0 to 1.
pub(super) fn check_share(what: &'static str, value: f64) -> Result<(), Error> {
    check_number(what, value, 0.0, 1.0)
}
