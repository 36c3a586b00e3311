//! Volumes by the names that a trace gives them, numbered in order of first appearance.

use crate::error::Problem;
use crate::names::{NAME_BYTES_MAX, VOLUMES_MAX, shown};
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(crate) struct Volumes {
    names: Vec<String>,
    numbers: HashMap<Box<[u8]>, u32>,
    /// What was asked for last: requests of a volume come in runs.
    last: Option<(Box<[u8]>, u32)>,
}

impl Volumes {
    /// The number of a name, a new one if it has none yet.
    pub(crate) fn number(&mut self, name: &[u8]) -> Result<u32, Problem> {
        if let Some((last, number)) = &self.last
            && **last == *name
        {
            return Ok(*number);
        }
        let number = match self.numbers.get(name) {
            Some(&number) => number,
            None => self.add(name)?,
        };
        self.last = Some((name.into(), number));
        Ok(number)
    }

    /// Every name so far; a volume's number is its place.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    fn add(&mut self, name: &[u8]) -> Result<u32, Problem> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(Problem::Name(NAME_BYTES_MAX));
        }
        if self.names.len() == VOLUMES_MAX {
            return Err(Problem::Volumes(VOLUMES_MAX));
        }
        let number = self.names.len() as u32;
        self.names.push(shown(name));
        self.numbers.insert(name.into(), number);
        Ok(number)
    }
}
