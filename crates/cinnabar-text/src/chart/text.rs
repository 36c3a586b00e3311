//! How wide text is, roughly, since nothing here knows the reader's font; and fitting it in.
//!
//! Widths are guessed a little too large: a gap is better than a label that runs into another.

use crate::chart::escape::visible_text;

/// Width in units of the drawing at a font size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(em).sum::<f64>() * size
}

/// A character's width as a part of the font size.
fn em(character: char) -> f64 {
    match character {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.33,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '-' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.95,
        'A'..='Z' => 0.74,
        character if character.is_ascii() => 0.6,
        // Ideographs and emoji are square; accented letters are not, but seldom fill a line.
        character if character >= '\u{1100}' => 1.05,
        _ => 0.74,
    }
}

/// The text, or its beginning and an ellipsis, at most so wide; without characters that would spoil
/// a drawing. Whatever is drawn went through here.
pub(super) fn cut(text: &str, size: f64, width_max: f64) -> String {
    let text = &visible_text(text);
    if width(text, size) <= width_max {
        return text.to_owned();
    }
    let mut room = width_max - em('\u{2026}') * size;
    let fits = |character: &char| {
        room -= em(*character) * size;
        room >= 0.0
    };
    let start: String = text.chars().take_while(fits).collect();
    format!("{}\u{2026}", start.trim_end())
}

/// The text in lines of at most that width, broken between words; what is left after `lines_max`
/// lines is cut off.
pub(super) fn wrap(text: &str, size: f64, width_max: f64, lines_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        // The last line takes all that is left, to be cut.
        let full = lines.len() == lines_max;
        let fits = |line: &str| width(line, size) + width(word, size) + 0.33 * size <= width_max;
        match lines.last_mut() {
            Some(line) if full || fits(line) => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.into_iter().map(|line| cut(&line, size, width_max)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_wrapped_and_cut() {
        let lines = wrap("mean response time over the load", 10.0, 110.0, 9);
        assert!(
            lines.len() > 1 && lines.iter().all(|line| width(line, 10.0) <= 110.0),
            "{lines:?}"
        );
        assert_eq!(lines.join(" "), "mean response time over the load");
        let lines = wrap("mean response time over the load", 10.0, 110.0, 1);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with('\u{2026}') && width(&lines[0], 10.0) <= 110.0, "{lines:?}");
        assert!(wrap(" ", 10.0, 50.0, 2).is_empty());
    }

    #[test]
    fn a_word_without_a_break_is_cut() {
        let cut = cut(&"x".repeat(1000), 10.0, 100.0);
        assert!(width(&cut, 10.0) <= 100.0 && cut.starts_with("xxx"), "{cut}");
        assert_eq!(super::cut("short", 10.0, 100.0), "short");
        assert_eq!(super::cut("nothing fits", 10.0, 0.0), "\u{2026}");
    }
}
