//! Pieces of HTML: all text that is not the page's own goes through [`escaped`].

pub(crate) use cinnabar_text::chart::escaped;
use std::fmt::Write;

/// Characters of a name that are shown; the rest is in its title.
const NAME_CHARS: usize = 40;

/// An element with text in it; `tag` is its name and its attributes.
pub(crate) fn el(tag: &str, text: &str) -> String {
    wrap(tag, &escaped(text))
}

/// An element with HTML in it.
pub(crate) fn wrap(tag: &str, inner: &str) -> String {
    let name = tag.split(' ').next().unwrap_or(tag);
    format!("<{tag}>{inner}</{name}>")
}

/// A name that others chose: cut, isolated, and whole in its title if it was cut.
pub(crate) fn name(text: &str) -> String {
    let shown = short(text);
    if shown == text {
        return wrap("bdi", &escaped(&shown));
    }
    wrap(&format!("bdi title=\"{}\"", escaped(&plain(text))), &escaped(&shown))
}

/// The same of a path or an address: its end tells it from others, so that it is cut in the middle.
pub(crate) fn both_ends(text: &str) -> String {
    let plain = plain(text);
    let count = plain.chars().count();
    if count <= NAME_CHARS {
        return name(text);
    }
    let half = NAME_CHARS / 2;
    let begin = plain.chars().take(half - 1).chain(['\u{2026}']);
    let shown: String = begin.chain(plain.chars().skip(count - half)).collect();
    wrap(&format!("bdi title=\"{}\"", escaped(&plain)), &escaped(&shown))
}

/// A name without what can't be seen, cut to what a label has room for; not yet escaped.
pub(crate) fn short(text: &str) -> String {
    let plain = plain(text);
    if plain.chars().count() <= NAME_CHARS {
        return plain;
    }
    plain.chars().take(NAME_CHARS - 1).chain(['\u{2026}']).collect()
}

/// Without marks that can't be seen and change how others are read.
fn plain(text: &str) -> String {
    let is_mark = |c: char| {
        matches!(c, '\u{200B}'..='\u{200F}' | '\u{061C}' | '\u{FEFF}' | '\u{2060}' | '\u{00AD}')
    };
    let shown = cinnabar_text::chart::visible_text(text);
    shown.chars().map(|c| if is_mark(c) { '\u{FFFD}' } else { c }).collect()
}

/// A name as one segment of a path or one value of a query (RFC 3986, section 2.1).
pub(crate) fn in_url(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").expect("a string takes everything");
        }
    }
    text
}

/// A table of cells that are HTML already; the first cell of a row is its heading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grid {
    id: String,
    caption: String,
    /// Names, and whether they are of numbers.
    columns: Vec<(String, bool)>,
    rows: Vec<(String, Vec<String>)>,
}

impl Grid {
    pub(crate) fn new(id: &str, caption: &str, columns: &[(&str, bool)]) -> Self {
        let columns = columns.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect();
        Self { id: id.to_owned(), caption: caption.to_owned(), columns, rows: Vec::new() }
    }

    /// One more row.
    pub(crate) fn row(&mut self, cells: impl Into<Vec<String>>) {
        self.rows.push((String::new(), cells.into()));
    }

    /// One more row with attributes of its own, which begin with a blank.
    pub(crate) fn row_with(&mut self, attributes: String, cells: Vec<String>) {
        self.rows.push((attributes, cells));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn html(&self) -> String {
        let class = |column: usize| {
            if self.columns.get(column).is_some_and(|(_, number)| *number) {
                " class=\"number\""
            } else {
                ""
            }
        };
        let label = escaped(&self.caption);
        let mut html = format!(
            "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{label}\">\
             <table id=\"{}\">\n<caption>{label}</caption>\n<thead><tr>",
            self.id
        );
        for (column, (name, _)) in self.columns.iter().enumerate() {
            html += &el(&format!("th scope=\"col\"{}", class(column)), name);
        }
        html += "</tr></thead>\n<tbody>\n";
        for (attributes, cells) in &self.rows {
            html += "<tr";
            html += attributes;
            html.push('>');
            for (column, cell) in cells.iter().enumerate() {
                let tag = if column == 0 { "th scope=\"row\"" } else { "td" };
                html += &wrap(&format!("{tag}{}", class(column)), cell);
            }
            html += "</tr>\n";
        }
        html + "</tbody></table></div>\n"
    }
}

/// A list of facts: name and HTML.
pub(crate) fn pairs(id: &str, rows: &[(&str, String)]) -> String {
    let mut html = format!("<dl class=\"facts\" id=\"{id}\">\n");
    for (name, value) in rows {
        html += &wrap("div", &(el("dt", name) + &wrap("dd", value)));
        html.push('\n');
    }
    html + "</dl>\n"
}

pub(crate) fn section(id: &str, heading: &str, inner: &str) -> String {
    format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-h\"><h2 id=\"{id}-h\">{}</h2>\n{inner}</section>\n",
        escaped(heading)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_harmless() {
        assert_eq!(name("vm1"), "<bdi>vm1</bdi>");
        let hostile = "<script>alert(1)</script>\u{202E}\u{200F}";
        let shown = name(hostile);
        assert!(!shown.contains("<script") && !shown.contains('\u{202E}'), "{shown}");
        assert!(!shown.contains('\u{200F}'), "{shown}");
        let long = "x".repeat(64);
        let shown = name(&long);
        assert!(shown.contains('\u{2026}') && shown.contains(&format!("title=\"{long}\"")));
        let shown = both_ends(&format!("sim:filer,{}:file:/a/vm7.raw", "x".repeat(64)));
        assert!(shown.contains(">sim:filer,") && shown.contains("/vm7.raw<"), "{shown}");
        assert_eq!(in_url("a b/\u{fc}"), "a%20b%2F%C3%BC");
    }
}
