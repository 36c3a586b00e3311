//! Signals that mean nothing to a daemon, and would end it all the same: a `postrotate` line that fits
//! another daemon, a limit of the CPU time, a timer of who started it. They are told in the log, and ignored.
//!
//! Those of the program's own mistakes, SIGQUIT and SIGKILL do what they always do.

use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// By name, as numbers differ among architectures.
const STRAY: [(&str, i32); 9] = [
    ("SIGUSR1", libc::SIGUSR1),
    ("SIGUSR2", libc::SIGUSR2),
    ("SIGALRM", libc::SIGALRM),
    ("SIGVTALRM", libc::SIGVTALRM),
    ("SIGPROF", libc::SIGPROF),
    ("SIGIO", libc::SIGIO),
    ("SIGPWR", libc::SIGPWR),
    ("SIGSTKFLT", libc::SIGSTKFLT),
    ("SIGXCPU", libc::SIGXCPU),
];
/// The same signal is told so often at most.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Ignores them, for the rest of the process. Within a runtime, which tells of them.
///
/// # Errors
/// What the system says.
pub(crate) fn ignore() -> std::io::Result<()> {
    let named = STRAY.map(|(name, number)| (name.to_owned(), number));
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    let numbered = real_time.map(|number| (format!("signal {number}"), number));
    for (name, number) in named.into_iter().chain(numbered) {
        let mut came = signal(SignalKind::from_raw(number))?;
        tokio::spawn(async move {
            while came.recv().await.is_some() {
                tracing::warn!("{name} means nothing here, and is ignored");
                tokio::time::sleep(TELL_EVERY).await;
            }
        });
    }
    Ok(())
}
