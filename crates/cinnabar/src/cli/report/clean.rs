//! What must not leave the host: secrets always, names if that is asked for.

use super::secrets::{REDACTED, is_secret, without_user_info, without_values};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Names that are replaced.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) volumes: Vec<String>,
    pub(super) hosts: Vec<String>,
}

/// Replaces.
#[derive(Debug, Default)]
pub(super) struct Cleaner {
    /// Names and what stands for them, the longest first; `None`: names stay.
    names: Option<Vec<(String, String)>>,
}

impl Cleaner {
    /// One that replaces names, too.
    pub(super) fn anonymous(names: &Names) -> Self {
        let mut all = BTreeMap::new();
        let kinds = [("host", &names.hosts), ("volume", &names.volumes)];
        for (kind, names) in kinds {
            for name in names.iter().filter(|name| !name.is_empty()) {
                let number = all.len() + 1;
                all.entry(name.clone()).or_insert_with(|| format!("{kind}-{number}"));
            }
        }
        let mut all: Vec<(String, String)> = all.into_iter().collect();
        all.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Self { names: Some(all) }
    }

    pub(super) const fn is_anonymous(&self) -> bool {
        self.names.is_some()
    }

    /// A text without secrets.
    pub(super) fn text(&self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut in_key = false;
        for line in text.split_inclusive('\n') {
            // A private key goes on for some lines.
            if line.contains("-----BEGIN ") && line.contains("PRIVATE KEY-----") {
                in_key = true;
                clean += REDACTED;
                clean.push('\n');
            }
            if in_key {
                in_key = !line.contains("-----END ");
                continue;
            }
            clean += line;
        }
        // Values may go on for some lines, too.
        without_values(&clean).split_inclusive('\n').map(|line| self.line(line)).collect()
    }

    /// Strings within a value, without secrets; keys and numbers stay.
    pub(super) fn json(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.json(value)),
            Value::Object(fields) => {
                for (key, value) in fields {
                    match value {
                        Value::String(_) | Value::Array(_) | Value::Object(_) if is_secret(key) => {
                            *value = REDACTED.into();
                        }
                        value => self.json(value),
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn line(&self, line: &str) -> String {
        let line = without_user_info(line);
        let Some(names) = &self.names else { return line };
        // First whole names, then what looks like an address.
        let line = names.iter().fold(line, |line, (name, other)| replaced(&line, name, other));
        without_addresses(&line)
    }
}

/// A name that is not part of another word replaced.
fn replaced(text: &str, name: &str, other: &str) -> String {
    let is_inner = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let (mut clean, mut before) = (String::with_capacity(text.len()), None);
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let (front, behind) = (&rest[..at], &rest[at + name.len()..]);
        clean += front;
        let is_part =
            is_inner(front.chars().next_back().or(before)) || is_inner(behind.chars().next());
        clean += if is_part { name } else { other };
        before = name.chars().next_back();
        rest = behind;
    }
    clean + rest
}

/// Addresses of other hosts replaced, ports kept.
fn without_addresses(line: &str) -> String {
    let is_part =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '[' | ']' | '_' | '%');
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(is_part) {
        let end = rest[at..].find(|c| !is_part(c)).map_or(rest.len(), |length| at + length);
        clean += &rest[..at];
        clean += &address_replaced(&rest[at..end]);
        rest = &rest[end..];
    }
    clean + rest
}

fn address_replaced(token: &str) -> String {
    let own = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
    // `tcp:10.0.0.1:10809` and `10.0.0.1:` have something around them.
    let starts = std::iter::once(0).chain(token.match_indices(':').map(|(at, _)| at + 1));
    for start in starts {
        let (front, mut part) = token.split_at(start);
        let whole = part;
        part = part.trim_end_matches(['.', ':']);
        let tail = &whole[part.len()..];
        if let Ok(address) = part.parse::<SocketAddr>() {
            let ip = if own(address.ip()) { address.ip().to_string() } else { "ADDRESS".into() };
            return format!("{front}{ip}:{}{tail}", address.port());
        }
        if part.parse::<IpAddr>().is_ok_and(|ip| !own(ip)) {
            return format!("{front}ADDRESS{tail}");
        }
    }
    token.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_replaced_and_paths_are_not() {
        let cleaner = Cleaner::default();
        for (text, clean) in [
            ("token_file = \"/etc/cinnabar/token\"", "token_file = \"/etc/cinnabar/token\""),
            ("token = \"hush\"  # ours", "token = \"REDACTED\"  # ours"),
            ("chap_password='hu sh'\n", "chap_password='REDACTED'\n"),
            ("\tkey = AQBhush==\n", "\tkey = REDACTED\n"),
            ("keyring = /etc/ceph/k", "keyring = /etc/ceph/k"),
            ("rbd:p/i:id=a:key=AQBhush==,x=1", "rbd:p/i:id=a:key=REDACTED,x=1"),
            (
                "//nas/x cifs rw,username=u,password=hush,uid=0",
                "//nas/x cifs rw,username=u,password=REDACTED,uid=0",
            ),
            ("Authorization: Bearer hush", "Authorization: Bearer REDACTED"),
            ("{\"secret\": \"hush\", \"a\": 1}", "{\"secret\": \"REDACTED\", \"a\": 1}"),
            ("at http://u:hush@h:80/x and nbd://h/y", "at http://u:REDACTED@h:80/x and nbd://h/y"),
            ("unknown key \"sise\" in [cache]", "unknown key \"sise\" in [cache]"),
            ("monkey = 3", "monkey = 3"),
            ("password =", "password ="),
        ] {
            assert_eq!(cleaner.text(text), clean);
        }
        let pem = "a\n-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\nb\n";
        assert_eq!(cleaner.text(pem), "a\nREDACTED\nb\n");
        let mut value =
            serde_json::json!({ "key": 7, "password": "hush", "list": ["secret=hush"] });
        cleaner.json(&mut value);
        let clean =
            serde_json::json!({ "key": 7, "password": "REDACTED", "list": ["secret=REDACTED"] });
        assert_eq!(value, clean);
    }

    #[test]
    fn names_and_addresses_are_replaced_if_that_is_asked_for() {
        let names = Names {
            volumes: vec!["vm1".into(), "vm1-data".into(), "reads".into()],
            hosts: vec!["alpha".into()],
        };
        let cleaner = Cleaner::anonymous(&names);
        let text = "alpha cinnabar[7]: vm1-data of file:/srv/vm1.raw, not vm10, of alphabet";
        let clean = cleaner.text(text);
        assert!(!clean.contains("vm1.") && !clean.contains("vm1-") && !clean.contains("alpha "));
        assert!(clean.contains("vm10") && clean.contains("alphabet"), "{clean}");
        for (text, clean) in [
            ("nbd:tcp:10.1.2.3:10809/x", "nbd:tcp:ADDRESS:10809/x"),
            ("http = \"127.0.0.1:9320\"", "http = \"127.0.0.1:9320\""),
            ("from 10.1.2.3: gone", "from ADDRESS: gone"),
            ("[fd00::1]:80 at 05:44:29", "ADDRESS:80 at 05:44:29"),
            ("std::io::Error 252.5-2", "std::io::Error 252.5-2"),
        ] {
            assert_eq!(cleaner.text(text), clean);
        }
        let mut value = serde_json::json!({ "reads": 5, "name": "reads" });
        cleaner.json(&mut value);
        assert_eq!(value["reads"], 5, "keys stay: {value}");
        assert!(value["name"].as_str().is_some_and(|name| name.starts_with("volume-")), "{value}");
        let same = Cleaner::default().text(text);
        assert_eq!(same, text);
    }
}
