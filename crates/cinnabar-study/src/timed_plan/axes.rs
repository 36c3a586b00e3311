//! Axes, and the points that they make: each value of one with each of the others.

use super::at::At;
use super::keys::{self, KEYS, Key};
use super::value::Literal;
use super::{Origin, Plan};
use crate::timed::Config;
use cinnabar_text::toml_reader::{Located, Section};
use cinnabar_text::{ConfigError, suggest};
use std::collections::BTreeSet;

/// Points of a plan at most.
pub const POINTS_MAX: usize = 10_000;

/// Something that is varied, or several things in step.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What.
    pub keys: Vec<&'static Key>,
    /// The values of a row, one for each key, and the line they stand on.
    pub(super) rows: Vec<(usize, Vec<Literal>)>,
}

/// One configuration of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The values that tell it from the others: `flash.size=64GiB ram.policy=p1`.
    pub name: String,
    /// The settings.
    pub config: Config,
    /// The values of the axes' keys, as a plan would say them.
    pub values: Vec<String>,
    pub(super) origins: Vec<Origin>,
}

impl Axis {
    /// Reads `[[axis]]`; `base` is there to try the values on.
    pub(super) fn read(
        at: At<'_>,
        mut section: Section<'_>,
        base: &Config,
    ) -> Result<Self, ConfigError> {
        let one = section.string("key")?;
        let several = section.scalars("keys")?;
        let values = section.scalars("values")?;
        section.finish()?;
        let wrong = |line, message: &str, hint: &str| at.error(Some(line), message, hint);
        let names = names(at, one, several, section.line)?;
        let keys = names.iter().map(|name| known(at, name)).collect::<Result<Vec<_>, _>>()?;
        let rows = values.ok_or_else(|| {
            let hint = "add values = [\"32GiB\", \"64GiB\"]";
            wrong(section.line, "this [[axis]] has no values", hint)
        })?;
        if rows.is_empty() {
            return Err(wrong(
                section.line,
                "this [[axis]] has no value at all",
                "name one or more",
            ));
        }
        if rows.len() > POINTS_MAX {
            let message = format!("{} values, at most {POINTS_MAX} are possible", rows.len());
            return Err(wrong(section.line, &message, "name fewer of them"));
        }
        let mut axis = Self { keys, rows: Vec::with_capacity(rows.len()) };
        let mut seen: BTreeSet<Vec<String>> = BTreeSet::new();
        for Located { value: row, line } in rows {
            let row: Vec<Literal> = row.into_iter().map(Literal).collect();
            if row.len() != axis.keys.len() {
                let message = format!("{} values for {} keys", row.len(), axis.keys.len());
                let hint = "with keys = [\"a\", \"b\"], values = [[1, 2], [3, 4]]";
                return Err(wrong(line, &message, hint));
            }
            let mut config = *base;
            let mut shown = Vec::with_capacity(row.len());
            for (key, value) in axis.keys.iter().zip(&row) {
                at.set(key, &mut config, value, line)?;
                shown.push(key.show(&config));
            }
            if seen.contains(&shown) {
                let message = format!("{} is there twice", shown.join(" "));
                return Err(wrong(line, &message, "leave one of them out"));
            }
            seen.insert(shown);
            axis.rows.push((line, row));
        }
        Ok(axis)
    }

    /// Leaves out a key that has been set once for all; says whether anything is left.
    pub(super) fn pin(&mut self, name: &str) -> bool {
        if let Some(column) = self.keys.iter().position(|key| key.name == name) {
            self.keys.remove(column);
            for (_, row) in &mut self.rows {
                row.remove(column);
            }
        }
        !self.keys.is_empty()
    }

    /// How many values it has.
    pub fn values(&self) -> usize {
        self.rows.len()
    }
}

fn names(
    at: At<'_>,
    one: Option<Located<String>>,
    several: Option<Vec<Located<Vec<cinnabar_text::toml_reader::Scalar>>>>,
    section_line: usize,
) -> Result<Vec<Located<String>>, ConfigError> {
    match (one, several) {
        (Some(one), None) => Ok(vec![one]),
        (None, Some(several)) if !several.is_empty() => {
            let text = |Located { value, line }: Located<Vec<_>>| {
                let scalar = value.into_iter().next();
                let literal = scalar.map(Literal).ok_or_else(|| {
                    at.error(Some(line), "a key is missing", "write \"flash.size\"")
                })?;
                let text = literal.text().map(str::to_owned);
                let value = text.map_err(|(message, hint)| at.error(Some(line), message, hint))?;
                Ok(Located { value, line })
            };
            several.into_iter().map(text).collect()
        }
        _ => Err(at.error(
            Some(section_line),
            "this [[axis]] needs either key or keys",
            "add key = \"flash.size\", or keys = [\"ram.size\", \"flash.size\"] for both in step",
        )),
    }
}

fn known(at: At<'_>, name: &Located<String>) -> Result<&'static Key, ConfigError> {
    let text = name.value.as_str();
    keys::find(text).ok_or_else(|| {
        if ["workload.trace", "workload.pace", "title"].contains(&text) {
            let hint = "write a plan for each, or use --set with one plan";
            return at.error(Some(name.line), format!("{text} can't be varied"), hint);
        }
        let all: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
        at.error(Some(name.line), format!("unknown key {text:?} of an axis"), suggest(text, &all))
    })
}

impl Plan {
    /// How many points there are; `None` if more than can be counted.
    pub fn count(&self) -> Option<usize> {
        self.axes.iter().try_fold(1usize, |count, axis| count.checked_mul(axis.values()))
    }

    /// The names of the axes' keys, in the order of [`Point::values`].
    pub fn varied(&self) -> Vec<&'static Key> {
        self.axes.iter().flat_map(|axis| axis.keys.iter().copied()).collect()
    }

    /// All points, the last axis fastest.
    ///
    /// # Panics
    /// If there are more than [`POINTS_MAX`], which the reader has refused.
    pub fn points(&self) -> Vec<Point> {
        let count = self.count().filter(|count| *count <= POINTS_MAX);
        (0..count.expect("the reader counted them")).map(|number| self.point(number)).collect()
    }

    fn point(&self, number: usize) -> Point {
        let mut config = self.base;
        let mut origins = self.origins.clone();
        let mut rest = number;
        let mut rows = Vec::with_capacity(self.axes.len());
        for axis in self.axes.iter().rev() {
            rows.push((axis, &axis.rows[rest % axis.rows.len()]));
            rest /= axis.rows.len();
        }
        for (axis, (line, row)) in rows.into_iter().rev() {
            for (key, value) in axis.keys.iter().zip(row) {
                key.set(&mut config, value).expect("it was tried when the axis was read");
                origins[keys::place(key)] = Origin::Line(*line);
            }
        }
        let values: Vec<String> = self.varied().iter().map(|key| key.show(&config)).collect();
        let parts = self
            .varied()
            .iter()
            .zip(&values)
            .map(|(key, value)| format!("{}={value}", key.name))
            .collect::<Vec<_>>();
        let name = if parts.is_empty() { "base".to_owned() } else { parts.join(" ") };
        Point { name, config, values, origins }
    }
}

impl Point {
    /// A point of no plan.
    pub fn alone(name: &str, config: Config) -> Self {
        Self { name: name.to_owned(), config, values: Vec::new(), origins: Vec::new() }
    }
}
