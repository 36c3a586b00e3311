//! A check for tests: the parts of the guide's pages that are made from the code.

use std::path::Path;

/// Set to 1, it has the tests write what they would compare.
const WRITE: &str = "CINNABAR_WRITE_DOCS";

/// Compares the part `name` of `docs/guide/PAGE` with `text`. It stands between `<!-- generated: NAME -->`
/// and `<!-- end -->`. `manifest_dir` is `CARGO_MANIFEST_DIR` of the test's crate.
///
/// # Panics
/// If they differ, with the command that writes the part; if the page has no such part.
pub fn assert_generated(manifest_dir: &str, page: &str, name: &str, text: &str) {
    let folder = Path::new(manifest_dir);
    let path = folder.join("../../docs/guide").join(page);
    let old = std::fs::read_to_string(&path).expect("the page is in the guide");
    let new = with_part(&old, name, text).unwrap_or_else(|| panic!("{page} has no part {name}"));
    if new == old {
        return;
    }
    if std::env::var_os(WRITE).is_some_and(|value| value == "1") {
        return std::fs::write(&path, new).expect("the page can be written");
    }
    let line = old.lines().zip(new.lines()).find(|(old, new)| old != new);
    let package = folder.file_name().unwrap_or_default().to_string_lossy();
    panic!(
        "docs/guide/{page} is not what the code says, from {line:?} on; \
         {WRITE}=1 cargo test -p {package} generated writes it"
    );
}

/// The page with another part of that name; `None` if it has none.
fn with_part(page: &str, name: &str, text: &str) -> Option<String> {
    let (before, rest) = page.split_once(&format!("<!-- generated: {name} -->\n"))?;
    let (_, after) = rest.split_once("<!-- end -->")?;
    Some(format!("{before}<!-- generated: {name} -->\n{}\n<!-- end -->{after}", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_changed_and_nothing_else() {
        let page =
            "a\n<!-- generated: x -->\nold\n<!-- end -->\nb\n<!-- generated: y -->\n<!-- end -->";
        let new = with_part(page, "x", "new\n").expect("it is there");
        assert_eq!(new, page.replace("old", "new"));
        assert_eq!(with_part(&new, "x", "new"), Some(new.clone()), "the same again");
        let two = with_part(page, "y", "c").expect("it is there");
        assert!(two.ends_with("b\n<!-- generated: y -->\nc\n<!-- end -->"), "{two}");
        assert_eq!(with_part(page, "z", "new"), None);
    }
}
