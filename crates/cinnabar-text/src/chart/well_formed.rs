//! A check for tests of whatever writes HTML or SVG: text from outside must not become markup.

/// A name that wants to be markup wherever it is put.
pub const HOSTILE: &str =
    "</td></pre></text></svg></title><script>alert(1)</script>\" onload='x' & \u{202E}\0]]>";

/// Checks that the text is one element of XML: tags closed in order, attributes in quotes and
/// named once, only known entities, no character that XML forbids.
///
/// # Panics
/// Unless it is.
pub fn assert_well_formed(text: &str) {
    let allowed = |c: char| matches!(c, '\t' | '\n' | ' '..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..);
    assert_eq!(text.find(|c| !allowed(c)), None, "a character that is none");
    let mut open: Vec<&str> = Vec::new();
    let mut rest = text.trim();
    while let Some((before, behind)) = rest.split_once('<') {
        assert!(!before.contains('>'), "a stray > in {before}");
        assert_entities(before);
        assert!(before.trim().is_empty() || !open.is_empty(), "text outside of everything");
        let (tag, behind) = behind.split_once('>').expect("a tag ends");
        rest = behind;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed in order");
        } else {
            let (inner, empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
            let (name, attributes) = inner.split_once(' ').unwrap_or((inner, ""));
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "the tag <{tag}>");
            assert_attributes(attributes);
            if !empty {
                open.push(name);
            }
        }
        assert!(!open.is_empty() || rest.is_empty(), "one element: {rest}");
    }
    assert!(open.is_empty() && rest.is_empty(), "all closed: {open:?}");
}

fn assert_attributes(attributes: &str) {
    let mut rest = attributes.trim();
    let mut names = Vec::new();
    while !rest.is_empty() {
        let (name, behind) = rest.split_once("=\"").expect("an attribute has a value in quotes");
        let (value, behind) = behind.split_once('"').expect("quotes end");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "attribute {name}");
        assert!(!names.contains(&name), "{name} twice");
        assert_entities(value);
        names.push(name);
        rest = behind.trim_start();
    }
}

fn assert_entities(text: &str) {
    for entity in text.split('&').skip(1) {
        let known = ["amp;", "lt;", "gt;", "quot;", "apos;", "#39;"];
        assert!(known.iter().any(|known| entity.starts_with(known)), "&{entity}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checker_finds_what_is_wrong() {
        assert_well_formed("<a b=\"c\"><d/>text &amp; more</a>");
        for wrong in [
            "<a>",
            "<a></b>",
            "<a></a><b></b>",
            "<a b=c></a>",
            "<a b=\"1\" b=\"2\"></a>",
            "<a>&x</a>",
            "<a>></a>",
            "<a>\u{1}</a>",
            "text",
            "<a b=\"&\"></a>",
        ] {
            let found = std::panic::catch_unwind(|| assert_well_formed(wrong));
            assert!(found.is_err(), "{wrong} is not well-formed");
        }
    }
}
