//! Changes of a configuration file as a text: comments, order and the form of what does not change stay.

use crate::error::SettingError;
use crate::volume::VolumeInput;
use std::path::Path;
use toml_edit::{ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike, Value};

/// The list of volumes.
const VOLUMES: &str = "volume";
const EDITOR: &str = "make the change with an editor, and have it read: cinnabar reload";

/// A change of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// A volume more, behind the others.
    Add(Box<VolumeInput>),
    /// Keys of a volume.
    Set {
        /// Which.
        name: String,
        /// Their new values.
        keys: Vec<(&'static str, Setting)>,
    },
    /// A volume less, with the comment that stands directly above it.
    Remove(String),
}

/// A value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// In quotes.
    Text(String),
    /// Without.
    Number(u64),
}

impl Edit {
    /// The volume that it is about.
    pub fn volume(&self) -> &str {
        match self {
            Self::Add(input) => &input.name,
            Self::Set { name, .. } | Self::Remove(name) => name,
        }
    }
}

/// The text after a change; `base` is the folder that relative paths are taken from. A volume that is
/// not there to be removed leaves the text as it is.
///
/// # Errors
/// If the text is no TOML, or there is no such volume to be changed.
pub fn edited(text: &str, edit: &Edit, base: &Path) -> Result<String, SettingError> {
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        // The reader takes what TOML leaves to it: whole numbers beyond those with a sign, such as seeds.
        let line = text[..error.span().map_or(0, |span| span.start)].lines().count().max(1);
        let reason = error.message().lines().collect::<Vec<_>>().join(", ");
        let message = format!("its line {line} can't be kept as it is: {reason}");
        SettingError::new("volume", message, EDITOR)
    })?;
    match edit {
        Edit::Add(input) => add(&mut document, section_of(input, base)?)?,
        Edit::Set { name, keys } => {
            let item = document.get_mut(VOLUMES);
            let table = item.and_then(|item| find(item, name)).ok_or_else(|| {
                let message = format!("volume {name:?} has no [[volume]] in it");
                let hint = "write one there, and have it read: cinnabar reload";
                SettingError::new("name", message, hint)
            })?;
            for (key, setting) in keys {
                set(table, key, setting)?;
            }
        }
        Edit::Remove(name) => remove(&mut document, name),
    }
    Ok(document.to_string())
}

/// A section with the keys that say something: one that could be left out is.
fn section_of(input: &VolumeInput, base: &Path) -> Result<Table, SettingError> {
    let impossible = |error: &dyn std::fmt::Display| {
        SettingError::new("volume", format!("it can't be written: {error}"), "")
    };
    let all = toml::to_string(input).map_err(|error| impossible(&error))?;
    let mut kept = toml::Table::try_from(input).map_err(|error| impossible(&error))?;
    let meaning = input.check(base)?;
    for key in kept.keys().cloned().collect::<Vec<_>>() {
        let Some(value) = kept.remove(&key) else { continue };
        let without = kept.clone().try_into::<VolumeInput>();
        let same = without.is_ok_and(|input| input.check(base).as_ref() == Ok(&meaning));
        if !same {
            kept.insert(key, value);
        }
    }
    let document: DocumentMut = all.parse().map_err(|error| impossible(&error))?;
    let mut section = document.into_table();
    section.retain(|key, _| kept.contains_key(key));
    section.decor_mut().set_prefix("\n");
    // Behind the last one, wherever that is.
    section.set_position(None);
    Ok(section)
}

fn add(document: &mut DocumentMut, section: Table) -> Result<(), SettingError> {
    let item = document.entry(VOLUMES).or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    if let Item::ArrayOfTables(list) = item {
        list.push(section);
        return Ok(());
    }
    let Some(list) = item.as_array_mut() else {
        let message = "the key volume is no list of tables";
        return Err(SettingError::new("volume", message, "write [[volume]] above each volume"));
    };
    let mut section = section.into_inline_table();
    section.fmt();
    list.push(section);
    Ok(())
}

/// The section of a volume.
fn find<'d>(item: &'d mut Item, name: &str) -> Option<&'d mut dyn TableLike> {
    let named = |table: &dyn TableLike| table.get("name").and_then(Item::as_str) == Some(name);
    match item {
        Item::ArrayOfTables(list) => {
            list.iter_mut().find(|table| named(&**table)).map(|table| table as &mut dyn TableLike)
        }
        Item::Value(Value::Array(list)) => list
            .iter_mut()
            .filter_map(Value::as_inline_table_mut)
            .find(|table| named(&**table))
            .map(|table| table as &mut dyn TableLike),
        _ => None,
    }
}

/// Another value of a key, with what stands around the old one.
fn set(
    table: &mut dyn TableLike,
    key: &'static str,
    setting: &Setting,
) -> Result<(), SettingError> {
    let mut value: Value = match setting {
        Setting::Text(text) => text.as_str().into(),
        Setting::Number(number) => i64::try_from(*number)
            .map_err(|_| {
                SettingError::new(key, format!("{key}: {number} can't be written"), EDITOR)
            })?
            .into(),
    };
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        None => drop(table.insert(key, Item::Value(value))),
    }
    Ok(())
}

fn remove(document: &mut DocumentMut, name: &str) {
    let Some(item) = document.get_mut(VOLUMES) else { return };
    let named = |name_of: Option<&Item>| name_of.and_then(Item::as_str) == Some(name);
    match item {
        Item::ArrayOfTables(list) => {
            let Some(at) = list.iter().position(|table| named(table.get("name"))) else { return };
            let above = list.get(at).map(kept_above).unwrap_or_default();
            list.remove(at);
            if above.is_empty() {
                return;
            }
            if let Some(next) = list.get_mut(at) {
                let own = next.decor().prefix().and_then(|prefix| prefix.as_str());
                let all = above + own.unwrap_or_default();
                next.decor_mut().set_prefix(all);
            } else {
                let trailing = document.trailing().as_str().unwrap_or_default();
                let all = above + trailing;
                document.set_trailing(all);
            }
        }
        Item::Value(Value::Array(list)) => {
            let is = |value: &Value| {
                let table: Option<&InlineTable> = value.as_inline_table();
                table.and_then(|table| table.get("name")).and_then(Value::as_str) == Some(name)
            };
            list.retain(|value| !is(value));
        }
        _ => {}
    }
}

/// What stands above a section and is not its own: all but the comment that touches it.
fn kept_above(table: &Table) -> String {
    let prefix = table.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
    let lines: Vec<&str> = prefix.split_inclusive('\n').collect();
    let own = lines.iter().rev().take_while(|line| !line.trim().is_empty()).count();
    let above = lines[..lines.len() - own].concat();
    if above.trim().is_empty() { String::new() } else { above.trim_end().to_owned() + "\n" }
}

#[cfg(test)]
mod tests;
