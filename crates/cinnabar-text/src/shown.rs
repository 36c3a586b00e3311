//! Text that reads as what it is: a name may hold characters that can't be seen, or that turn what stands
//! beside them around, so that one volume looks like another. They are printed as `\u{202e}`.
//!
//! Names are kept as they are, and JSON has them so.

use std::borrow::Cow;

/// Code points that are not seen, or that change how others are: Unicode's "default ignorable" ones, the
/// separators of lines and paragraphs, and marks of annotations.
const UNSEEN: [(char, char); 21] = [
    ('\u{AD}', '\u{AD}'),
    ('\u{34F}', '\u{34F}'),
    ('\u{600}', '\u{605}'),
    ('\u{61C}', '\u{61C}'),
    ('\u{6DD}', '\u{6DD}'),
    ('\u{70F}', '\u{70F}'),
    ('\u{115F}', '\u{1160}'),
    ('\u{17B4}', '\u{17B5}'),
    ('\u{180B}', '\u{180F}'),
    ('\u{200B}', '\u{200F}'),
    ('\u{2028}', '\u{202E}'),
    ('\u{2060}', '\u{206F}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{FE00}', '\u{FE0F}'),
    ('\u{FEFF}', '\u{FEFF}'),
    ('\u{FFA0}', '\u{FFA0}'),
    ('\u{FFF0}', '\u{FFFB}'),
    ('\u{FFFE}', '\u{FFFF}'),
    ('\u{1BCA0}', '\u{1BCA3}'),
    ('\u{1D173}', '\u{1D17A}'),
    ('\u{E0000}', '\u{E0FFF}'),
];

/// Text from elsewhere, for people: without what is not seen, and without control characters but line ends
/// and tabs.
pub fn shown(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_unseen(c) || (c.is_control() && !matches!(c, '\n' | '\t')))
}

/// Text with control characters of ours, such as those for colours: without what is not seen.
pub fn seen(text: &str) -> Cow<'_, str> {
    escaped(text, is_unseen)
}

/// Also blanks that look like another one.
fn is_unseen(c: char) -> bool {
    !c.is_ascii()
        && (c.is_whitespace() || UNSEEN.iter().any(|(first, last)| (*first..=*last).contains(&c)))
}

fn escaped(text: &str, is_wrong: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_wrong) {
        return text.into();
    }
    let mut clean = String::with_capacity(2 * text.len());
    for c in text.chars() {
        if is_wrong(c) {
            clean.extend(c.escape_unicode());
        } else {
            clean.push(c);
        }
    }
    clean.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_written_out() {
        for (text, expected) in [
            ("vm1 größer 日本", "vm1 größer 日本"),
            ("a\u{202E}b", "a\\u{202e}b"),
            ("\u{2066}a\u{2069}", "\\u{2066}a\\u{2069}"),
            ("v1\u{200B}", "v1\\u{200b}"),
            ("v1\u{A0}", "v1\\u{a0}"),
            ("a\u{2028}b\u{2029}", "a\\u{2028}b\\u{2029}"),
            ("\u{E0041}\u{FEFF}\u{AD}", "\\u{e0041}\\u{feff}\\u{ad}"),
        ] {
            assert_eq!(shown(text), expected);
            assert_eq!(seen(text), expected);
            assert_eq!(shown(&shown(text)), expected, "once");
        }
    }

    #[test]
    fn control_characters_are_ours_or_written_out() {
        let text = "\x1b[1ma\x1b[0m\tb\n";
        assert_eq!(seen(text), text);
        assert_eq!(shown(text), "\\u{1b}[1ma\\u{1b}[0m\tb\n");
    }
}
