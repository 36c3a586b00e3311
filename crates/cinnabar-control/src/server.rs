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
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::RecvFlags;
use std::future::{Future, Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections at a time, for each listener. One more waits in the kernel if it comes to the control socket, and is
/// closed if it comes to an address. No account or host has more than it leaves free. Pages that are kept live and
/// clients that listen to events leave half of them.
pub(crate) const CONNECTIONS_MAX: usize = 256;
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

/// Connections of an address that are looked at at a time; one more waits in the kernel.
const LOOKS_MAX: usize = 64;

/// Something that connections come from.
pub trait Listen: 'static {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// What is still to be done before it can be used, which may take time, and the peer whose it is. A
    /// connection gets its place behind that, and the listener bounds how many there are before.
    type Opening: Future<Output = io::Result<(Peer, Self::Stream)>> + Send + 'static;
    /// Whether all that come here are operators: descriptors are kept for them, and a connection waits in the
    /// kernel until there is a place for it. Of others it is not known before whether there is one for them.
    const OF_OPERATORS: bool = false;
    fn next(&self) -> impl Future<Output = io::Result<Self::Opening>>;
}

/// The control socket.
impl Listen for UnixListener {
    type Stream = UnixStream;
    type Opening = Ready<io::Result<(Peer, Self::Stream)>>;

    const OF_OPERATORS: bool = true;

    async fn next(&self) -> io::Result<Self::Opening> {
        self.accept().await.map(|(stream, _)| ready(Ok((Peer::Operator, stream))))
    }
}

/// An address of this host.
#[derive(Debug)]
pub struct AddressListener {
    listener: TcpListener,
    accounts: Accounts,
    looks: Arc<Semaphore>,
}

/// Looks for the peer of a connection.
pub(crate) type Looking = Pin<Box<dyn Future<Output = io::Result<(Peer, TcpStream)>> + Send>>;

impl AddressListener {
    /// Serves those that come to this listener.
    pub fn new(listener: TcpListener) -> Self {
        let looks = Arc::new(Semaphore::new(LOOKS_MAX));
        Self { listener, accounts: Accounts::new(), looks }
    }

    /// The next connection, and what finds its peer: that takes time, in which others are accepted.
    ///
    /// # Panics
    /// Never: the places are never closed.
    pub(crate) async fn accept(&self) -> io::Result<Looking> {
        let look = Arc::clone(&self.looks).acquire_owned().await;
        let look = look.expect("the places are never closed");
        let (stream, client) = self.listener.accept().await?;
        let accounts = self.accounts.clone();
        Ok(Box::pin(async move {
            let own = stream.local_addr()?;
            let peer = accounts.peer(own, client, || has_left(&stream)).await;
            drop(look);
            peer.map(|peer| (peer, stream)).ok_or_else(|| io::ErrorKind::ConnectionAborted.into())
        }))
    }
}

impl Listen for AddressListener {
    type Stream = TcpStream;
    type Opening = Looking;

    async fn next(&self) -> io::Result<Self::Opening> {
        self.accept().await
    }
}

/// Whether a client has hung up and asked for nothing. Of one that has asked, the server of HTTP finds that out.
fn has_left(stream: &TcpStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::empty())];
    let is_over = rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok()
        && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
    let look = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    is_over
        || match rustix::net::recv(stream, &mut [0; 1], look) {
            Ok((_, len)) => len == 0,
            Err(error) => error != rustix::io::Errno::AGAIN,
        }
}

/// What all connections of a listener have in common.
#[derive(Clone)]
struct Site {
    routes: Router,
    places: Arc<Places>,
    reserve: SharedReserve,
    life_max: Duration,
    /// When the log was told last of a client that has its part.
    warned: Arc<Mutex<Option<Instant>>>,
}

/// Serves `routes` until it is dropped. A connection ends whose client takes nothing of an answer for
/// half a minute, and none lives longer than `life_max`; what is sent without end prolongs its [`Life`].
pub async fn serve<L: Listen>(listener: L, routes: Router, life_max: Duration) {
    let site = Site {
        routes: routes.layer(from_fn(bounded_body)),
        places: Places::new(CONNECTIONS_MAX),
        reserve: SharedReserve::default(),
        life_max,
        warned: Arc::default(),
    };
    loop {
        let mut free = None;
        if L::OF_OPERATORS {
            site.reserve.fill();
            free = Some(site.places.wait().await);
        }
        let next = loop {
            match listener.next().await {
                Err(error) if site.reserve.helps(&error) => {}
                next => break next,
            }
        };
        match next {
            Ok(opening) => {
                tokio::spawn(site.clone().connection::<L>(opening, free));
            }
            Err(error) => {
                tracing::warn!("can't accept a control connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Site {
    /// Serves a connection to its end, if there is a place for it: this one, if it is not `None`.
    async fn connection<L: Listen>(self, opening: L::Opening, free: Option<OwnedSemaphorePermit>) {
        // The listener has said why, where that is worth it.
        let Ok((peer, stream)) = opening.await else { return };
        let place = match free {
            Some(free) => self.places.give(free, peer),
            None => self.places.take(peer),
        };
        let Some(place) = place else {
            self.warn_of(peer);
            return;
        };
        let life = Life::new(self.life_max, peer);
        let service = TowerToHyperService::new(self.routes.layer(Extension(life.clone())));
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
        // Its descriptor is free. The reserve takes it at once if it needs one, but a data thread that accepts a
        // guest may take it first: then the reserve is filled by the end of another connection.
        if L::OF_OPERATORS {
            self.reserve.fill();
        }
        drop(place);
    }

    /// Tells the log, now and then, that a client has its part of the connections.
    fn warn_of(&self, peer: Peer) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|last| last.elapsed() > WARN_EVERY) {
            *warned = Some(Instant::now());
            tracing::warn!(
                "connections of {peer} are refused: it has as many as it leaves free, or only \
                 those are free that are kept for operators"
            );
        }
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
