//! What is wrong with a file of settings, where it stands, and what would help.

use std::fmt;
use std::path::PathBuf;

/// A problem in a file of settings: a configuration, a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub file: PathBuf,
    /// Line, from 1; `None` if the file as a whole is meant.
    pub line: Option<usize>,
    /// One line.
    pub message: String,
    /// What would help, one line.
    pub hint: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.message)
    }
}

impl std::error::Error for ConfigError {}

/// An error and its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let all = std::iter::successors(Some(error), |error| error.source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// "did you mean", or the list of what there is.
pub fn suggest(wrong: &str, known: &[&str]) -> String {
    let distance = |candidate: &&&str| strsim::damerau_levenshtein(wrong, candidate);
    match known.iter().min_by_key(distance) {
        Some(best) if distance(&best) <= 2.max(wrong.len() / 3) => {
            format!("did you mean {best:?}?")
        }
        _ => format!("known here: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_are_near_or_complete() {
        assert_eq!(suggest("sise", &["device", "size", "io"]), "did you mean \"size\"?");
        assert_eq!(suggest("share-min", &["share_min", "name"]), "did you mean \"share_min\"?");
        assert_eq!(suggest("colour", &["device", "size"]), "known here: device, size");
        assert_eq!(suggest("", &["device"]), "known here: device");
    }
}
