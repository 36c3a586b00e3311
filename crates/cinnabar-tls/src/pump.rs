//! Plain text on one side, TLS on the other: both ways until one side ends.
//!
//! An end counts only as TLS has it: a socket that is closed without TLS's good-bye, by the client or on the way,
//! is a failure, and the server learns that.

use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

/// Bytes on their way, of each direction of a connection. Beside them TLS keeps a record, 64 KiB at most, and
/// the kernel what its sockets hold.
pub(crate) const BUFFER_BYTES: usize = 128 << 10;
/// A client that takes nothing for so long is given up. The server's own bound is the same.
const STALL_MAX: Duration = Duration::from_mins(1);
/// Time for a client to take the last bytes: a socket that is closed with unread bytes in it would tear them
/// away.
const LINGER_MAX: Duration = Duration::from_secs(2);

/// A client's side.
pub(crate) type Client = TlsStream<BufReader<TcpStream>>;

/// Carries bytes until one side has ended.
///
/// # Errors
/// The client's side ended otherwise than TLS says, or failed.
pub(crate) async fn pump(client: Client, plain: UnixStream) -> io::Result<()> {
    let (mut from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = tokio::io::split(plain);
    let ended = {
        let mut inbound = std::pin::pin!(inbound(&mut from_client, to_server));
        let mut outbound = std::pin::pin!(outbound(from_server, to_client));
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
async fn inbound<R, W>(from: &mut R, mut to: W) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        // A connection that was cut fails here; only an end that was said is one.
        let read = from.read(&mut buffer).await?;
        // The server may take its time: that is how it slows clients down. When it has closed its end, the
        // other direction still has its last words.
        let passed = match read {
            0 => to.shutdown().await,
            _ => to.write_all(&buffer[..read]).await,
        };
        if read == 0 || passed.is_err() {
            return Ok(());
        }
    }
}

/// From the server to the client. An error is the client's, here too.
async fn outbound<R, W>(mut from: R, mut to: W) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let stalled = || io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing");
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        // A server that gave the connection up closes it with bytes unread in it, which is an error here.
        let read = from.read(&mut buffer).await.unwrap_or(0);
        let send = async {
            if read == 0 {
                return to.shutdown().await;
            }
            to.write_all(&buffer[..read]).await?;
            to.flush().await
        };
        timeout(STALL_MAX, send).await.unwrap_or_else(|_| Err(stalled()))?;
        if read == 0 {
            return Ok(());
        }
    }
}

/// Reads until the client closes.
async fn discard(from: &mut ReadHalf<Client>) {
    let mut buffer = vec![0; 16 << 10];
    while from.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
}
