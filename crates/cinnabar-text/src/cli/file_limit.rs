//! The limit on the size of files (`ulimit -f`, `LimitFSIZE=`): beyond it a write is an error as others are.

/// Without it the signal SIGXFSZ would end the process, with no word of what it was about.
pub(super) fn make_it_an_error() {
    // SAFETY: no handler is installed, so there is no code that could run at a bad time.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    assert_ne!(before, libc::SIG_ERR, "SIGXFSZ can be ignored");
}
