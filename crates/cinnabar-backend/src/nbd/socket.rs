//! Sockets to servers: connecting within a bound, and a stream with a deadline for the handshake.

use super::address::NbdAddress;
use super::error::NbdError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType,
    connect, recv, send, socket_with,
};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a unix socket whose queue is full is tried.
const FULL_EVERY: Duration = Duration::from_millis(20);
/// What the kernel may hold of what is sent; as much as it allows.
const SEND_BUFFER_BYTES: usize = 1 << 20;
/// When a silent peer is asked whether it is there, how often, and after how long it is not.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVE_COUNT: u32 = 4;
const UNACKNOWLEDGED_MS_MAX: u32 = 30_000;

/// Connects, non-blocking from then on.
pub(super) fn open(address: &NbdAddress, deadline: Instant) -> Result<OwnedFd, NbdError> {
    match address {
        NbdAddress::Unix(path) => open_unix(path, deadline).map_err(of),
        NbdAddress::Tcp { host, port } => open_tcp(host, *port, deadline),
    }
}

fn of(errno: Errno) -> NbdError {
    NbdError::Connect(errno)
}

fn open_unix(path: &Path, deadline: Instant) -> rustix::io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    loop {
        let socket = stream(AddressFamily::UNIX)?;
        match connect(&socket, &address) {
            Ok(()) => {
                let _ = sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES);
                return Ok(socket);
            }
            // Its queue is full; it may be busy.
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(FULL_EVERY),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn open_tcp(host: &str, port: u16, deadline: Instant) -> Result<OwnedFd, NbdError> {
    let found =
        (host, port).to_socket_addrs().map_err(|error| NbdError::Name(error.to_string()))?;
    let mut last = NbdError::Name("it has no address".into());
    for address in found {
        match open_address(address, deadline) {
            Ok(socket) => return Ok(socket),
            Err(errno) => last = of(errno),
        }
    }
    Err(last)
}

fn open_address(address: SocketAddr, deadline: Instant) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = stream(family)?;
    match connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            if !wait(&socket, PollFlags::OUT, deadline)? {
                return Err(Errno::TIMEDOUT);
            }
            sockopt::socket_error(&socket)??;
        }
        Err(errno) => return Err(errno),
    }
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_COUNT)?;
    sockopt::set_tcp_user_timeout(&socket, UNACKNOWLEDGED_MS_MAX)?;
    Ok(socket)
}

fn stream(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

/// Address of the other side, where it has one of its own: equal for all names of a host.
pub(super) fn peer(socket: &OwnedFd) -> Option<SocketAddr> {
    let address: SocketAddrAny = rustix::net::getpeername(socket).ok()??;
    let address = SocketAddr::try_from(address).ok()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Waits until the socket is ready; false at the deadline.
fn wait(socket: impl AsFd, flags: PollFlags, deadline: Instant) -> rustix::io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let timeout = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&socket, flags)], Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(errno),
        }
    }
}

/// Waits until the other side of each has closed it, for at most so long in all.
pub(super) fn wait_for_ends(sockets: &[OwnedFd], bound: Duration) {
    let deadline = Instant::now() + bound;
    for socket in sockets {
        // One that can't be waited for is not waited for.
        let _ = wait(socket, PollFlags::RDHUP, deadline);
    }
}

/// A non-blocking socket as a blocking stream that ends at a deadline.
pub(super) struct Timed<'a> {
    pub(super) socket: &'a OwnedFd,
    pub(super) deadline: Instant,
}

impl Timed<'_> {
    fn retry(
        &self,
        flags: PollFlags,
        mut call: impl FnMut() -> rustix::io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            match call() {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if !wait(self.socket, flags, self.deadline)? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.retry(PollFlags::IN, || {
            recv(self.socket, &mut *bytes, RecvFlags::empty()).map(|(count, _)| count)
        })
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry(PollFlags::OUT, || send(self.socket, bytes, SendFlags::NOSIGNAL))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
