//! Reads TOML tables key by key, so that each value keeps its line and each unknown key is noticed.
//!
//! (Deriving the tables with serde would be shorter, but its errors can't be worded, and checks made
//! after parsing would have lost the lines.)

use crate::error::{ConfigError, suggest};
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A file and its text, to make line numbers of byte offsets.
#[derive(Clone, Copy)]
pub struct Source<'s> {
    /// Where it was read from.
    pub file: &'s Path,
    /// All of it.
    pub text: &'s str,
}

impl Source<'_> {
    /// An error at `line`.
    pub fn error(
        &self,
        line: Option<usize>,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> ConfigError {
        ConfigError { file: self.file.to_owned(), line, message: message.into(), hint: hint.into() }
    }

    /// The line, from 1, of a byte of the text.
    pub fn line(&self, at: usize) -> usize {
        1 + self.text.get(..at).unwrap_or(self.text).matches('\n').count()
    }
}

/// A value and the line it stands on.
#[derive(Clone, Debug)]
pub struct Located<T> {
    /// What was written.
    pub value: T,
    pub line: usize,
}

/// A value of any kind, as it is written.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// In quotes.
    Text(String),
    /// Without a point.
    Integer(i64),
    /// With a point or an exponent.
    Float(f64),
    /// `true` or `false`.
    Flag(bool),
}

impl Scalar {
    /// `None` for dates, lists, tables, and whole numbers beyond 64 bits.
    fn of(value: &DeValue<'_>) -> Option<Self> {
        Some(match value {
            DeValue::String(text) => Self::Text(text.to_string()),
            DeValue::Integer(number) => {
                let digits = number.as_str().replace('_', "");
                Self::Integer(i64::from_str_radix(&digits, number.radix()).ok()?)
            }
            DeValue::Float(number) => Self::Float(number.as_str().replace('_', "").parse().ok()?),
            DeValue::Boolean(flag) => Self::Flag(*flag),
            DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => return None,
        })
    }
}

/// A table being read.
pub struct Section<'s> {
    source: Source<'s>,
    /// As it is written: `[cache]`.
    title: &'static str,
    /// Line of its first key or header.
    pub line: usize,
    table: &'s DeTable<'s>,
    /// The keys asked for so far.
    known: Vec<&'static str>,
}

impl<'s> Section<'s> {
    /// The table `table`, which begins at byte `at` of the text; messages call it `title`.
    pub fn new(source: Source<'s>, title: &'static str, at: usize, table: &'s DeTable<'s>) -> Self {
        Self { source, title, line: source.line(at), table, known: Vec::new() }
    }

    fn get(&mut self, key: &'static str) -> Option<(&'s DeValue<'s>, usize)> {
        self.known.push(key);
        self.table.get(key).map(|value| (value.get_ref(), self.source.line(value.span().start)))
    }

    fn wrong_type(&self, key: &str, line: usize, wanted: &str, got: &DeValue<'_>) -> ConfigError {
        let kind = got.type_str();
        let place = if self.title.is_empty() { "" } else { " in " };
        let message = format!("{key}{place}{} must be {wanted}, not {kind}", self.title);
        self.source.error(Some(line), message, format!("write {key} = {}", example_of(wanted)))
    }

    /// A string.
    ///
    /// # Errors
    /// Names the line of a value that is something else, and what to write.
    pub fn string(&mut self, key: &'static str) -> Result<Option<Located<String>>, ConfigError> {
        let Some((value, line)) = self.get(key) else { return Ok(None) };
        match value.as_str() {
            Some(text) => Ok(Some(Located { value: text.to_owned(), line })),
            None => Err(self.wrong_type(key, line, "a string", value)),
        }
    }

    /// A size or share: a string, or a plain number of bytes.
    ///
    /// # Errors
    /// Names the line of a value that is something else, and what to write.
    pub fn quantity(&mut self, key: &'static str) -> Result<Option<Located<String>>, ConfigError> {
        let Some((value, line)) = self.get(key) else { return Ok(None) };
        let text = match value {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().replace('_', ""),
            DeValue::Float(number) => {
                let message = format!("{key} in {} has no unit: {}", self.title, number.as_str());
                return Err(self.source.error(Some(line), message, "write it such as \"1.5GiB\""));
            }
            _ => return Err(self.wrong_type(key, line, "a size", value)),
        };
        Ok(Some(Located { value: text, line }))
    }

    /// A whole number.
    ///
    /// # Errors
    /// Names the line of a value that is something else, and what to write.
    pub fn number(&mut self, key: &'static str) -> Result<Option<Located<u64>>, ConfigError> {
        let Some((value, line)) = self.get(key) else { return Ok(None) };
        let number = value.as_integer().and_then(|number| {
            u64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
        });
        if let Some(value) = number {
            return Ok(Some(Located { value, line }));
        }
        let Some(number) = value.as_integer() else {
            return Err(self.wrong_type(key, line, "a whole number", value));
        };
        // A whole number it is, but not one of ours.
        let negative = number.as_str().starts_with('-');
        let wrong = if negative { "must not be negative" } else { "is too large" };
        let place = if self.title.is_empty() { "" } else { " in " };
        let message = format!("{key}{place}{} {wrong}: {}", self.title, number.as_str());
        let hint = if negative { "write 0 or more" } else { "write a smaller number" };
        Err(self.source.error(Some(line), message, hint))
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// Names the line of a value that is something else, and what to write.
    pub fn flag(&mut self, key: &'static str) -> Result<Option<Located<bool>>, ConfigError> {
        let Some((value, line)) = self.get(key) else { return Ok(None) };
        match value.as_bool() {
            Some(value) => Ok(Some(Located { value, line })),
            None => Err(self.wrong_type(key, line, "true or false", value)),
        }
    }

    /// A value of any kind.
    ///
    /// # Errors
    /// Names the line of a value that is something else, and what to write.
    pub fn scalar(&mut self, key: &'static str) -> Result<Option<Located<Scalar>>, ConfigError> {
        let Some((value, line)) = self.get(key) else { return Ok(None) };
        match Scalar::of(value) {
            Some(value) => Ok(Some(Located { value, line })),
            None => Err(self.wrong_type(key, line, "a single value", value)),
        }
    }

    /// A list of values of any kind; one that is a list itself is given as it is.
    ///
    /// # Errors
    /// Names the line of a value that is something else, and what to write.
    pub fn scalars(
        &mut self,
        key: &'static str,
    ) -> Result<Option<Vec<Located<Vec<Scalar>>>>, ConfigError> {
        let Some((value, line)) = self.get(key) else { return Ok(None) };
        let wrong =
            |line, value: &DeValue<'_>| self.wrong_type(key, line, "a list of values", value);
        let list = value.as_array().ok_or_else(|| wrong(line, value))?;
        let mut items = Vec::with_capacity(list.len());
        for item in list {
            let line = self.source.line(item.span().start);
            let of = |item: &DeValue<'_>| Scalar::of(item).ok_or_else(|| wrong(line, item));
            let value = match item.get_ref() {
                DeValue::Array(row) => {
                    row.iter().map(|one| of(one.get_ref())).collect::<Result<_, _>>()?
                }
                one => vec![of(one)?],
            };
            items.push(Located { value, line });
        }
        Ok(Some(items))
    }

    /// A table below this one.
    ///
    /// # Errors
    /// Names the line of a value that is something else, and what to write.
    pub fn table(
        &mut self,
        key: &'static str,
        title: &'static str,
    ) -> Result<Option<Section<'s>>, ConfigError> {
        self.known.push(key);
        let Some(value) = self.table.get(key) else { return Ok(None) };
        let at = value.span().start;
        value
            .get_ref()
            .as_table()
            .map(|table| Some(Section::new(self.source, title, at, table)))
            .ok_or_else(|| self.wrong_type(key, self.source.line(at), "a table", value.get_ref()))
    }

    /// A list of tables below this one.
    ///
    /// # Errors
    /// Names the line of a value that is something else, and what to write.
    pub fn tables(
        &mut self,
        key: &'static str,
        title: &'static str,
    ) -> Result<Vec<Section<'s>>, ConfigError> {
        let Some((value, line)) = self.get(key) else { return Ok(Vec::new()) };
        let wrong = |section: &Self, line, value: &DeValue<'_>| {
            let message = format!("{key} must be a list of tables, not {}", value.type_str());
            section.source.error(Some(line), message, format!("write {title} above each of them"))
        };
        let list = value.as_array().ok_or_else(|| wrong(self, line, value))?;
        let mut sections = Vec::with_capacity(list.len());
        for item in list {
            let at = item.span().start;
            let table = item
                .get_ref()
                .as_table()
                .ok_or_else(|| wrong(self, self.source.line(at), item.get_ref()))?;
            sections.push(Section::new(self.source, title, at, table));
        }
        Ok(sections)
    }

    /// Checks that each key of the table was asked for.
    ///
    /// # Errors
    /// Names the first unknown key, its line, and a known one that is like it.
    pub fn finish(&self) -> Result<(), ConfigError> {
        let unknown = |key: &&Spanned<_>| !self.known.contains(&key_text(key));
        let Some(key) = self.table.keys().filter(unknown).min_by_key(|key| key.span().start) else {
            return Ok(());
        };
        let text = key_text(key);
        let place = if self.title.is_empty() { "" } else { " in " };
        let message = format!("unknown key {text:?}{place}{}", self.title);
        let line = self.source.line(key.span().start);
        Err(self.source.error(Some(line), message, suggest(text, &self.known)))
    }
}

fn key_text<'k>(key: &'k Spanned<std::borrow::Cow<'_, str>>) -> &'k str {
    key.get_ref()
}

fn example_of(wanted: &str) -> &'static str {
    match wanted {
        "a string" => "\"...\", with quotes",
        "a size" => "\"8GiB\", with quotes",
        "a whole number" => "a number without quotes",
        "a single value" => "a string, a number, true or false",
        "a list of values" => "[\"32GiB\", \"64GiB\"]",
        "a table" => "{ ... }, or a [section]",
        _ => "true, without quotes",
    }
}
