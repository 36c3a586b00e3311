//! Files and texts that are too long, or none.

use super::*;

#[test]
fn a_text_is_as_long_as_a_file_may_be_at_most() {
    let text = "#".repeat((4 << 20) + 1);
    let error = of_text(Path::new("/c.toml"), &text).expect_err("it is too long");
    assert!(error.message.contains("more than 4.0 MiB"), "{error}");
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("a pipe");
    for path in [&*pipe, dir.path()] {
        let error = load_again(path).expect_err("it is no file");
        assert!(error.message.contains("is not a regular file"), "{error}");
    }
}
