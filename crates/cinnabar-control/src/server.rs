//! A small HTTP server with bounds on everything: connections, headers, bodies, time.

use super::accounts::Accounts;
use super::api::ErrorBody;
use super::life::Life;
use super::peer::Peer;
use super::places::Places;
use super::reserve::SharedReserve;
use super::stall::Watched;
pub use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Json, Response};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::{Future, Ready, ready};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Connections at a time, for each listener; one more waits in the kernel. No account or host has more
/// than it leaves free. Pages that are kept live and clients that listen to events leave half of them.
const CONNECTIONS_MAX: usize = 256;
/// The log is told of clients that have their part of the connections at most so often.
const WARN_EVERY: Duration = Duration::from_mins(1);
/// Longest body; a volume's settings are below 10 KiB.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Longest body that is still read before it is refused.
const IGNORED_BYTES_MAX: usize = 1 << 20;
/// Longest headers.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Time for the headers of a request, also between two requests, and for its body.
const READ_WAIT_MAX: Duration = Duration::from_secs(10);
/// Pause after a failure to accept (out of descriptors), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Something that connections come from.
pub trait Listen {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// What is still to be done before it can be used, which may take time.
    type Opening: Future<Output = io::Result<Self::Stream>> + Send + 'static;
    /// Whether it can be used when it comes: then it waits in the kernel until there is a place for it. One
    /// that is still to be opened gets its place behind that, and the listener bounds how many there are.
    const AT_ONCE: bool = true;
    /// Whether operators come here: descriptors are kept for them.
    const OF_OPERATORS: bool = false;
    /// The next one, and whose it is.
    fn next(&self) -> impl Future<Output = io::Result<(Peer, Self::Opening)>>;
}

/// The control socket.
impl Listen for UnixListener {
    type Stream = UnixStream;
    type Opening = Ready<io::Result<Self::Stream>>;

    const OF_OPERATORS: bool = true;

    async fn next(&self) -> io::Result<(Peer, Self::Opening)> {
        self.accept().await.map(|(stream, _)| (Peer::Operator, ready(Ok(stream))))
    }
}

/// An address of this host.
#[derive(Debug)]
pub struct AddressListener {
    listener: TcpListener,
    accounts: Accounts,
}

impl AddressListener {
    /// Serves those that come to this listener.
    pub fn new(listener: TcpListener) -> Self {
        Self { listener, accounts: Accounts::default() }
    }

    /// The next connection, and whose it is.
    pub(crate) async fn accept(&self) -> io::Result<(Peer, TcpStream)> {
        let (stream, client) = self.listener.accept().await?;
        let own = stream.local_addr()?;
        Ok((self.accounts.peer(own, client).await, stream))
    }
}

impl Listen for AddressListener {
    type Stream = TcpStream;
    type Opening = Ready<io::Result<Self::Stream>>;
    async fn next(&self) -> io::Result<(Peer, Self::Opening)> {
        self.accept().await.map(|(peer, stream)| (peer, ready(Ok(stream))))
    }
}

/// Serves `routes` until it is dropped. A connection ends whose client takes nothing of an answer for some
/// seconds, and none lives longer than `life_max`; what is sent without end prolongs its [`Life`].
pub async fn serve<L: Listen>(listener: L, routes: Router, life_max: Duration) {
    let routes = routes.layer(from_fn(bounded_body));
    let places = Places::new(CONNECTIONS_MAX);
    let (mut warned, reserve) = (None, SharedReserve::default());
    loop {
        if L::OF_OPERATORS {
            reserve.fill();
        }
        let mut free = None;
        if L::AT_ONCE {
            free = Some(places.wait().await);
        }
        let next = loop {
            match listener.next().await {
                Err(error) if reserve.helps(&error) => {}
                next => break next,
            }
        };
        let (peer, opening) = match next {
            Ok(next) => next,
            Err(error) => {
                tracing::warn!("can't accept a control connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let place = match free.map(|free| places.give(free, peer)) {
            Some(None) => {
                warn_of(peer, &mut warned);
                continue;
            }
            place => place.flatten(),
        };
        let life = Life::new(life_max, peer);
        let (places, reserve) = (Arc::clone(&places), reserve.clone());
        let service = TowerToHyperService::new(routes.clone().layer(Extension(life.clone())));
        tokio::spawn(async move {
            // The listener has said why, where that is worth it.
            let Ok(stream) = opening.await else { return };
            let Some(place) = place.or_else(|| places.take(peer)) else {
                tracing::debug!("control connection closed: there are too many");
                return;
            };
            let stream = Watched::new(stream, life.clone());
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(READ_WAIT_MAX)
                .max_buf_size(HEADER_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), service);
            match life.live(connection).await {
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::debug!("control connection: {error}"),
                None => tracing::debug!("control connection closed: it took too long"),
            }
            // Its descriptor goes back before anybody else gets hold of it.
            if L::OF_OPERATORS {
                reserve.fill();
            }
            drop(place);
        });
    }
}

/// Tells the log, now and then, that a client has its part of the connections.
fn warn_of(peer: Peer, warned: &mut Option<Instant>) {
    if warned.is_none_or(|last| last.elapsed() > WARN_EVERY) {
        *warned = Some(Instant::now());
        tracing::warn!("connections of {peer} are refused: it has as many as it leaves free");
    }
}

/// Reads the whole body before a handler runs, so that none of them has to bound it.
async fn bounded_body(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match tokio::time::timeout(READ_WAIT_MAX, read(body)).await {
        Ok(Ok(Some(body))) => next.run(Request::from_parts(parts, Body::from(body))).await,
        Ok(Ok(None)) => refused(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("the body has more than {BODY_BYTES_MAX} bytes"),
        ),
        Ok(Err(error)) => {
            refused(StatusCode::BAD_REQUEST, &format!("the body can't be read: {error}"))
        }
        Err(_) => refused(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"),
    }
}

/// The body, or `None` if it is too long. Some of what is too much is read and forgotten: a
/// connection closed before the client has finished would take the answer with it.
async fn read(mut body: Body) -> Result<Option<Vec<u8>>, axum::Error> {
    let (mut bytes, mut len) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        len += data.len();
        if len <= BODY_BYTES_MAX {
            bytes.extend_from_slice(&data);
        } else if len > IGNORED_BYTES_MAX {
            break;
        }
    }
    Ok((len <= BODY_BYTES_MAX).then_some(bytes))
}

fn refused(code: StatusCode, error: &str) -> Response {
    let hint = "send one small JSON object".to_owned();
    (code, Json(ErrorBody { error: error.to_owned(), hint })).into_response()
}

#[cfg(test)]
mod tests;
