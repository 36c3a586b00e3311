//! A client of the control API. How long it waits is in [`patience`](super::patience).

use super::connection::{ANSWER_BYTES_MAX, NOT_ALLOWED, ask, exchange, lost};
use super::patience::{Patience, silence};
use cinnabar_control::api::{ErrorBody, ReadyBody};
use cinnabar_text::Failure;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;

/// Between two questions whether the daemon serves.
const READY_STEP: Duration = Duration::from_millis(50);

/// Where the daemon is.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Daemon {
    /// The daemon's control socket
    #[arg(long, value_name = "PATH", env = "CINNABAR_SOCKET", default_value = "control.sock")]
    socket: PathBuf,
    #[command(flatten)]
    patience: Patience,
}

impl Daemon {
    /// Behind this socket, with the same patience.
    pub(super) fn elsewhere(&self, socket: PathBuf) -> Self {
        Self { socket, ..self.clone() }
    }

    /// Whether one listens there.
    pub(super) fn is_there(&self) -> bool {
        let connect = async { UnixStream::connect(&self.socket).await.map(drop) };
        match runtime().map(|runtime| runtime.block_on(connect)) {
            Ok(Ok(())) => true,
            // Its queue of connections is full.
            Ok(Err(error)) => error.kind() == ErrorKind::WouldBlock,
            Err(_) => false,
        }
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
        let body = encode(body)?;
        let begun = async {
            let response = ask(&self.socket, Method::POST, path, body).await?;
            let code = response.status();
            if code.is_success() {
                return Ok(response.into_body());
            }
            let answer = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            Err(refusal(code, &answer.map_err(|error| lost(&self.socket, &error))?.to_bytes()))
        };
        self.patience.begin(&self.socket, begun).await
    }

    /// Deletes something, from within a runtime.
    pub(super) async fn delete_within(self, path: String) -> Result<(), Failure> {
        let (code, answer) = exchange(&self.socket, Method::DELETE, &path, Vec::new()).await?;
        if code.is_success() { Ok(()) } else { Err(refusal(code, &answer)) }
    }

    /// Ends when the daemon shows no sign of life any more; says so.
    pub(super) async fn silence(&self) -> Failure {
        silence(&self.socket).await
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
        let changes = method != Method::GET;
        let exchange = exchange(&self.socket, method, path, body);
        let answered = self.patience.answer(&self.socket, changes, exchange);
        let (code, answer) = runtime()?.block_on(answered)?;
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

/// What an error answer means: settings that can't be used are usage, the rest is run time.
fn refusal(code: StatusCode, answer: &[u8]) -> Failure {
    let body = serde_json::from_slice(answer).unwrap_or_else(|_| ErrorBody {
        error: format!("the daemon answers {code}"),
        hint: "is it a Cinnabar daemon of this version?".into(),
    });
    let of_usage = [StatusCode::BAD_REQUEST, StatusCode::UNPROCESSABLE_ENTITY].contains(&code);
    Failure { code: if of_usage { 2 } else { 1 }, message: body.error, hint: body.hint }
}
