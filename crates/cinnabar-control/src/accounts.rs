//! Which account of this host a TCP connection comes from, by the kernel's table of sockets.
//!
//! Reading the table takes milliseconds on a host with many sockets. So what it says of other clients of the
//! same port is kept: whoever connects meanwhile is in it, and a flood of connections is one read.

use super::peer::Peer;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// The tables: a socket of IPv6 may have an address of IPv4.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// States of sockets that still belong to a process: established, and the other side has closed it.
const OWNED_STATES: [u8; 2] = [0x01, 0x08];

/// A table is believed for so long: after that a client may have left, and another account may have its port.
const BELIEVED_FOR: Duration = Duration::from_millis(500);
/// Longest wait for a table: other clients wait as well, and one whose account is not known is served, too.
const READ_MAX: Duration = Duration::from_secs(5);

/// Clients by their address and the one that they have connected to.
type Table = BTreeMap<(SocketAddr, SocketAddr), u32>;

/// Accounts of clients, as of the last look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts(Arc<Mutex<Look>>);

/// A look at the table.
#[derive(Debug, Default)]
struct Look {
    clients: Table,
    /// When it began; `None`: never.
    at: Option<Instant>,
}

impl Accounts {
    /// Who has connected from `client` to `own`.
    pub(crate) async fn peer(&self, own: SocketAddr, client: SocketAddr) -> Peer {
        let (own, client) = (canonical(own), canonical(client));
        if !client.ip().is_loopback() && client.ip() != own.ip() {
            return Peer::of_address(client.ip());
        }
        if let Some(account) = self.take(own, client) {
            return Peer::Account(account);
        }
        let at = Some(Instant::now());
        let table = tokio::task::spawn_blocking(move || read(own.port()));
        let clients = timeout(READ_MAX, table).await.map(Result::unwrap_or_default);
        let mut clients = clients.unwrap_or_default();
        // However long that took: this client was there before it, and is still.
        let account = clients.remove(&(client, own));
        *self.lock() = Look { clients, at };
        account.map_or(Peer::Unknown, Peer::Account)
    }

    /// What is known of a client is used once.
    fn take(&self, own: SocketAddr, client: SocketAddr) -> Option<u32> {
        let mut look = self.lock();
        if look.at.is_none_or(|at| at.elapsed() > BELIEVED_FOR) {
            look.clients.clear();
        }
        look.clients.remove(&(client, own))
    }

    fn lock(&self) -> MutexGuard<'_, Look> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Accounts of all clients of a port; empty where there is no such table.
fn read(port: u16) -> Table {
    let files = TABLES.iter().filter_map(|path| File::open(path).ok());
    let lines = files.flat_map(|file| BufReader::new(file).lines().map_while(Result::ok));
    let sockets = lines.filter_map(|line| parse(&line));
    sockets
        .filter(|socket| socket.own.port() == port)
        .map(|socket| ((socket.client, socket.own), socket.account))
        .collect()
}

/// A client's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Socket {
    client: SocketAddr,
    /// What it has connected to.
    own: SocketAddr,
    account: u32,
}

/// A line of the table; `None` if it is the heading, or a socket that belongs to no process any more: then
/// the table says 0, which is root.
fn parse(line: &str) -> Option<Socket> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (client, own) = (address(fields.next()?)?, address(fields.next()?)?);
    let state = u8::from_str_radix(fields.next()?, 16).ok()?;
    let account = fields.nth(3)?.parse().ok()?;
    let inode: u64 = fields.nth(1)?.parse().ok()?;
    (OWNED_STATES.contains(&state) && inode != 0).then_some(Socket { client, own, account })
}

/// `0100007F:1F90`: the address as words of 32 bits in the order of this machine, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = ip.get(8 * at..8 * (at + 1))?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (at, piece) in bytes.chunks_exact_mut(4).enumerate() {
                piece.copy_from_slice(&word(at)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some(canonical(SocketAddr::new(ip, port)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn written(address: &str) -> String {
        let address: SocketAddr = address.parse().expect("an address");
        let bytes = match address.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let words = bytes.chunks_exact(4).map(|word| {
            let word = u32::from_ne_bytes(word.try_into().expect("four bytes"));
            format!("{word:08X}")
        });
        format!("{}:{:04X}", words.collect::<String>(), address.port())
    }

    fn line(client: &str, own: &str, state: &str, account: u32, inode: u64) -> String {
        let (client, own) = (written(client), written(own));
        format!(
            "  12: {client} {own} {state} 00000000:00000000 00:00000000 00000000 {account:5}        0 \
             {inode} 1 0000000000000000 20 4 30 10 -1"
        )
    }

    #[test]
    fn a_line_of_the_table_names_the_account() {
        for (client, own) in [
            ("127.0.0.1:40000", "127.0.0.1:9320"),
            ("[::1]:40000", "[::1]:9320"),
            ("[::ffff:127.0.0.1]:40000", "[::ffff:127.0.0.1]:9320"),
        ] {
            let socket = parse(&line(client, own, "01", 1000, 77)).expect("a client");
            let expected = |text: &str| canonical(text.parse().expect("an address"));
            let Socket { client: from, own: to, account } = socket;
            assert_eq!((from, to, account), (expected(client), expected(own), 1000));
        }
    }

    #[test]
    fn what_belongs_to_no_process_and_what_is_no_line_is_left_out() {
        let of = |state, inode| line("127.0.0.1:1", "127.0.0.1:2", state, 0, inode);
        assert!(parse(&of("08", 7)).is_some());
        assert_eq!(parse(&of("06", 7)), None, "it waits for late segments");
        assert_eq!(parse(&of("01", 0)), None, "its process has closed it");
        let heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt";
        for text in ["", "0: 0100007F:1F90", heading, "0: x:1 y:2 01 0 0 0 0 0 1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[tokio::test]
    async fn clients_of_this_host_are_known_by_their_account() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("it is bound");
        let clients: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect(own).expect("it listens")).collect();
        let accounts = Accounts::default();
        let us = Peer::Account(rustix::process::geteuid().as_raw());
        for client in &clients {
            let client = client.local_addr().expect("it is connected");
            assert_eq!(accounts.peer(own, client).await, us);
        }
        let nobody = SocketAddr::new(own.ip(), 1);
        assert_eq!(accounts.peer(own, nobody).await, Peer::Unknown);
        let far: SocketAddr = "10.0.0.7:5".parse().expect("an address");
        assert_eq!(accounts.peer(own, far).await, Peer::of_address(far.ip()));
    }

    /// Another account with the port of a client that has left counted as that client's.
    #[test]
    fn what_was_seen_is_not_believed_for_long() {
        let [own, client] = ["127.0.0.1:9320", "127.0.0.1:40000"]
            .map(|text| text.parse::<SocketAddr>().expect("an address"));
        let seen = |age: Duration| {
            let accounts = Accounts::default();
            let clients = Table::from([((client, own), 1000)]);
            *accounts.lock() = Look { clients, at: Instant::now().checked_sub(age) };
            accounts.take(own, client)
        };
        assert_eq!(seen(Duration::ZERO), Some(1000));
        assert_eq!(seen(2 * BELIEVED_FOR), None);
    }
}
