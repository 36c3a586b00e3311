//! Plain text on one side, TLS on the other: both ways until one side ends.
//!
//! An end counts only as TLS has it: a socket that is closed without TLS's good-bye, by the client or on the way,
//! is a failure, and the server learns that.

use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::os::fd::AsFd;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf};
use tokio::net::{TcpStream, UnixStream, unix};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::server::TlsStream;

/// Bytes on their way, of each direction of a connection. Beside them TLS keeps a record, 64 KiB at most, and
/// the kernel what its sockets hold.
pub(crate) const BUFFER_BYTES: usize = 128 << 10;
/// A client that takes nothing for so long is given up. The server's own bound is the same.
const STALL_MAX: Duration = Duration::from_mins(1);
/// From when the server has closed the connection: time for a client to take what is still on its way to it.
const ENDING_MAX: Duration = Duration::from_secs(5);
/// Time for a client to take the last bytes: a socket that is closed with unread bytes in it would tear them
/// away.
const LINGER_MAX: Duration = Duration::from_secs(2);
/// How often one side that waits for the other looks whether that one is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A client's side.
pub(crate) type Client = TlsStream<BufReader<TcpStream>>;

/// Carries bytes until one side has ended. `socket` is the client's, to see whether it is there.
///
/// # Errors
/// The client's side ended otherwise than TLS says, or failed.
pub(crate) async fn pump(
    client: Client,
    socket: &impl AsFd,
    plain: &mut UnixStream,
) -> io::Result<()> {
    let (mut from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = plain.split();
    let ended = {
        let mut inbound = pin!(inbound(&mut from_client, socket, to_server));
        let mut outbound = pin!(outbound(from_server, to_client));
        tokio::select! {
            biased;
            // The server has ended: what the client still says is not for it.
            ended = &mut outbound => ended,
            ended = &mut inbound => {
                ended?;
                // The client has said its last word; what it asked for before is still answered.
                outbound.as_mut().await
            }
        }
    };
    ended?;
    let _gone = timeout(LINGER_MAX, discard(&mut from_client)).await;
    Ok(())
}

/// From the client to the server. An error is the client's.
async fn inbound<R: AsyncRead + Unpin>(
    from: &mut R,
    socket: &impl AsFd,
    mut to: unix::WriteHalf<'_>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        // A connection that was cut fails here; only an end that was said is one.
        let read = from.read(&mut buffer).await?;
        let mut pass = pin!(async {
            match read {
                0 => to.shutdown().await,
                _ => to.write_all(&buffer[..read]).await,
            }
        });
        // The server may take its time: that is how it slows clients down. A client that is gone by then is
        // seen here alone.
        let passed = loop {
            match timeout(LOOK_EVERY, &mut pass).await {
                Ok(passed) => break passed,
                Err(_) if has_hung_up(socket) => return Err(io::ErrorKind::ConnectionReset.into()),
                Err(_) => {}
            }
        };
        // When the server has closed its end, the other direction still has its last words.
        if read == 0 || passed.is_err() {
            return Ok(());
        }
    }
}

/// From the server to the client. An error is the client's, here too.
async fn outbound<W: AsyncWrite + Unpin>(
    mut from: unix::ReadHalf<'_>,
    mut to: W,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    // When everything must be over, once the server has closed its end.
    let mut last = None;
    loop {
        // A server that gave the connection up closes it with bytes unread in it, which is an error here.
        let read = from.read(&mut buffer).await.unwrap_or(0);
        let begun = Instant::now();
        if read == 0 {
            last.get_or_insert(begun + ENDING_MAX);
        }
        let mut send = pin!(async {
            if read == 0 {
                return to.shutdown().await;
            }
            to.write_all(&buffer[..read]).await?;
            to.flush().await
        });
        loop {
            let until = last.unwrap_or_else(|| Instant::now() + LOOK_EVERY);
            if let Ok(sent) = timeout_at(until, &mut send).await {
                sent?;
                break;
            }
            if last.is_some() || begun.elapsed() >= STALL_MAX {
                let message = "the client takes nothing";
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            // What is still to be read hides the end behind it.
            let plain: &UnixStream = from.as_ref();
            last = has_hung_up(plain).then(|| Instant::now() + ENDING_MAX);
        }
        if read == 0 {
            return Ok(());
        }
    }
}

/// Whether the other end of a socket is gone for good, both ways.
fn has_hung_up(socket: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    let polled = rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
    polled.is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Reads until the client closes.
async fn discard(from: &mut ReadHalf<Client>) {
    let mut buffer = vec![0; 16 << 10];
    while from.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
}
