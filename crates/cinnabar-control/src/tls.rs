//! Connections of HTTP over TLS.

use super::Control;
use super::server::Listen;
use cinnabar_config::HttpTls;
use cinnabar_frontend::nbd::TlsAccess;
use cinnabar_tls::{Clients, Tls, TlsStream};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The log is told of handshakes that failed at most so often.
const WARN_EVERY: Duration = Duration::from_secs(1);

/// Longest handshake: clients of this address are near, and have nothing to look up.
const HANDSHAKE_MAX: Duration = Duration::from_secs(3);

/// Handshakes at a time; one more waits in the kernel.
const OPENINGS_MAX: usize = 64;
/// Those of one address; one more is closed, so that others have their turn.
const OPENINGS_OF_ONE_MAX: usize = 16;

/// Longest wait for the files of certificates that are read again.
const FILES_WAIT_MAX: Duration = Duration::from_secs(10);

/// Time for a client that is refused to take the end of the connection.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// An address whose clients use TLS.
#[derive(Debug)]
pub struct TlsListener {
    listener: TcpListener,
    rule: Arc<Rule>,
    openings: Arc<Openings>,
}

/// Handshakes that are under way.
#[derive(Debug)]
struct Openings {
    places: Arc<Semaphore>,
    of_each: Mutex<BTreeMap<IpAddr, usize>>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
struct Opening {
    openings: Arc<Openings>,
    peer: IpAddr,
    _place: OwnedSemaphorePermit,
}

impl Openings {
    /// One more of this address, if it may.
    fn begin(self: &Arc<Self>, peer: IpAddr, place: OwnedSemaphorePermit) -> Option<Opening> {
        let peer = peer.to_canonical();
        let mut of_each = self.of_each.lock().unwrap_or_else(PoisonError::into_inner);
        let count = of_each.entry(peer).or_default();
        if *count >= OPENINGS_OF_ONE_MAX {
            return None;
        }
        *count += 1;
        drop(of_each);
        Some(Opening { openings: Arc::clone(self), peer, _place: place })
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut of_each = self.openings.of_each.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = of_each.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                of_each.remove(&self.peer);
            }
        }
    }
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
        let places = Arc::new(Semaphore::new(OPENINGS_MAX));
        Self { listener, rule, openings: Arc::new(Openings { places, of_each: Mutex::default() }) }
    }
}

impl Listen for TlsListener {
    type Stream = TlsStream<TcpStream>;
    type Opening = Pin<Box<dyn Future<Output = io::Result<Self::Stream>> + Send>>;

    const AT_ONCE: bool = false;

    async fn next(&self) -> io::Result<Self::Opening> {
        loop {
            let place = Arc::clone(&self.openings.places).acquire_owned().await;
            let place = place.map_err(io::Error::other)?;
            let (stream, peer) = self.listener.accept().await?;
            let rule = Arc::clone(&self.rule);
            let Some(opening) = self.openings.begin(peer.ip(), place) else {
                rule.warn(peer, &io::Error::other("too many handshakes of its address"));
                continue;
            };
            return Ok(Box::pin(async move {
                let opened = timeout(HANDSHAKE_MAX, rule.open(stream)).await;
                let opened = opened.unwrap_or_else(|_| {
                    let message = format!("no handshake within {} s", HANDSHAKE_MAX.as_secs());
                    Err(io::Error::new(io::ErrorKind::TimedOut, message))
                });
                drop(opening);
                if let Err(error) = &opened {
                    rule.warn(peer, error);
                }
                opened
            }));
        }
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

    fn warn(&self, peer: SocketAddr, error: &io::Error) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.is_none_or(|last| last.elapsed() > WARN_EVERY) {
            *warned = Some(Instant::now());
            tracing::warn!(%peer, "TLS client of the HTTP address refused: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_a_share_of_the_handshakes() {
        let places = Arc::new(Semaphore::new(OPENINGS_MAX));
        let openings =
            Arc::new(Openings { places: Arc::clone(&places), of_each: Mutex::default() });
        let begin = |peer: &str| {
            let place = Arc::clone(&places).try_acquire_owned().expect("a place is free");
            openings.begin(peer.parse().expect("an address"), place)
        };
        let mut held: Vec<_> = (0..OPENINGS_OF_ONE_MAX).map_while(|_| begin("10.0.0.1")).collect();
        assert_eq!(held.len(), OPENINGS_OF_ONE_MAX);
        assert!(begin("10.0.0.1").is_none());
        assert!(begin("::ffff:10.0.0.1").is_none(), "the same host");
        held.push(begin("10.0.0.2").expect("another has its own share"));
        held.remove(0);
        held.push(begin("10.0.0.1").expect("one of its handshakes is over"));
        drop(held);
        assert_eq!(places.available_permits(), OPENINGS_MAX);
        assert!(openings.of_each.lock().expect("no panic").is_empty());
    }
}
