//! The laboratory's program: everything is in the library, so that tests can reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    cinnabar_lab::cli::main()
}
