//! Commands of the laboratory: `cinnabar analyze` runs `cinnabar-lab analyze`.
//!
//! The laboratory is a program of its own, so that the one that serves links no trace decoders, no
//! simulator and no benchmarks. It is found beside the running program, or else on PATH.

use cinnabar_text::Failure;
use rustix::fs::{Access, access};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The laboratory's program.
const NAME: &str = "cinnabar-lab";
/// How to get it.
pub(super) const HINT: &str = "packages of Cinnabar hold both programs; from source: \
    cargo install --locked --path crates/cinnabar-lab";

/// What stands behind a command's help.
macro_rules! help {
    ($example:literal) => {
        concat!(
            "This command is one of the laboratory, cinnabar-lab, which is run with the same arguments if it \
            is installed beside this program or on PATH; --help is its help.\n\n\
            Examples:\n  cinnabar ",
            $example,
            "\n  cinnabar-lab ",
            $example
        )
    };
}
pub(super) use help;

/// Whatever the laboratory is to do.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Arguments of the laboratory's command; --help lists them
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes the laboratory, with all arguments of this process; returns why it can't.
pub(super) fn run() -> Failure {
    // As they were given: a parser takes a leading `--` off.
    let given: Vec<OsString> = std::env::args_os().skip(1).collect();
    let Some(program) = find() else {
        let command: Vec<_> = given.iter().map(|word| word.to_string_lossy()).collect();
        let words = if command.first().is_some_and(|first| first == "trace") { 2 } else { 1 };
        let command = command[..words.min(command.len())].join(" ");
        return missing(&format!("cinnabar {command}"));
    };
    let error = Command::new(&program).args(given).exec();
    Failure::at_run_time(format!("can't run {}: {error}", program.display()), HINT)
}

/// What to say without the laboratory.
fn missing(command: &str) -> Failure {
    let message =
        format!("{command} needs the laboratory: no {NAME} is beside this program or on PATH");
    Failure::of_usage(message, HINT)
}

/// Where the laboratory is installed.
pub(super) fn find() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned()));
    search(beside, std::env::var_os("PATH").as_deref())
}

/// Looks beside the program, then on a path. What is relative on it is passed over: what root runs
/// must not depend on where it was started.
fn search(beside: Option<PathBuf>, path: Option<&OsStr>) -> Option<PathBuf> {
    let on_path = path.map(std::env::split_paths).into_iter().flatten();
    let folders = beside.into_iter().chain(on_path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(NAME)).find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    /// A folder with a program of that name in it.
    fn folder(mode: u32) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let program = folder.path().join(NAME);
        fs::write(&program, "#!/bin/sh\n").expect("a file");
        fs::set_permissions(&program, Permissions::from_mode(mode)).expect("it is ours");
        folder
    }

    #[test]
    fn beside_the_program_comes_before_path() {
        let (beside, on_path) = (folder(0o755), folder(0o755));
        let path = on_path.path().as_os_str();
        let found = search(Some(beside.path().to_owned()), Some(path));
        assert_eq!(found, Some(beside.path().join(NAME)));
        let nowhere = tempfile::tempdir().expect("a temporary folder");
        let found = search(Some(nowhere.path().to_owned()), Some(path));
        assert_eq!(found, Some(on_path.path().join(NAME)));
        assert_eq!(search(Some(nowhere.path().to_owned()), None), None);
    }

    #[test]
    fn what_can_not_be_run_is_passed_over() {
        let (plain, whole) = (folder(0o644), folder(0o755));
        let both = std::env::join_paths([plain.path(), whole.path()]).expect("two folders");
        assert_eq!(search(None, Some(&both)), Some(whole.path().join(NAME)));
        assert_eq!(search(None, Some(OsStr::new(".:"))), None, "from wherever it is started");
    }
}
