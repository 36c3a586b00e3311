//! The program as it is called. It takes a test of this kind for cargo to build the program along with
//! all tests, which use it as a client.

use std::process::Command;

#[test]
fn a_socket_that_is_not_there_is_an_error() {
    let mut loadgen = Command::new(env!("CARGO_BIN_EXE_loadgen"));
    let done = loadgen.args(["--socket", "/nonexistent/socket"]).output().expect("it is built");
    assert!(!done.status.success() && !done.stderr.is_empty(), "{done:?}");
}
