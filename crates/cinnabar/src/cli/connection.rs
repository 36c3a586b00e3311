//! One question to the control API, over a connection of its own.

use cinnabar_text::Failure;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::handshake;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::io::ErrorKind;
use std::path::Path;
use tokio::net::UnixStream;

/// Longest answer: 4096 volumes at 3 KiB each, with room.
pub(super) const ANSWER_BYTES_MAX: usize = 64 << 20;
/// What helps without the right to connect. It may be a folder above the socket that forbids it.
pub(super) const NOT_ALLOWED: &str =
    "use the account that the daemon runs under, a member of socket_group in [control], or root";

/// One question, and its whole answer.
pub(super) async fn exchange(
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
pub(super) async fn ask(
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
pub(super) fn lost(socket: &Path, error: &dyn std::fmt::Display) -> Failure {
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
        ErrorKind::WouldBlock => {
            "it takes no more connections: stopped, stuck or overloaded; see its log"
        }
        _ => "name its control socket with --socket or CINNABAR_SOCKET",
    };
    Failure::at_run_time(message, hint)
}
