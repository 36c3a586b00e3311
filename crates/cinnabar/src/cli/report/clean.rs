//! What must not leave the host: secrets.

use super::secrets::{REDACTED, is_secret, without_user_info, without_values};
use serde_json::Value;

/// A text without secrets.
pub(super) fn text(text: &str) -> String {
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
    without_values(&clean).split_inclusive('\n').map(without_user_info).collect()
}

/// Strings within a value, without secrets; keys and numbers stay.
pub(super) fn json(value: &mut Value) {
    match value {
        Value::String(text) => *text = self::text(text),
        Value::Array(values) => values.iter_mut().for_each(json),
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(_) | Value::Array(_) | Value::Object(_) if is_secret(key) => {
                        *value = REDACTED.into();
                    }
                    value => json(value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_replaced_and_paths_are_not() {
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
            assert_eq!(super::text(text), clean);
        }
        let pem = "a\n-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\nb\n";
        assert_eq!(super::text(pem), "a\nREDACTED\nb\n");
        let mut value =
            serde_json::json!({ "key": 7, "password": "hush", "list": ["secret=hush"] });
        json(&mut value);
        let clean =
            serde_json::json!({ "key": 7, "password": "REDACTED", "list": ["secret=REDACTED"] });
        assert_eq!(value, clean);
    }
}
