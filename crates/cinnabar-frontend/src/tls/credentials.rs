//! The daemon's certificate and whom it takes, as TLS needs them; read again when the files change.

use crate::tls::HANDSHAKE_MAX;
use crate::tls::certificate::Certificate;
use crate::tls::files::{Files, TlsError};
use crate::tls::loading::{Looked, Served};
use rustls::{ServerConfig, ServerConnection};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Time for a client that is refused to read why.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// Whether clients must show who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// They need no certificate.
    Any,
    /// They need one of the authority in `client_ca`.
    Known,
    /// The same, and TLS 1.3: their connections last, and that of TLS 1.2 can't change keys.
    OfVolumes,
}

/// See the module. One for the whole daemon.
#[derive(Debug)]
pub struct Tls {
    shared: Arc<Shared>,
    knows_clients: bool,
}

#[derive(Debug)]
struct Shared {
    /// Held while files are read, which may take any time. Connections never wait for it.
    looked: Mutex<Looked>,
    /// Held only to take or to put what is in it.
    served: Mutex<Served>,
}

impl Tls {
    /// Reads the files, and looks for changes of them from now on. A certificate that is not valid at this
    /// time is only warned of: volumes without TLS are served anyway, and another certificate may come.
    ///
    /// # Errors
    /// What can't be used.
    pub fn load(files: Files) -> Result<Self, TlsError> {
        let knows_clients = files.client_ca.is_some();
        let looked = Looked::new(files)?;
        let served = Mutex::new(looked.served()?);
        let shared = Arc::new(Shared { looked: Mutex::new(looked), served });
        let looks = Arc::downgrade(&shared);
        let thread = std::thread::Builder::new().name("tls-files".into());
        thread.spawn(move || look_at(&looks)).map_err(TlsError::Thread)?;
        Ok(Self { shared, knows_clients })
    }

    /// Reads the files again, whether they have changed or not, for connections from now on. The certificate
    /// with its key, and the authority of clients, are each what they were if they can't be used. Waits for
    /// the files.
    ///
    /// # Errors
    /// Why something is still what it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.shared.look(true)
    }

    /// The names that a client has proved to be its own.
    pub fn names(connection: &ServerConnection) -> Vec<String> {
        let first = connection.peer_certificates().and_then(|all| all.first());
        let read = first.and_then(|certificate| Certificate::read(certificate));
        read.map(|certificate| certificate.names).unwrap_or_default()
    }

    /// Whether there is an authority of clients, so that they can be known.
    pub fn knows_clients(&self) -> bool {
        self.knows_clients
    }

    /// Makes a client's connection one of TLS.
    ///
    /// # Errors
    /// The handshake failed or took longer than [`HANDSHAKE_MAX`].
    pub async fn accept<S>(&self, clients: Clients, stream: S) -> std::io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.config(clients).ok_or(std::io::ErrorKind::Unsupported)?;
        let accept = TlsAcceptor::from(config).accept(stream).into_fallible();
        match timeout(HANDSHAKE_MAX, accept).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err((error, stream))) => {
                let _gone = timeout(LINGER_MAX, linger(stream)).await;
                Err(error)
            }
            Err(_) => {
                let message = format!("no handshake within {} s", HANDSHAKE_MAX.as_secs());
                Err(std::io::Error::new(std::io::ErrorKind::TimedOut, message))
            }
        }
    }

    /// What a connection is served with that comes now. `None`: no client can be known.
    fn config(&self, clients: Clients) -> Option<Arc<ServerConfig>> {
        let served = self.shared.served.lock().unwrap_or_else(PoisonError::into_inner);
        match clients {
            Clients::Any => Some(Arc::clone(&served.any)),
            Clients::Known => served.known.clone(),
            Clients::OfVolumes => served.volumes.clone(),
        }
    }
}

impl Shared {
    fn look(&self, must: bool) -> Result<(), TlsError> {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken, result) = looked.again(must);
        if taken {
            let new = looked.served()?;
            *self.served.lock().unwrap_or_else(PoisonError::into_inner) = new;
            tracing::info!("TLS certificates were read again");
        }
        result
    }
}

/// Looks at the files for as long as [`Tls`] lives.
fn look_at(shared: &Weak<Shared>) {
    loop {
        std::thread::sleep(LOOK_EVERY);
        let Some(shared) = shared.upgrade() else { return };
        // The log has what went wrong.
        let _told = shared.look(false);
    }
}

/// Reads until the client closes: a socket that is closed with unread bytes in it would tear the alert away
/// that says why it was refused.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let mut buffer = [0; 4096];
    let _told = stream.shutdown().await;
    while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
}
