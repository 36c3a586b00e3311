//! Ends TLS for NBD clients, on threads of its own.
//!
//! Each thread carries the connections that it was given from their handshake to their end. A data thread
//! only puts a client into a queue.

use crate::HANDSHAKE_MAX;
use crate::credentials::{Clients, Tls};
use crate::pump::{BUFFER_BYTES, pump};
use cinnabar_frontend::nbd::{Handover, StartTls};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

/// Handshakes under way, of all threads; one more is refused. Each takes some 1 ms of a processor, and memory
/// until its client has shown who it is.
const HANDSHAKES_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Terminator {
    threads: Vec<mpsc::Sender<Job>>,
    next: AtomicUsize,
    handshakes: Arc<Semaphore>,
    sessions: Arc<Sessions>,
}

/// A client, and what it counts for.
#[derive(Debug)]
struct Job {
    client: Handover,
    handshake: OwnedSemaphorePermit,
    session: Session,
}

/// How many connections there are.
#[derive(Debug, Default)]
struct Sessions {
    count: Mutex<usize>,
    ended: Condvar,
}

/// One of them, until it is dropped.
#[derive(Debug)]
struct Session(Arc<Sessions>);

impl Session {
    fn new(sessions: &Arc<Sessions>) -> Self {
        *sessions.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self(Arc::clone(sessions))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.ended.notify_all();
    }
}

impl Terminator {
    /// Starts so many threads, at least one.
    ///
    /// # Errors
    /// The system's, if there is no room for a thread.
    pub fn start(tls: &Arc<Tls>, threads: usize) -> io::Result<Arc<Self>> {
        let threads = (0..threads.max(1)).map(|thread| start_thread(thread, Arc::clone(tls)));
        Ok(Arc::new(Self {
            threads: threads.collect::<io::Result<_>>()?,
            next: AtomicUsize::new(0),
            handshakes: Arc::new(Semaphore::new(HANDSHAKES_MAX)),
            sessions: Arc::default(),
        }))
    }

    /// Waits until all connections have ended, but no longer than this: their last bytes are on their way
    /// when the server has closed them. False if some have not.
    pub fn finish(&self, wait_max: Duration) -> bool {
        let count = self.sessions.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.sessions.ended.wait_timeout_while(count, wait_max, |count| *count > 0);
        waited.is_ok_and(|(count, _)| *count == 0)
    }
}

fn start_thread(number: usize, tls: Arc<Tls>) -> io::Result<mpsc::Sender<Job>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // More can't wait: each holds a handshake.
    let (sender, jobs) = mpsc::channel(HANDSHAKES_MAX);
    let thread = std::thread::Builder::new().name(format!("tls-{number}"));
    thread.spawn(move || runtime.block_on(serve(jobs, tls)))?;
    Ok(sender)
}

impl StartTls for Terminator {
    fn start(&self, client: Handover) -> bool {
        let Ok(handshake) = Arc::clone(&self.handshakes).try_acquire_owned() else { return false };
        let thread = self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len();
        let session = Session::new(&self.sessions);
        self.threads[thread].try_send(Job { client, handshake, session }).is_ok()
    }
}

async fn serve(mut jobs: mpsc::Receiver<Job>, tls: Arc<Tls>) {
    while let Some(job) = jobs.recv().await {
        let tls = Arc::clone(&tls);
        tokio::spawn(async move {
            let Job { client, handshake, session } = job;
            let told = Arc::clone(&client.session);
            let plain = std::os::unix::net::UnixStream::from(client.plain);
            // The server sees the end when it was told why: both ends are closed behind that.
            let Ok(held) = plain.try_clone() else { return };
            let socket = std::net::TcpStream::from(client.client);
            let carried = Carried { socket, plain, prelude: client.prelude, peer: client.peer };
            if let Err(error) = carried.run(&tls, handshake, &told).await {
                told.failed(error.to_string());
            }
            drop((held, session));
        });
    }
}

/// A client on its thread.
struct Carried {
    socket: std::net::TcpStream,
    plain: std::os::unix::net::UnixStream,
    prelude: Vec<u8>,
    peer: String,
}

impl Carried {
    async fn run(
        self,
        tls: &Tls,
        handshake: OwnedSemaphorePermit,
        told: &cinnabar_frontend::nbd::TlsSession,
    ) -> io::Result<()> {
        let Self { socket, plain, prelude, peer } = self;
        let mut socket = TcpStream::from_std(socket)?;
        let plain = UnixStream::from_std(plain)?;
        let late = || io::Error::new(io::ErrorKind::TimedOut, "it takes nothing");
        timeout(HANDSHAKE_MAX, socket.write_all(&prelude)).await.map_err(|_| late())??;
        // Records come in few reads: TLS itself asks for 4 KiB at a time.
        let socket = BufReader::with_capacity(BUFFER_BYTES, socket);
        let client = tls.accept(Clients::OfVolumes, socket).await?;
        drop(handshake);
        told.established(Tls::names(client.get_ref().1));
        let ended = pump(client, plain).await;
        if let Err(error) = &ended {
            tracing::debug!(peer, "TLS connection ended: {error}");
        }
        ended
    }
}
