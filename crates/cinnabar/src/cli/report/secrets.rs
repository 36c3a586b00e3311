//! Secrets in a text of any kind: a configuration, a command line, a line of the log.
//!
//! Values are recognised by their keys, so this is a net with meshes: the report's last line asks to look
//! through it.

use std::ops::Range;

/// What stands for a secret.
pub(super) const REDACTED: &str = "REDACTED";
/// A key that ends so has a secret for a value. `token_file` does not: a path is none.
const SECRETS: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "credentials",
    "apikey",
    "accesskey",
    "secretkey",
    "authkey",
    "authorization",
    "cookie",
];
/// The same of short ones, if they are a word of their own: `chap_pass` is, `bypass` and `monkey` are not.
const SECRET_WORDS: [&str; 6] = ["key", "pass", "pwd", "psk", "auth", "bearer"];
/// Options of commands whose value is `user:password`.
const USER_OPTIONS: [&str; 3] = ["-u", "--user", "--proxy-user"];
/// A list of secrets that goes on for longer is cut at the end of its line.
const LIST_BYTES_MAX: usize = 4096;

/// Whether a key's value is a secret.
pub(super) fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let key = key.trim_matches(['"', '\'']);
    let ends_in = |word: &&str| {
        key.strip_suffix(*word)
            .is_some_and(|front| front.is_empty() || front.ends_with(['_', '-', '.']))
    };
    SECRETS.iter().any(|secret| key.ends_with(secret)) || SECRET_WORDS.iter().any(ends_in)
}

const fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

const fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

/// Replaces `VALUE` in `key = "VALUE"`, `key: VALUE`, `--key VALUE`, `-u user:VALUE` and `Bearer VALUE`, for
/// keys of secrets.
pub(super) fn without_values(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(is_word) {
        let end = rest[at..].find(|c| !is_word(c)).map_or(rest.len(), |length| at + length);
        let word = &rest[at..end];
        clean += &rest[..end];
        rest = &rest[end..];
        let secret = match value_of(word, rest) {
            Some(value) => {
                let extent = if has_parts(word, value) { 0..line_of(value) } else { extent(value) };
                shifted(&extent, rest.len() - value.len())
            }
            None => match password_of(word, rest) {
                Some(secret) => secret,
                None => continue,
            },
        };
        clean += &rest[..secret.start];
        if !secret.is_empty() {
            clean += REDACTED;
        }
        rest = &rest[secret.end..];
    }
    clean + rest
}

fn shifted(range: &Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

/// Where the password of a command's option is in what follows its name.
fn password_of(option: &str, behind: &str) -> Option<Range<usize>> {
    if !USER_OPTIONS.contains(&option) || !behind.starts_with(|c| is_blank(c) || c == '=') {
        return None;
    }
    let value = behind.trim_start_matches(|c| is_blank(c) || c == '=');
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let ends = |c: char| quote.map_or(c.is_whitespace(), |quote| c == quote || c == '\n');
    let begin = behind.len() - value.len() + usize::from(quote.is_some());
    let end = behind[begin..].find(ends).map_or(behind.len(), |length| begin + length);
    let user = behind[begin..end].find(':')?;
    Some(begin + user + 1..end)
}

/// What begins with the value of this key, if that is a secret; `behind` is what follows the key.
fn value_of<'t>(key: &str, behind: &'t str) -> Option<&'t str> {
    if !is_secret(key) {
        return None;
    }
    // A quote that ends the key, blanks, one sign, blanks.
    let value = behind.trim_start_matches(['\\', '"', '\'', ' ', '\t']);
    let given = value.strip_prefix(['=', ':']).map(|value| value.trim_start_matches(is_blank));
    match given {
        // `Authorization: Basic VALUE`
        Some(value) if key.to_ascii_lowercase().ends_with("authorization") => {
            let scheme = value.find(|c: char| !is_word(c)).unwrap_or(0);
            let credentials = value[scheme..].trim_start_matches(is_blank);
            let has_scheme = scheme > 0 && value[scheme..].starts_with(is_blank);
            Some(if has_scheme { credentials } else { value })
        }
        Some(value) => Some(value),
        None if key.eq_ignore_ascii_case("bearer") => Some(value),
        None if key.starts_with('-') && behind.starts_with(is_blank) => Some(value),
        None => None,
    }
}

/// Whether a header's value goes to the end of its line: cookies, and what has a comma, as `Digest` does.
fn has_parts(key: &str, value: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let is_header = key.ends_with("cookie") || key.ends_with("authorization");
    is_header
        && value[..line_of(value)].contains([';', ','])
        && !value.starts_with(['\\', '"', '\''])
}

fn line_of(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// Where the secret is in a text that begins with a value: quotes are left out.
fn extent(value: &str) -> Range<usize> {
    let line = line_of(value);
    // Longer ones first: TOML's strings of several lines, those within a quoted text, plain ones.
    for quote in ["\"\"\"", "'''", "\\\"", "\"", "'"] {
        let Some(text) = value.strip_prefix(quote) else { continue };
        let room = if quote.len() == 3 { text.len() } else { line - quote.len() };
        let end = ending(&text[..room], quote).unwrap_or(room);
        return quote.len()..quote.len() + end;
    }
    if value.starts_with('[') {
        return 0..list_end(value).unwrap_or(line);
    }
    let is_end = |c: char| c.is_whitespace() || ",;&\"'\\".contains(c);
    0..value.find(is_end).unwrap_or(value.len())
}

/// Where the quote is that ends a text. Behind a backslash a double one is part of it.
fn ending(text: &str, quote: &str) -> Option<usize> {
    if !quote.starts_with('"') {
        return text.find(quote);
    }
    let mut at = 0;
    loop {
        at += text[at..].find(['\\', '"'])?;
        if text[at..].starts_with(quote) {
            return Some(at);
        }
        // The character behind a backslash is left out; a single quote within three is text.
        let count = if text[at..].starts_with('\\') { 2 } else { 1 };
        at += text[at..].chars().take(count).map(char::len_utf8).sum::<usize>();
    }
}

/// Behind the bracket that ends a list.
fn list_end(value: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in value.char_indices().take_while(|(at, _)| *at < LIST_BYTES_MAX) {
        match (quote, c) {
            (None, ']') => return Some(at + 1),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    None
}

/// `scheme://user:password@host` without the password.
pub(super) fn without_user_info(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (front, behind) = rest.split_at(at + 3);
        clean += front;
        let end = behind.find(|c: char| c.is_whitespace() || "/\"',?#<>".contains(c));
        let (authority, tail) = behind.split_at(end.unwrap_or(behind.len()));
        let parts = authority
            .rsplit_once('@')
            .and_then(|(user, host)| Some((user.split_once(':')?.0, host)));
        match parts {
            Some((user, host)) => clean.extend([user, ":", REDACTED, "@", host]),
            None => clean += authority,
        }
        rest = tail;
    }
    clean + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of these left the secret, or a part of it, in a report.
    #[test]
    fn values_are_found_however_they_are_written() {
        for (text, clean) in [
            ("password = \"\"\"hush\"\"\"", "password = \"\"\"REDACTED\"\"\""),
            ("password = \"\"\"\nhu \"sh\n\"\"\"\na = 1", "password = \"\"\"REDACTED\"\"\"\na = 1"),
            ("password = \"\"\"hu\\\"\"\"sh\"\"\" b", "password = \"\"\"REDACTED\"\"\" b"),
            ("token = '''hu'sh'''", "token = '''REDACTED'''"),
            ("password = \"esc\\\"hush\" # a", "password = \"REDACTED\" # a"),
            ("password = \"esc\\\\\" # a", "password = \"REDACTED\" # a"),
            ("password = 'esc\\' # a", "password = 'REDACTED' # a"),
            ("e=\"bad password=\\\"hush\\\" here\"", "e=\"bad password=\\\"REDACTED\\\" here\""),
            ("key = [\"hu]sh\", \"hush\"]\nb", "key = REDACTED\nb"),
            ("key = [\n  \"hush\",\n]\nb = 1", "key = REDACTED\nb = 1"),
            ("pass = hush", "pass = REDACTED"),
            ("chap_pass: hush", "chap_pass: REDACTED"),
            ("apikey=hush&x=1", "apikey=REDACTED&x=1"),
            ("apiKey: \"hush\"", "apiKey: \"REDACTED\""),
            ("x-api-key: hush", "x-api-key: REDACTED"),
            ("curl -u admin:hush http://h/", "curl -u admin:REDACTED http://h/"),
            ("curl --user \"admin:hu sh\" a", "curl --user \"admin:REDACTED\" a"),
            ("curl --proxy-user=a:hush", "curl --proxy-user=a:REDACTED"),
            ("tool --password hush --token=hush", "tool --password REDACTED --token=REDACTED"),
            ("Authorization: Basic aHVzaA==", "Authorization: Basic REDACTED"),
            ("authorization: hush\nb", "authorization: REDACTED\nb"),
            ("Cookie: a=hush; b=hush\nb", "Cookie: REDACTED\nb"),
            (
                "Authorization: Digest username=\"a\", response=\"hush\"\nb",
                "Authorization: Digest REDACTED\nb",
            ),
        ] {
            assert_eq!(without_values(text), clean, "{text}");
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        for text in [
            "bypass = 3",
            "bypass_sequential = \"1MiB\"",
            "journalctl -u cinnabar.service",
            "journalctl -u cinnabar\na: b",
            "-u",
            "token_file = \"/etc/cinnabar/token\"",
            "a pass through the cache",
            "password",
            "password =",
            "password = \"\"",
            "",
        ] {
            assert_eq!(without_values(text), text);
        }
    }
}
