//! Recorded traces for benchmarks: the project's own in the tree, those of others in the folder that
//! `CINNABAR_TRACES` names.

use crate::shell::root;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

/// The variable that names a folder of published traces; a relative one counts from the workspace's root.
pub(crate) const VARIABLE: &str = "CINNABAR_TRACES";
/// The project's own recordings, seen from the root.
const TREE: &str = "crates/cinnabar-trace/data";

/// A trace by its name: in `folder` if the caller names one, else in the tree or where the variable
/// points to.
///
/// # Errors
/// When it is not there; says how to name its folder.
pub(crate) fn find(name: &str, folder: Option<&Path>) -> Result<PathBuf> {
    find_in(name, &folders(folder, std::env::var_os(VARIABLE).map(PathBuf::from)))
}

fn folders(named: Option<&Path>, variable: Option<PathBuf>) -> Vec<PathBuf> {
    match named {
        Some(folder) => vec![folder.to_owned()],
        None => [Some(root().join(TREE)), variable.map(|folder| root().join(folder))]
            .into_iter()
            .flatten()
            .collect(),
    }
}

fn find_in(name: &str, folders: &[PathBuf]) -> Result<PathBuf> {
    let file = format!("{name}.canon.csv.zst");
    if let Some(path) = folders.iter().map(|folder| folder.join(&file)).find(|path| path.exists()) {
        return Ok(path);
    }
    let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
    bail!(
        "no trace {file} in {}\nhint: --traces FOLDER or {VARIABLE}=FOLDER names the folder of traces \
         that are not in the tree",
        folders.join(" nor in ")
    )
}

/// Those of `names` that are there, with their files; says which ones are not.
pub(crate) fn find_some(names: &[&str], folder: Option<&Path>) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    let mut missing = None;
    for name in names {
        match find(name, folder) {
            Ok(path) => found.push(((*name).to_owned(), path)),
            Err(error) => {
                eprintln!("skipped: {name}: {error}");
                missing = Some(error);
            }
        }
    }
    match missing {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::{find_in, folders};
    use std::path::{Path, PathBuf};

    #[test]
    fn own_recordings_are_in_the_tree() {
        for name in ["self_loop4", "self_loop4_first100k"] {
            find_in(name, &folders(None, None)).expect("in the tree");
        }
    }

    #[test]
    fn a_missing_trace_is_one_line_and_a_hint() {
        let error = find_in("cp_vscsi", &folders(None, Some(PathBuf::from("/nowhere"))));
        let text = error.expect_err("it is not there").to_string();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("/nowhere") && text.contains("\nhint: "), "{text}");
        assert_eq!(folders(Some(Path::new("a")), Some(PathBuf::from("b"))), [PathBuf::from("a")]);
    }
}
