//! The views, and what several of them say.

pub(crate) mod backends;
pub(crate) mod events;
pub(crate) mod overview;
pub(crate) mod recovery;
pub(crate) mod shares;
pub(crate) mod ssd;
pub(crate) mod volume;
mod volume_parts;
pub(crate) mod what_if;

use crate::data::{Data, Trouble};
use crate::html::{el, escaped, in_url, name, wrap};

pub(crate) fn link_to(data: &Data, volume: &str) -> String {
    let href = escaped(&format!("/ui/volumes/{}?{}", in_url(volume), data.range.query()));
    wrap(&format!("a href=\"{href}\""), &name(volume))
}

pub(crate) fn trouble(trouble: &Trouble) -> String {
    let hint = if trouble.hint.is_empty() {
        String::new()
    } else {
        el("span class=\"hint\"", &format!(" {}", trouble.hint))
    };
    wrap("p class=\"note\"", &(escaped(&trouble.message) + &hint))
}

/// A link that shows all rows, where only the first are there.
pub(crate) fn all_rows(data: &Data, path: &str, shown: usize, of: usize) -> String {
    if shown >= of {
        return String::new();
    }
    let href = escaped(&format!("{path}?{}&rows=all", data.range.query()));
    let link = format!("<a href=\"{href}\" class=\"all-rows\">show all {of}</a>");
    wrap("p", &format!("The first {shown} of {of}: {link}"))
}
