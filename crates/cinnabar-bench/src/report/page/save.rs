//! Writing a page to a file, all of it or nothing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Why a page could not be written; nothing was changed then.
#[derive(Debug, thiserror::Error)]
#[error("can't write the report {}", path.display())]
pub struct PageError {
    /// Where it was to go.
    pub path: PathBuf,
    /// What went wrong.
    pub source: io::Error,
}

impl PageError {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self.source.kind() {
            io::ErrorKind::NotFound => "does the folder exist? it is not made",
            io::ErrorKind::PermissionDenied => "may you write to that folder?",
            io::ErrorKind::IsADirectory => "name a file in it: report.html",
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "the disk is full",
            _ => "name another file",
        }
    }
}

/// Writes text to a file, which is the old one or the new one at any time, even after a crash. What
/// is no file (`/dev/stdout`, a pipe) is written to as it is.
///
/// # Errors
/// Names the path if it can't be written; it is then as it was.
pub fn save(path: &Path, text: &str) -> Result<(), PageError> {
    let failed = |source| PageError { path: path.to_owned(), source };
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(failed(io::ErrorKind::IsADirectory.into())),
        // Through links, so that a link stays one.
        Ok(metadata) if metadata.is_file() => {
            fs::canonicalize(path).and_then(|path| replace(&path, text)).map_err(failed)
        }
        Ok(_) => fs::write(path, text).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            replace(path, text).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // Made here, not by `tempfile`, which makes files for one user only and puts a name that means
    // nothing to anybody into its errors.
    let mut new = tempfile::Builder::new()
        .prefix(".report-")
        .make_in(folder.unwrap_or(Path::new(".")), |path| File::create_new(path))?;
    new.as_file_mut().write_all(text.as_bytes())?;
    new.as_file().sync_all()?;
    new.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("it is there");
        entries
            .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn a_page_replaces_the_one_before() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("report.html");
        save(&path, "old").expect("there is room");
        let old = File::open(&path).expect("it is there");
        save(&path, "new").expect("there is room");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "new");
        let read = io::read_to_string(old).expect("an open file stays readable");
        assert_eq!(read, "old", "replaced, not written over");
        assert_eq!(names(folder.path()), ["report.html"]);
        let plain = folder.path().join("plain");
        fs::write(&plain, "").expect("there is room");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode();
        assert_eq!(mode(&path), mode(&plain), "readable by whom any new file is");
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        save(&file, "old").expect("there is room");
        std::os::unix::fs::symlink(&file, &link).expect("links can be made");
        save(&link, "new").expect("there is room");
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "new");
    }

    #[test]
    fn a_failure_names_the_path_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("missing/report.html");
        let error = save(&path, "text").expect_err("there is no folder");
        assert_eq!(error.to_string(), format!("can't write the report {}", path.display()));
        assert_eq!(error.source.raw_os_error(), Some(2), "{}", error.source);
        assert!(error.hint().contains("folder"));
        let error = save(folder.path(), "text").expect_err("it is a folder");
        assert_eq!(error.source.kind(), io::ErrorKind::IsADirectory);
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        save(Path::new("/dev/null"), "text").expect("it takes everything");
        let kind = fs::metadata("/dev/null").expect("it is there").file_type();
        assert!(kind.is_char_device());
    }
}
