//! The daemon's certificate and whom it takes, as TLS needs them; read again when the files change.

use crate::HANDSHAKE_MAX;
use crate::certificate::Certificate;
use crate::files::{Files, Stamp, TlsError, certificates, content, key};
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The files are looked at for a new connection, at most so often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time for a client that is refused to read why.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// Whether clients must show who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// They need no certificate.
    Any,
    /// They need one of the authority in `client_ca`.
    Known,
}

/// See the module. One for the whole daemon.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    stamps: [Option<Stamp>; 3],
    looked: Instant,
    loaded: Loaded,
}

/// What new connections are served with.
#[derive(Clone, Debug)]
struct Loaded {
    any: Arc<ServerConfig>,
    known: Option<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads the files. A certificate that is not valid at this time is only warned of: volumes without TLS
    /// are served anyway, and another certificate may come.
    ///
    /// # Errors
    /// What can't be used.
    pub fn load(files: Files) -> Result<Self, TlsError> {
        let stamps = files.stamps();
        let (loaded, time) = load(&files)?;
        if let Err(error) = time {
            tracing::warn!("{error}: TLS clients will refuse it; {}", error.hint());
        }
        Ok(Self { files, state: Mutex::new(State { stamps, looked: Instant::now(), loaded }) })
    }

    /// Reads the files again, whether they have changed or not, for connections from now on. What can't be
    /// used, or is not valid now, changes nothing.
    ///
    /// # Errors
    /// Why it is still what it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.stamps = self.files.stamps();
        let (loaded, time) = load(&self.files)?;
        time?;
        state.loaded = loaded;
        Ok(())
    }

    /// The names that a client has proved to be its own.
    pub fn names(connection: &ServerConnection) -> Vec<String> {
        let first = connection.peer_certificates().and_then(|all| all.first());
        let read = first.and_then(|certificate| Certificate::read(certificate));
        read.map(|certificate| certificate.names).unwrap_or_default()
    }

    /// Whether there is an authority of clients, so that they can be known.
    pub fn knows_clients(&self) -> bool {
        self.files.client_ca.is_some()
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
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.elapsed() >= LOOK_EVERY {
            state.looked = Instant::now();
            let stamps = self.files.stamps();
            if stamps != state.stamps {
                state.stamps = stamps;
                self.follow(&mut state);
            }
        }
        match clients {
            Clients::Any => Some(Arc::clone(&state.loaded.any)),
            Clients::Known => state.loaded.known.clone(),
        }
    }

    /// Some file is another one.
    fn follow(&self, state: &mut State) {
        match load(&self.files).and_then(|(loaded, time)| time.map(|()| loaded)) {
            Ok(loaded) => {
                state.loaded = loaded;
                tracing::info!("TLS certificates were read again");
            }
            // Two files are not replaced at once: a key that does not fit is followed by one that does.
            Err(error) => {
                let hint = error.hint();
                tracing::warn!("{error}: TLS goes on with the certificate before it; {hint}");
            }
        }
    }
}

/// Reads until the client closes: a socket that is closed with unread bytes in it would tear the alert away
/// that says why it was refused.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let mut buffer = [0; 4096];
    let _told = stream.shutdown().await;
    while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
}

/// Reads the files; what is wrong with the time of the certificate apart.
fn load(files: &Files) -> Result<(Loaded, Result<(), TlsError>), TlsError> {
    let provider = Arc::new(ring::default_provider());
    let chain = certificates(&files.certificate)?;
    let own = chain.first().and_then(|own| Certificate::read(own));
    let own = own.ok_or_else(|| content(&files.certificate, &"it is no certificate of X.509"))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = own.check_time(now.as_secs().cast_signed());
    let time = time.map_err(|why| TlsError::Time { path: files.certificate.clone(), why });
    let key = key(&files.key)?;

    let config = |roots: Option<RootCertStore>| -> Result<Arc<ServerConfig>, TlsError> {
        let builder = builder(&provider).map_err(|error| content(&files.certificate, &error))?;
        let builder = match (roots, &files.client_ca) {
            (Some(roots), Some(path)) => {
                let made = WebPkiClientVerifier::builder_with_provider(
                    Arc::new(roots),
                    Arc::clone(&provider),
                );
                let verifier = made.build().map_err(|error| content(path, &error))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config = builder
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(|error| content(&files.key, &error))?;
        // Each connection proves who it is: a client that has lost its right must not resume.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    };
    let known = match &files.client_ca {
        None => None,
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| content(path, &error))?;
            }
            Some(config(Some(roots))?)
        }
    };
    Ok((Loaded { any: config(None)?, known }, time))
}

type Builder = rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier>;

/// TLS 1.2 and 1.3.
fn builder(provider: &Arc<CryptoProvider>) -> Result<Builder, rustls::Error> {
    ServerConfig::builder_with_provider(Arc::clone(provider)).with_safe_default_protocol_versions()
}
