//! A program from its arguments to its exit code.

use super::{failure, file_limit, logging, output, panics};
use crate::Failure;
use clap::{Command, CommandFactory, Parser};
use clap_complete::Shell;
use std::io::Write;
use std::process::ExitCode;

/// Reads the arguments that the process was started with, runs what they ask for, and prints how
/// that failed.
pub fn main<P: Parser + CommandFactory>(run: impl FnOnce(P) -> Result<(), Failure>) -> ExitCode {
    panics::abort_on_panic();
    file_limit::make_it_an_error();
    output::fit_terminal();
    match P::try_parse() {
        Ok(asked) => ended(run(asked)),
        Err(error) => usage(&error, P::command().get_name()),
    }
}

/// Prints a shell's completions of a program.
///
/// # Errors
/// As [`output::bytes`].
pub fn completions(shell: Shell, mut program: Command) -> Result<(), Failure> {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, name, &mut script);
    output::bytes(&script)
}

/// Prints the version of a program, and that of the format of cache devices.
///
/// # Errors
/// As [`output::bytes`].
pub fn version(program: &Command, format: u32, json: bool) -> Result<(), Failure> {
    let (name, version) = (program.get_name(), program.get_version().unwrap_or_default());
    if json {
        return output::json(&serde_json::json!({ "version": version, "format_version": format }));
    }
    output::text(&format!("{name} {version} (cache format {format})\n"))
}

fn ended(done: Result<(), Failure>) -> ExitCode {
    let code = match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !logging::tells(&failure) {
                failure::print(&failure);
            }
            ExitCode::from(failure.code)
        }
    };
    logging::flush(logging::END_WAIT_MAX);
    code
}

/// Prints what clap has to say: help to stdout, complaints to stderr with a hint as the last line.
fn usage(error: &clap::Error, program: &str) -> ExitCode {
    if !error.use_stderr() {
        // A reader that has gone away is no reason to complain.
        let _gone = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render();
    let text =
        if output::colour(&std::io::stderr()) { text.ansi().to_string() } else { text.to_string() };
    let (complaint, more) = match text.find("\nFor more information") {
        Some(at) => {
            (&text[..at], format!("{program} help lists the commands; --help after one, its flags"))
        }
        None => (text.as_str(), "choose one of these commands".to_owned()),
    };
    let mut stderr = std::io::stderr().lock();
    let _gone = writeln!(stderr, "{}\nhint: {more}", complaint.trim_end());
    ExitCode::from(2)
}
