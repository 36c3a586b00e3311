//! Connections of HTTP over TLS.

use super::Control;
use super::server::Listen;
use cinnabar_config::HttpTls;
use cinnabar_frontend::nbd::TlsAccess;
use cinnabar_tls::{Clients, Tls, TlsError, TlsStream};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// The log is told of handshakes that failed at most so often.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// Time for a client that is refused to take the end of the connection.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// An address whose clients use TLS.
#[derive(Debug)]
pub struct TlsListener {
    listener: TcpListener,
    rule: Arc<Rule>,
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

    /// Reads the certificates again, for connections from now on; false if there are none. What can't be used
    /// changes nothing. The files may be on storage that hangs: not for a thread that serves others.
    ///
    /// # Errors
    /// Why it is still what it was.
    pub fn reload_tls(&self) -> Result<bool, TlsError> {
        let Some(tls) = self.tls.get() else { return Ok(false) };
        tls.reload().map(|()| true)
    }
}

impl TlsListener {
    /// Serves those that come to this listener.
    pub fn new(listener: TcpListener, tls: Arc<Tls>, config: &HttpTls) -> Self {
        let clients = if config.clients_known { Clients::Known } else { Clients::Any };
        let access = TlsAccess { allow: config.allow.clone() };
        Self { listener, rule: Arc::new(Rule { tls, clients, access, warned: Mutex::default() }) }
    }
}

impl Listen for TlsListener {
    type Stream = TlsStream<TcpStream>;
    type Opening = Pin<Box<dyn Future<Output = io::Result<Self::Stream>> + Send>>;

    async fn next(&self) -> io::Result<Self::Opening> {
        let (stream, peer) = self.listener.accept().await?;
        let rule = Arc::clone(&self.rule);
        Ok(Box::pin(async move {
            let opened = rule.open(stream).await;
            if let Err(error) = &opened {
                rule.warn(peer, error);
            }
            opened
        }))
    }
}

impl Rule {
    async fn open(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let mut stream = self.tls.accept(self.clients, stream).await?;
        let names = Tls::names(stream.get_ref().1);
        if self.clients == Clients::Known && !self.access.allows(&names) {
            let _told = tokio::time::timeout(GOODBYE_MAX, stream.shutdown()).await;
            let message = format!("none of its names is in http_tls_allow: {}", names.join(", "));
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        Ok(stream)
    }

    fn warn(&self, peer: SocketAddr, error: &io::Error) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|last| last.elapsed() > WARN_EVERY) {
            *warned = Some(Instant::now());
            tracing::warn!(%peer, "TLS client of the HTTP address refused: {error}");
        }
    }
}
