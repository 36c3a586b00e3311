//! The addresses of HTTP: metrics and page, and other hosts' daemons. Any account of this host may take a port
//! while the daemon does not run, and the interface with the address of `peers` may come up after the daemon.
//! Guests must not be without disks for that: the address is waited for.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;

/// Between two tries.
const TRY_EVERY: Duration =
    if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(2) };

/// An address that the daemon listens at, or will.
#[derive(Debug)]
pub(crate) struct HttpAddress {
    at: SocketAddr,
    /// `None`: something else listens there, or this host does not have the address.
    listener: Option<std::net::TcpListener>,
}

impl HttpAddress {
    /// Listens, unless something else does, or no interface has the address yet.
    ///
    /// # Errors
    /// If this host can't listen there, whatever it waits for.
    pub(crate) fn bind(at: SocketAddr) -> io::Result<Self> {
        match listen(at) {
            Ok(listener) => Ok(Self { at, listener: Some(listener) }),
            Err(error) => {
                let hint = match error.kind() {
                    io::ErrorKind::AddrInUse => "stop what listens there: ss -ltnp names it",
                    io::ErrorKind::AddrNotAvailable => {
                        "no interface has this address: ip address shows those there are"
                    }
                    _ => return Err(error),
                };
                tracing::error!(
                    hint,
                    "can't listen at {at}: {error}; volumes are served, it is tried again"
                );
                Ok(Self { at, listener: None })
            }
        }
    }

    /// Waits until it listens; gives the address, too, with the port that the kernel has chosen for 0.
    pub(crate) async fn listener(mut self) -> (SocketAddr, TcpListener) {
        loop {
            if let Some(listener) = self.listener.take() {
                match TcpListener::from_std(listener).and_then(|l| Ok((l.local_addr()?, l))) {
                    Ok(listens) => return listens,
                    Err(error) => tracing::error!("can't serve {}: {error}", self.at),
                }
            }
            tokio::time::sleep(TRY_EVERY).await;
            // Whatever it says now, it may say something else later.
            self.listener = listen(self.at).ok();
        }
    }
}

fn listen(at: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another account's listener ended the daemon, and systemd did not start it again.
    #[tokio::test]
    async fn an_address_that_another_has_is_waited_for() {
        let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = other.local_addr().expect("it is bound");
        let waits = HttpAddress::bind(at).expect("no reason not to serve volumes");
        let mut listener = std::pin::pin!(waits.listener());
        let early = tokio::time::timeout(3 * TRY_EVERY, &mut listener);
        assert!(early.await.is_err(), "the other one has it");
        drop(other);
        let late = tokio::time::timeout(Duration::from_secs(20), listener).await;
        let (bound, listener) = late.expect("it is free");
        assert_eq!((bound, listener.local_addr().expect("it is bound")), (at, at));
    }

    /// An interface that was not up at boot ended the daemon, and systemd did not start it again.
    #[tokio::test]
    async fn an_address_that_no_interface_has_is_waited_for() {
        let at = "192.0.2.1:9320".parse().expect("an address");
        let waits = HttpAddress::bind(at).expect("no reason not to serve volumes");
        let early = tokio::time::timeout(3 * TRY_EVERY, waits.listener());
        assert!(early.await.is_err(), "it is not ours");
    }

    #[test]
    fn what_no_wait_mends_is_a_mistake() {
        let without_interface = "[fe80::1]:9320".parse().expect("an address");
        let error = HttpAddress::bind(without_interface).expect_err("it is of no interface");
        let waited = [io::ErrorKind::AddrInUse, io::ErrorKind::AddrNotAvailable];
        assert!(!waited.contains(&error.kind()), "{error}");
    }
}
