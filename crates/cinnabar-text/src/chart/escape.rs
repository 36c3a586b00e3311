//! Making text harmless: a volume may be named `</td><script>`, or turn the text behind it around.
//!
//! For every piece of text on a page or a chart.

/// What stands in for a character that can't be shown.
const REPLACEMENT: char = '\u{FFFD}';

/// Text that can stand in an element, or in an attribute in quotes, of HTML and of XML.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(visible(other)),
        }
    }
    safe
}

/// Text without characters that XML forbids or that change how others are read; not yet escaped.
pub fn visible_text(text: &str) -> String {
    text.chars().map(visible).collect()
}

fn visible(character: char) -> char {
    match character {
        '\n' | '\t' => character,
        // Turns that reach beyond their own text, and what is no character at all.
        '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' | '\u{FFFE}' | '\u{FFFF}'
        // Marks that are not seen and turn what is beside them.
        | '\u{200E}' | '\u{200F}' | '\u{061C}' => REPLACEMENT,
        other if other.is_control() => REPLACEMENT,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_to_html_is_escaped() {
        let name = "</td><script>alert('x') & \"y\"";
        let safe = "&lt;/td&gt;&lt;script&gt;alert(&#39;x&#39;) &amp; &quot;y&quot;";
        assert_eq!(escaped(name), safe);
    }

    #[test]
    fn what_can_not_be_seen_is_replaced() {
        let text = "a\0b\u{1b}[31m\u{202E}c\u{200F}\u{FFFF}\u{85}\r\n\tgrößer";
        let shown = "a\u{FFFD}b\u{FFFD}[31m\u{FFFD}c\u{FFFD}\u{FFFD}\u{FFFD}\u{FFFD}\n\tgrößer";
        assert_eq!(escaped(text), shown);
        assert_eq!(visible_text(text), shown);
    }
}
