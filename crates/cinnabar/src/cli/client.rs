//! A client of the control API.

use cinnabar_control::api::{ErrorBody, ReadyBody};
use cinnabar_text::Failure;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;

/// Longest answer: 4096 volumes at 3 KiB each, with room.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Longest wait for an answer: a volume is opened and detached within it.
const ANSWER_WAIT_MAX: Duration = Duration::from_hours(2);
/// Between two questions whether the daemon serves.
const READY_STEP: Duration = Duration::from_millis(50);

/// What helps without the right to connect. It may be a folder above the socket that forbids it.
const NOT_ALLOWED: &str =
    "use the account that the daemon runs under, a member of socket_group in [control], or root";

/// Where the daemon is.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Daemon {
    /// The daemon's control socket
    #[arg(long, value_name = "PATH", env = "CINNABAR_SOCKET", default_value = "control.sock")]
    socket: PathBuf,
}

impl Daemon {
    /// Behind this socket.
    pub(super) const fn at(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Its control socket.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Fetches something.
    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.understand(&self.call(Method::GET, path, Vec::new())?)
    }

    /// Sends something and reads what comes back.
    pub(super) fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        self.understand(&self.call(method, path, encode(body)?)?)
    }

    /// Sends something that is answered by nothing.
    pub(super) fn post(&self, path: &str, body: &impl Serialize) -> Result<(), Failure> {
        self.call(Method::POST, path, encode(body)?).map(drop)
    }

    /// Deletes something.
    pub(super) fn delete(&self, path: &str) -> Result<(), Failure> {
        self.call(Method::DELETE, path, Vec::new()).map(drop)
    }

    /// Sends something whose answer goes on for a while: its body, piece by piece.
    pub(super) async fn stream(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Incoming, Failure> {
        let response = ask(&self.socket, Method::POST, path, encode(body)?).await?;
        let code = response.status();
        if code.is_success() {
            return Ok(response.into_body());
        }
        let answer = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        Err(refusal(code, &answer.map_err(|error| lost(&self.socket, &error))?.to_bytes()))
    }

    /// Deletes something, from within a runtime.
    pub(super) async fn delete_within(self, path: String) -> Result<(), Failure> {
        let (code, answer) = exchange(&self.socket, Method::DELETE, &path, Vec::new()).await?;
        if code.is_success() { Ok(()) } else { Err(refusal(code, &answer)) }
    }

    /// What the daemon says can't be understood.
    pub(super) fn gibberish(&self, what: &dyn std::fmt::Display) -> Failure {
        let message = format!("{} answers something else: {what}", self.socket.display());
        Failure::at_run_time(message, "is it a Cinnabar daemon of this version?")
    }

    /// Waits until the daemon serves. A socket that is not there yet is waited for, too.
    pub(super) fn wait(&self, wait_max: Duration) -> Result<(), Failure> {
        let begun = Instant::now();
        let runtime = runtime()?;
        let mut last = "it does not answer".to_owned();
        loop {
            let left = wait_max.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            let asked = exchange(&self.socket, Method::GET, "/v1/ready", Vec::new());
            match runtime.block_on(async { tokio::time::timeout(left, asked).await }) {
                Ok(Ok((code, _))) if code.is_success() => return Ok(()),
                Ok(Ok((_, answer))) => {
                    let body = serde_json::from_slice::<ReadyBody>(&answer);
                    last = format!("it is {}", body.map_err(|error| self.gibberish(&error))?.state);
                }
                // Waiting gives nobody a right.
                Ok(Err(failure)) if failure.hint == NOT_ALLOWED => return Err(failure),
                Ok(Err(failure)) => last = failure.message,
                Err(_) => {}
            }
            std::thread::sleep(READY_STEP.min(wait_max.saturating_sub(begun.elapsed())));
        }
        let (socket, seconds) = (self.socket.display(), wait_max.as_secs_f64());
        Err(Failure::at_run_time(
            format!("the daemon at {socket} does not serve after {seconds} s: {last}"),
            "the log of cinnabar serve says what it waits for; --wait=SECONDS waits longer",
        ))
    }

    fn understand<T: DeserializeOwned>(&self, answer: &[u8]) -> Result<T, Failure> {
        serde_json::from_slice(answer).map_err(|error| self.gibberish(&error))
    }

    fn call(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Bytes, Failure> {
        let runtime = runtime()?;
        let exchange = exchange(&self.socket, method, path, body);
        let (code, answer) = runtime
            .block_on(async { tokio::time::timeout(ANSWER_WAIT_MAX, exchange).await })
            .map_err(|_| {
                Failure::at_run_time("no answer from the daemon", "look at the daemon's log")
            })??;
        if code.is_success() { Ok(answer) } else { Err(refusal(code, &answer)) }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::at_run_time(format!("no runtime: {error}"), ""))
}

fn encode(body: &impl Serialize) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(body).map_err(|error| Failure::at_run_time(error.to_string(), ""))
}

async fn exchange(
    socket: &Path,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<(StatusCode, Bytes), Failure> {
    let response = ask(socket, method, path, body).await?;
    let code = response.status();
    let answer = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    Ok((code, answer.map_err(|error| lost(socket, &error))?.to_bytes()))
}

/// Sends a request; the answer's body is still to come.
async fn ask(
    socket: &Path,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<Response<Incoming>, Failure> {
    let broken = |error: &dyn std::fmt::Display| lost(socket, error);
    let stream = UnixStream::connect(socket).await.map_err(|error| no_daemon(socket, &error))?;
    let (mut sender, connection) =
        handshake(TokioIo::new(stream)).await.map_err(|error| broken(&error))?;
    // Its errors come out of `send_request` as well.
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| broken(&error))?;
    sender.send_request(request).await.map_err(|error| broken(&error))
}

/// The connection broke.
fn lost(socket: &Path, error: &dyn std::fmt::Display) -> Failure {
    let message = format!("lost the daemon at {}: {error}", socket.display());
    Failure::at_run_time(message, "look at the daemon's log")
}

fn no_daemon(socket: &Path, error: &std::io::Error) -> Failure {
    if error.kind() == ErrorKind::PermissionDenied {
        let message = format!("not allowed to use the control socket {}", socket.display());
        return Failure::at_run_time(message, NOT_ALLOWED);
    }
    let message = format!("no daemon at {}: {error}", socket.display());
    let hint = match error.kind() {
        ErrorKind::ConnectionRefused => "the daemon has ended; start it with cinnabar serve",
        _ => "name its control socket with --socket or CINNABAR_SOCKET",
    };
    Failure::at_run_time(message, hint)
}

/// What an error answer means: settings that can't be used are usage, the rest is run time.
fn refusal(code: StatusCode, answer: &[u8]) -> Failure {
    let body = serde_json::from_slice(answer).unwrap_or_else(|_| ErrorBody {
        error: format!("the daemon answers {code}"),
        hint: "is it a Cinnabar daemon of this version?".into(),
    });
    let of_usage = [StatusCode::BAD_REQUEST, StatusCode::UNPROCESSABLE_ENTITY].contains(&code);
    Failure { code: if of_usage { 2 } else { 1 }, message: body.error, hint: body.hint }
}
