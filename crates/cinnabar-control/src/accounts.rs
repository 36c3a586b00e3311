//! Which account of this host a TCP connection comes from, by the kernel's table of sockets.
//!
//! Reading the table takes milliseconds on a host with many sockets. So what it says of other clients of the
//! same port is kept: a client that connects before a read begins is in that table, and a flood of connections
//! costs few reads, of which one is under way at a time.

use super::peer::Peer;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

/// The tables: a socket of IPv6 may have an address of IPv4.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// States of sockets that may still belong to a process: established; the client has closed its direction
/// (before and after the acknowledgement); the daemon has closed its own.
const OWNED_STATES: [u8; 4] = [0x01, 0x04, 0x05, 0x08];

/// A table is believed for so long after its read has ended. A client may have left in that time, or during the
/// read, and a client of another account may have its port. That does little harm: the account decides only
/// whose places are counted, what is said of a port is used once, and another account can't choose whose port
/// becomes free when.
const BELIEVED_FOR: Duration = Duration::from_millis(500);
/// Longest wait for a table: a client whose account is not known by then is served as one of an unknown account.
const READ_MAX: Duration = Duration::from_secs(5);
/// Between two reads there is as much time as the last one took, so that a flood of connections takes no more
/// than half of a CPU's time, but no more than this.
const REST_MAX: Duration = Duration::from_secs(1);

/// A client's address and the one that it has connected to.
type Pair = (SocketAddr, SocketAddr);
/// Accounts of clients.
type Table = BTreeMap<Pair, u32>;

/// Accounts of clients of one port, as of the last read of the table.
#[derive(Clone, Debug)]
pub(crate) struct Accounts {
    look: Arc<Mutex<Look>>,
    /// Of the one read that may be under way, also after those who waited for it have given up.
    turn: Arc<Semaphore>,
}

/// What the last read has found.
#[derive(Debug, Default)]
struct Look {
    clients: Table,
    /// Reads that have begun.
    begun: u64,
    /// When the last one ended, and how long it took; `None`: there was none.
    ended: Option<(Instant, Duration)>,
}

impl Accounts {
    /// Nothing is known yet.
    pub(crate) fn new() -> Self {
        Self { look: Arc::default(), turn: Arc::new(Semaphore::new(1)) }
    }

    /// The peer that has connected from `client` to `own`; `None` if it has left, which costs no read.
    pub(crate) async fn peer(
        &self,
        own: SocketAddr,
        client: SocketAddr,
        has_left: impl Fn() -> bool,
    ) -> Option<Peer> {
        let pair = (canonical(client), canonical(own));
        if !pair.0.ip().is_loopback() && pair.0.ip() != pair.1.ip() {
            return Some(Peer::of_address(pair.0.ip()));
        }
        let before = self.lock().begun;
        // Also of one that has left: another client may have its port next.
        let account = self.take(pair, before);
        if has_left() {
            return None;
        }
        if let Some(account) = account {
            return Some(Peer::Account(account));
        }
        let looks = self.look_up(pair, before, has_left);
        timeout(READ_MAX, looks).await.unwrap_or(Some(Peer::Unknown))
    }

    /// Waits for a read that has begun since this client came, when `before` of them had, or makes one.
    async fn look_up(&self, pair: Pair, before: u64, has_left: impl Fn() -> bool) -> Option<Peer> {
        let turn = Arc::clone(&self.turn).acquire_owned().await.ok();
        let mut account = self.take(pair, before);
        let is_looked_up = account.is_some() || self.lock().begun > before;
        if let (Some(turn), false) = (turn, is_looked_up) {
            if has_left() {
                return None;
            }
            // The turn ends behind this client's look at the table.
            let _turn = self.read(turn, pair.1.port()).await;
            account = self.take(pair, before);
        }
        Some(account.map_or(Peer::Unknown, Peer::Account))
    }

    /// Reads the table on another thread, which has the turn until it has ended; then the turn comes back.
    async fn read(&self, turn: OwnedSemaphorePermit, port: u16) -> Option<OwnedSemaphorePermit> {
        let ended = self.lock().ended;
        if let Some((at, took)) = ended {
            sleep_until(at + took.min(REST_MAX)).await;
        }
        self.lock().begun += 1;
        let accounts = self.clone();
        let reads = tokio::task::spawn_blocking(move || {
            let at = Instant::now();
            let clients = read(port);
            let mut look = accounts.lock();
            look.clients = clients;
            look.ended = Some((Instant::now(), at.elapsed()));
            drop(look);
            turn
        });
        reads.await.ok()
    }

    /// What the last read says of a client, once. If that read began after the client came, when `before` of
    /// them had begun, its age does not matter: the client was there.
    fn take(&self, pair: Pair, before: u64) -> Option<u32> {
        let mut look = self.lock();
        let account = look.clients.remove(&pair)?;
        let is_recent = look.ended.is_some_and(|(at, _)| at.elapsed() <= BELIEVED_FOR);
        (look.begun > before || is_recent).then_some(account)
    }

    /// Reads of the table until now.
    #[cfg(test)]
    pub(crate) fn reads(&self) -> u64 {
        self.lock().begun
    }

    fn lock(&self) -> MutexGuard<'_, Look> {
        self.look.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert!(["01", "04", "05", "08"].iter().all(|state| parse(&of(state, 7)).is_some()));
        assert_eq!(parse(&of("05", 0)), None, "its process has closed it, not just a direction");
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
            (0..4).map(|_| TcpStream::connect(own).expect("it listens")).collect();
        clients[3].shutdown(std::net::Shutdown::Write).expect("it is connected");
        let accounts = Accounts::new();
        let us = Peer::Account(rustix::process::geteuid().as_raw());
        for client in &clients {
            let client = client.local_addr().expect("it is connected");
            assert_eq!(accounts.peer(own, client, || false).await, Some(us));
        }
        let unused = SocketAddr::new(own.ip(), 1);
        assert_eq!(accounts.peer(own, unused, || false).await, Some(Peer::Unknown));
        let far: SocketAddr = "10.0.0.7:5".parse().expect("an address");
        assert_eq!(accounts.peer(own, far, || false).await, Some(Peer::of_address(far.ip())));
    }

    /// Each client that is not in the table was a read.
    #[tokio::test]
    async fn clients_of_one_time_share_a_read_also_if_they_are_not_in_the_table() {
        let accounts = Accounts::new();
        let own: SocketAddr = "127.0.0.1:9".parse().expect("an address");
        let mut looks = tokio::task::JoinSet::new();
        for port in 10_000..10_100 {
            let accounts = accounts.clone();
            let client = SocketAddr::new(own.ip(), port);
            looks.spawn(async move { accounts.peer(own, client, || false).await });
        }
        let peers = looks.join_all().await;
        assert!(peers.iter().all(|peer| *peer == Some(Peer::Unknown)), "{peers:?}");
        // The second one if the first has begun before all had come.
        assert!((1..=2).contains(&accounts.reads()), "{} reads", accounts.reads());
        let gone = accounts.peer(own, SocketAddr::new(own.ip(), 10_000), || true).await;
        assert_eq!((gone, accounts.reads() <= 2), (None, true));
    }

    /// Each client that came meanwhile began another one.
    #[tokio::test(start_paused = true)]
    async fn a_read_that_hangs_is_the_only_one() {
        let accounts = Accounts::new();
        let hangs = Arc::clone(&accounts.turn).acquire_owned().await.expect("it is free");
        let own: SocketAddr = "127.0.0.1:9".parse().expect("an address");
        for port in 10_000..10_003 {
            let client = SocketAddr::new(own.ip(), port);
            assert_eq!(accounts.peer(own, client, || false).await, Some(Peer::Unknown));
        }
        assert_eq!(accounts.reads(), 0);
        drop(hangs);
    }

    /// Another account with the port of a client that has left counted as that client's.
    #[test]
    fn what_was_seen_is_not_believed_for_long() {
        let [own, client] = ["127.0.0.1:9320", "127.0.0.1:40000"]
            .map(|text| text.parse::<SocketAddr>().expect("an address"));
        let seen = |age: Duration, before| {
            let accounts = Accounts::new();
            let ended = Instant::now().checked_sub(age).map(|at| (at, Duration::ZERO));
            let clients = Table::from([((client, own), 1000)]);
            *accounts.lock() = Look { clients, begun: 1, ended };
            let account = accounts.take((client, own), before);
            assert_eq!(accounts.take((client, own), before), None, "it is used once");
            account
        };
        assert_eq!(seen(Duration::ZERO, 1), Some(1000));
        assert_eq!(seen(2 * BELIEVED_FOR, 1), None);
        assert_eq!(seen(2 * BELIEVED_FOR, 0), Some(1000), "it came before that read");
    }
}
