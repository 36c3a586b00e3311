//! Starts cargo and other programs in the workspace's root, shows what they print, keeps what counts.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

/// How a test says that it can't run here; the reason follows.
const SKIPPED: &str = "skipped: ";

/// The workspace's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// The pinned cargo with these arguments, in the root.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// The nightly cargo with these arguments, in the root.
pub(crate) fn nightly(args: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo"]).args(args).current_dir(root());
    // Else the pinned toolchain that started us would leak into what nightly starts.
    for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(variable);
    }
    command
}

/// Whether `command` can be started and succeeds, with its output thrown away.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs `command`, shows what it prints, and returns the reasons of the tests it skipped.
pub(crate) fn show(command: &mut Command) -> Result<Vec<String>> {
    println!("$ {}", words(command));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", words(command)))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let errors = thread::spawn(move || stderr.map_or_else(Vec::new, |pipe| pass(pipe, false)));
    let mut skipped = stdout.map_or_else(Vec::new, |pipe| pass(pipe, true));
    skipped.extend(errors.join().unwrap_or_default());
    let status = child.wait()?;
    if !status.success() {
        bail!("`{}` failed ({status})", words(command));
    }
    Ok(skipped)
}

/// Passes lines on and keeps those that tell of something skipped.
fn pass(pipe: impl Read, to_stdout: bool) -> Vec<String> {
    let mut skipped = Vec::new();
    for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        // A reader that went away is no reason to fail the checks.
        let _ = if to_stdout {
            writeln!(std::io::stdout(), "{line}")
        } else {
            writeln!(std::io::stderr(), "{line}")
        };
        skipped.extend(reason(&line));
    }
    skipped
}

/// The reasons of the tests that were skipped, in what tests have printed.
pub(crate) fn skipped(text: &str) -> Vec<String> {
    text.lines().filter_map(reason).collect()
}

fn reason(line: &str) -> Option<String> {
    line.trim_start().strip_prefix(SKIPPED).map(ToOwned::to_owned)
}

/// The command as one would type it.
pub(crate) fn words(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let mut words = vec![program.to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::{SKIPPED, skipped};

    #[test]
    fn reasons_of_skipped_tests_are_found() {
        let text = format!("running 2 tests\n  {SKIPPED}no kernel\ntest a ... ok\n");
        assert_eq!(skipped(&text), ["no kernel"]);
    }
}
