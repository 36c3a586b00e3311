//! Ends TLS for NBD clients, on threads of its own.
//!
//! Each thread carries the connections that it was given from their handshake to their end. A data thread
//! only puts a client into a queue.

use crate::nbd::{Handover, StartTls, TlsSession};
use crate::tls::HANDSHAKE_MAX;
use crate::tls::credentials::{Clients, Tls};
use crate::tls::pump::{BUFFER_BYTES, Client, pump};
use crate::tls::sessions::{SESSIONS_MAX, Session, Sessions};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// See the module.
#[derive(Debug)]
pub struct Terminator {
    threads: Vec<mpsc::Sender<Job>>,
    next: AtomicUsize,
    sessions: Arc<Sessions>,
}

/// A client, and what it counts for.
#[derive(Debug)]
struct Job {
    client: Handover,
    session: Session,
}

impl Terminator {
    /// Starts so many threads, at least one.
    ///
    /// # Errors
    /// The system's, if there is no room for a thread.
    pub fn start(tls: &Arc<Tls>, threads: usize) -> io::Result<Arc<Self>> {
        let start = |thread| start_thread(thread, Arc::clone(tls));
        Ok(Arc::new(Self {
            threads: (0..threads.max(1)).map(start).collect::<io::Result<_>>()?,
            next: AtomicUsize::new(0),
            sessions: Arc::default(),
        }))
    }

    /// Waits until all sessions have ended, but no longer than this: their last bytes are on their way when
    /// the server has closed them. Handshakes have nothing to wait for. False if some have not ended.
    pub fn finish(&self, wait_max: Duration) -> bool {
        self.sessions.finish(wait_max)
    }
}

fn start_thread(number: usize, tls: Arc<Tls>) -> io::Result<mpsc::Sender<Job>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // More can't wait: each is a session.
    let (sender, jobs) = mpsc::channel(SESSIONS_MAX);
    let thread = std::thread::Builder::new().name(format!("tls-{number}"));
    thread.spawn(move || runtime.block_on(serve(jobs, tls)))?;
    Ok(sender)
}

impl StartTls for Terminator {
    fn start(&self, client: Handover) -> bool {
        let Some(session) = self.sessions.begin(&client.peer) else { return false };
        let thread = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len();
        self.threads[thread].try_send(Job { client, session }).is_ok()
    }
}

async fn serve(mut jobs: mpsc::Receiver<Job>, tls: Arc<Tls>) {
    while let Some(job) = jobs.recv().await {
        let tls = Arc::clone(&tls);
        tokio::spawn(async move {
            let Job { client, mut session } = job;
            let Handover { client: socket, plain, peer, prelude, session: told } = client;
            let plain = std::os::unix::net::UnixStream::from(plain);
            let Ok(mut plain) = UnixStream::from_std(plain) else { return };
            let carried = Carried { socket: socket.into(), prelude, told: &told };
            if let Err(error) = carried.run(&mut plain, &tls, &mut session).await {
                tracing::debug!(peer, "TLS connection ended: {error}");
                told.failed(error.to_string());
            }
            // The server sees the end when it was told why.
            drop((plain, session));
        });
    }
}

/// A client on its thread.
struct Carried<'a> {
    socket: std::net::TcpStream,
    prelude: Vec<u8>,
    told: &'a TlsSession,
}

impl Carried<'_> {
    async fn run(self, plain: &mut UnixStream, tls: &Tls, session: &mut Session) -> io::Result<()> {
        // Of the same socket, which TLS has for itself.
        let watched = self.socket.try_clone()?;
        let opened = open(self.socket, &self.prelude, tls, session);
        let late = || {
            let message = format!("no handshake within {} s", HANDSHAKE_MAX.as_secs());
            io::Error::new(io::ErrorKind::TimedOut, message)
        };
        // A moment more than the handshake itself, which says more of why.
        let opened = timeout(HANDSHAKE_MAX + Duration::from_secs(1), opened).await;
        let client = opened.map_err(|_| late())??;
        session.established();
        self.told.established(Tls::names(client.get_ref().1));
        pump(client, &watched, plain).await
    }
}

/// From plain text to TLS, when it is this client's turn.
async fn open(
    socket: std::net::TcpStream,
    prelude: &[u8],
    tls: &Tls,
    session: &Session,
) -> io::Result<Client> {
    let mut socket = TcpStream::from_std(socket)?;
    socket.write_all(prelude).await?;
    let _turn = session.turn().await;
    // Records come in few reads: TLS itself asks for 4 KiB at a time.
    let socket = BufReader::with_capacity(BUFFER_BYTES, socket);
    tls.accept(Clients::OfVolumes, socket).await
}
