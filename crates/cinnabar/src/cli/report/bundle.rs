//! The files of a report before they are cleaned and packed.

use serde::Serialize;
use serde_json::Value;

/// A file of the bundle.
#[derive(Debug)]
pub(super) enum Content {
    /// Words and numbers; names of keys are never replaced.
    Json(Value),
    Text(String),
}

/// What was found, and what was not.
#[derive(Debug, Default)]
pub(super) struct Bundle {
    pub(super) files: Vec<(String, Content)>,
    pub(super) missing: Vec<Missing>,
}

/// What is not in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Missing {
    pub(super) name: String,
    pub(super) reason: String,
}

impl Bundle {
    /// Adds a file, or why there is none.
    pub(super) fn add(&mut self, name: &str, found: Result<Content, String>) {
        match found {
            Ok(content) => self.files.push((name.to_owned(), content)),
            Err(reason) => self.missing.push(Missing { name: name.to_owned(), reason }),
        }
    }
}
