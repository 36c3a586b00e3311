//! How long a command waits for the daemon.
//!
//! What is only looked at is answered at once. A change may take long, as long as the back ends that it
//! waits for; meanwhile the daemon is asked whether it lives, so that a command waits for work, but not
//! for a daemon that is stopped or stuck.

use super::connection::exchange;
use cinnabar_control::api::ReadyBody;
use cinnabar_text::Failure;
use hyper::Method;
use std::future::Future;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Longest wait for the answer to a question. The daemon itself gives up on a data thread after 10 s.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(15);
/// Longest wait for a change whose daemon lives: a volume is flushed and detached within it.
const CHANGE_WAIT_MAX: Duration = Duration::from_hours(24);
/// Between two questions whether the daemon lives.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// Longest wait for a sign of life: all its connections may be taken for a while.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// See the module.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Patience {
    /// Longest wait for the daemon's answer [default: 15 for what is only shown; a change may take as
    /// long as it needs while the daemon lives]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, hide_default_value = true)]
    timeout: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("0.1 to 86400 seconds are possible".to_owned()),
    }
}

impl Patience {
    /// Waits for a whole answer of the daemon behind this socket.
    pub(super) async fn answer<T>(
        self,
        socket: &Path,
        changes: bool,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let default = if changes { CHANGE_WAIT_MAX } else { ANSWER_WAIT_MAX };
        let wait_max = self.timeout.unwrap_or(default);
        tokio::select! {
            answer = answer => answer,
            () = sleep(wait_max) => Err(no_answer(socket, wait_max, changes)),
            silent = silence(socket), if changes => Err(silent),
        }
    }

    /// Waits until an answer begins that may go on for long.
    pub(super) async fn begin<T>(
        self,
        socket: &Path,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let wait_max = self.timeout.unwrap_or(ANSWER_WAIT_MAX);
        let answer = timeout(wait_max, answer).await;
        answer.unwrap_or_else(|_| Err(no_answer(socket, wait_max, false)))
    }
}

/// Ends when the daemon behind this socket shows no sign of life any more; says so. One that is gone is
/// told by the connection that waits for its answer.
pub(super) async fn silence(socket: &Path) -> Failure {
    let mut last_sign = Instant::now();
    loop {
        sleep(PROBE_EVERY).await;
        let asked = exchange(socket, Method::GET, "/v1/ready", Vec::new());
        if let Ok(Ok((_, answer))) = timeout(SILENCE_MAX, asked).await {
            last_sign = Instant::now();
            let ready = serde_json::from_slice::<ReadyBody>(&answer);
            if ready.is_ok_and(|ready| ready.state == "stuck") {
                let message = format!("the daemon at {} is stuck", socket.display());
                return Failure::at_run_time(message, "its log says which thread");
            }
        } else if last_sign.elapsed() >= SILENCE_MAX {
            return no_answer(socket, SILENCE_MAX, true);
        }
    }
}

fn no_answer(socket: &Path, wait_max: Duration, changes: bool) -> Failure {
    let (socket, seconds) = (socket.display(), wait_max.as_secs_f64());
    let done = if changes { "; it may still be done" } else { "" };
    Failure::at_run_time(
        format!("no answer of the daemon at {socket} within {seconds} s{done}"),
        "it may be stopped, stuck or overloaded: see its log; --timeout=SECONDS waits longer",
    )
}

#[cfg(test)]
mod tests {
    use super::{SILENCE_MAX, silence};
    use std::os::unix::net::UnixListener;
    use tokio::net::UnixStream;
    use tokio::time::timeout;

    /// Connections come in and are not answered, as of a process that is stopped; after some, none comes in.
    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_is_stopped_is_silent_whether_it_takes_connections_or_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        rustix::net::listen(&listener, 1).expect("it listens already");
        let mut queued = Vec::new();
        for is_full in [false, true] {
            while is_full && let Ok(connection) = UnixStream::connect(&path).await {
                queued.push(connection);
            }
            let silent = timeout(SILENCE_MAX * 3, silence(&path)).await.expect("it gives up");
            assert!(silent.message.starts_with("no answer of the daemon"), "{silent:?}");
        }
    }
}
