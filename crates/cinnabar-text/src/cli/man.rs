//! `man`: a program's manual pages, made of the same text as its help.

use super::output;
use crate::Failure;
use std::path::{Path, PathBuf};

/// Where to write them.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder, which exists; pages of the same names are replaced
    folder: PathBuf,
}

/// Runs it, for this program.
///
/// # Errors
/// One of usage if the folder is none, else what the system says of a page.
pub fn run(args: &Args, program: clap::Command) -> Result<(), Failure> {
    if !args.folder.is_dir() {
        let message = format!("{} is not a folder", args.folder.display());
        return Err(Failure::of_usage(message, "create the folder first"));
    }
    // Else each command's page would hold `help`, which is a page of its own for nothing.
    let mut command = program.disable_help_subcommand(true);
    command.build();
    let count = write(&command, &args.folder)?;
    output::text(&format!("{count} pages in {}\n", args.folder.display()))
}

/// Writes the page of a command and of all below it; how many that were.
fn write(command: &clap::Command, folder: &Path) -> Result<usize, Failure> {
    let cannot = |error: std::io::Error| {
        let message = format!("the pages can't be written to {}: {error}", folder.display());
        Failure::at_run_time(message, "is there room, and are you allowed to write there?")
    };
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text).map_err(cannot)?;
    std::fs::write(folder.join(page.get_filename()), text).map_err(cannot)?;
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    below.map(|command| write(command, folder)).try_fold(1, |sum, count| Ok(sum + count?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let program = || {
            let add = clap::Command::new("add").about("Adds").after_help("Examples: none");
            clap::Command::new("prog").subcommand(clap::Command::new("volume").subcommand(add))
        };
        run(&Args { folder: folder.path().to_owned() }, program()).expect("they can be written");
        let read = |name: &str| {
            std::fs::read_to_string(folder.path().join(name))
                .unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        assert!(read("prog.1").contains("prog\\-volume(1)"), "{}", read("prog.1"));
        assert!(read("prog-volume-add.1").contains("Examples: none"));
        let none = folder.path().join("none");
        assert_eq!(run(&Args { folder: none }, program()).expect_err("no such folder").code, 2);
    }
}
