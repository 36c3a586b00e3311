//! Connections of HTTP over TLS.

use super::Control;
use super::peer::Peer;
use super::places::Places;
use super::server::{AddressListener, CONNECTIONS_MAX, Listen};
use cinnabar_config::HttpTls;
use cinnabar_frontend::nbd::TlsAccess;
use cinnabar_frontend::tls::{Clients, Tls, TlsStream};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// The log is told of handshakes that failed at most so often.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// Longest handshake: clients of this address are near, and have nothing to look up.
const HANDSHAKE_MAX: Duration = Duration::from_secs(3);

/// Handshakes at a time: more than there are connections could not be served. One of a client that has as many as
/// it leaves free is closed, so that others have their turn.
const OPENINGS_MAX: usize = CONNECTIONS_MAX;

/// Longest wait for the files of certificates that are read again.
const FILES_WAIT_MAX: Duration = Duration::from_secs(10);

/// Time for a client that is refused to take the end of the connection.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// An address whose clients use TLS.
#[derive(Debug)]
pub struct TlsListener {
    listener: AddressListener,
    rule: Arc<Rule>,
    openings: Arc<Places>,
}

/// Who may connect.
#[derive(Debug)]
struct Rule {
    tls: Arc<Tls>,
    clients: Clients,
    access: TlsAccess,
    warned: Mutex<Option<Instant>>,
}

impl Control {
    /// It has certificates.
    pub fn set_tls(&self, tls: Arc<Tls>) {
        let is_first = self.tls.set(tls).is_ok();
        debug_assert!(is_first, "there is one set of them");
    }

    /// Reads the certificates again, for connections from now on, if there are some. Returns why something of
    /// them is still what it was.
    pub(super) async fn reload_tls(&self) -> Option<String> {
        let tls = Arc::clone(self.tls.get()?);
        // The files may be on storage that hangs: no second thread is lost to that.
        let Ok(place) = Arc::clone(&self.tls_files).try_acquire_owned() else {
            return Some("the files in [tls] are still being read".to_owned());
        };
        let reading = tokio::task::spawn_blocking(move || {
            let done = tls.reload();
            drop(place);
            done
        });
        match timeout(FILES_WAIT_MAX, reading).await {
            Ok(Ok(Err(error))) => {
                Some(format!("{error}: TLS goes on with what it had before; {}", error.hint()))
            }
            Ok(Ok(Ok(()))) => None,
            Ok(Err(_)) => Some("reading the files in [tls] has failed".to_owned()),
            Err(_) => Some("the files in [tls] can't be read in time: they still are".to_owned()),
        }
    }
}

impl TlsListener {
    /// Serves those that come to this listener.
    pub fn new(listener: TcpListener, tls: Arc<Tls>, config: &HttpTls) -> Self {
        let clients = if config.clients_known { Clients::Known } else { Clients::Any };
        let access = TlsAccess { allow: config.allow.clone() };
        let rule = Arc::new(Rule { tls, clients, access, warned: Mutex::default() });
        let listener = AddressListener::new(listener);
        Self { listener, rule, openings: Places::new(OPENINGS_MAX) }
    }
}

impl Listen for TlsListener {
    type Stream = TlsStream<TcpStream>;
    type Opening = Pin<Box<dyn Future<Output = io::Result<(Peer, Self::Stream)>> + Send>>;

    async fn next(&self) -> io::Result<Self::Opening> {
        let looking = self.listener.accept().await?;
        let (rule, openings) = (Arc::clone(&self.rule), Arc::clone(&self.openings));
        Ok(Box::pin(async move {
            let (peer, stream) = looking.await?;
            let Some(opening) = openings.take(peer) else {
                let error = io::Error::other("too many handshakes are under way");
                rule.warn(peer, &error);
                return Err(error);
            };
            let opened = timeout(HANDSHAKE_MAX, rule.open(stream)).await;
            let opened = opened.unwrap_or_else(|_| {
                let message = format!("no handshake within {} s", HANDSHAKE_MAX.as_secs());
                Err(io::Error::new(io::ErrorKind::TimedOut, message))
            });
            drop(opening);
            if let Err(error) = &opened {
                rule.warn(peer, error);
            }
            opened.map(|stream| (peer, stream))
        }))
    }
}

impl Rule {
    async fn open(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let mut stream = self.tls.accept(self.clients, stream).await?;
        let names = Tls::names(stream.get_ref().1);
        if self.clients == Clients::Known && !self.access.allows(&names) {
            let _told = timeout(GOODBYE_MAX, stream.shutdown()).await;
            let message = format!("none of its names is in http_tls_allow: {}", names.join(", "));
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        Ok(stream)
    }

    fn warn(&self, peer: Peer, error: &io::Error) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|last| last.elapsed() > WARN_EVERY) {
            *warned = Some(Instant::now());
            tracing::warn!(%peer, "TLS client of the HTTP address refused: {error}");
        }
    }
}
