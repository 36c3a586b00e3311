//! A line of a dump: what it is about, and named values, as text or as JSON.
//!
//! Made by `dump`, written by the command line.

use serde_json::Value;
use std::fmt;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    what: &'static str,
    values: Vec<(&'static str, Value)>,
}

impl Line {
    /// A line without values.
    pub fn new(what: &'static str) -> Self {
        Self { what, values: Vec::new() }
    }

    /// Adds a value.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.values.push((name, value.into()));
        self
    }

    /// Says whose region it is of, in front of all else.
    #[must_use]
    pub fn of_shard(mut self, shard: u32) -> Self {
        self.values.insert(0, ("shard", shard.into()));
        self
    }

    /// Says which of the devices given it is of, in front of all else.
    #[must_use]
    pub fn of_device(mut self, device: &str) -> Self {
        self.values.insert(0, ("device", device.to_owned().into()));
        self
    }

    /// A JSON object, with its keys in the order of the text.
    pub fn to_json(&self) -> String {
        let values = self.values.iter().map(|(name, value)| format!(",\"{name}\":{value}"));
        format!("{{\"what\":\"{}\"{}}}", self.what, values.collect::<String>())
    }
}

/// `volume slot=0 name="vm 1" ...`: strings are quoted if they hold more than letters and digits.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        for (name, value) in &self.values {
            match value {
                Value::String(text) if is_word(text) => write!(f, " {name}={text}")?,
                Value::Null => write!(f, " {name}=-")?,
                // JSON's quotes and escapes: no name of a volume can break a line.
                value => write!(f, " {name}={value}")?,
            }
        }
        Ok(())
    }
}

fn is_word(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !text.is_empty() && text != "-" && text.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_breaks_a_line() {
        let line = Line::new("volume")
            .with("name", "vm\n1 \"x\"")
            .with("plain", "vm-1")
            .with("bytes", 7)
            .with("proof", Value::Null);
        let text = r#"volume name="vm\n1 \"x\"" plain=vm-1 bytes=7 proof=-"#;
        assert_eq!(line.to_string(), text);
        let value: Value = serde_json::from_str(&line.to_json()).expect("it is JSON");
        assert_eq!((&value["what"], &value["name"]), (&"volume".into(), &"vm\n1 \"x\"".into()));
        assert_eq!((&value["bytes"], &value["proof"]), (&7.into(), &Value::Null));
    }
}
