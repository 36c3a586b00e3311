//! Clients that hold connections, and those beside them.

use super::*;
use axum::routing::get;
use std::future::pending;
use std::net::Shutdown;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Mutex as AsyncMutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// More than a connection buffers.
const ANSWER_BYTES: usize = 1 << 20;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// No connection ends by its age here.
const LIFE_MAX: Duration = Duration::from_hours(1);

/// Connections as a test makes them.
struct Clients(AsyncMutex<UnboundedReceiver<(Peer, DuplexStream)>>);

impl Listen for Clients {
    type Stream = DuplexStream;
    type Opening = Ready<io::Result<(Peer, DuplexStream)>>;
    async fn next(&self) -> io::Result<Self::Opening> {
        match self.0.lock().await.recv().await {
            Some(client) => Ok(ready(Ok(client))),
            None => pending().await,
        }
    }
}

/// A served site, and where its clients connect.
fn site() -> UnboundedSender<(Peer, DuplexStream)> {
    let (connect, clients) = unbounded_channel();
    let routes = Router::new().route("/", get(|| async { "x".repeat(ANSWER_BYTES) }));
    tokio::spawn(serve(Clients(AsyncMutex::new(clients)), routes, LIFE_MAX));
    connect
}

fn connected(site: &UnboundedSender<(Peer, DuplexStream)>, peer: Peer) -> DuplexStream {
    let (client, server) = duplex(4 << 10);
    site.send((peer, server)).expect("it is served");
    client
}

/// Everything that is sent, once a whole answer is there or the connection has ended.
async fn answer(client: &mut DuplexStream) -> Vec<u8> {
    let (mut answer, mut piece) = (Vec::new(), vec![0; 4 << 10]);
    while answer.len() < ANSWER_BYTES {
        match client.read(&mut piece).await {
            Ok(read @ 1..) => answer.extend_from_slice(&piece[..read]),
            Ok(0) | Err(_) => break,
        }
    }
    answer
}

/// It had its place for the whole life of a connection: minutes.
#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_of_an_answer_is_let_go_after_half_a_minute() {
    let site = site();
    let mut client = connected(&site, Peer::Account(1));
    client.write_all(REQUEST).await.expect("it takes a request");
    tokio::time::sleep(Duration::from_secs(5)).await;
    client.write_all(REQUEST).await.expect("for a moment that is fine");
    tokio::time::sleep(Duration::from_secs(35)).await;
    let some = answer(&mut client).await;
    assert!(some.len() < ANSWER_BYTES, "the rest is not sent any more");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_come_keeps_its_place_for_ten_seconds() {
    let head = "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n";
    for (sent, comes_after) in [("", 0), (head, 0), (head, 8), (&format!("{head}\r\nhalf"), 0)] {
        let site = site();
        let mut client = connected(&site, Peer::Account(1));
        let begun = tokio::time::Instant::now();
        tokio::time::sleep(Duration::from_secs(comes_after)).await;
        client.write_all(sent.as_bytes()).await.expect("it takes what comes");
        let _ = client.read_to_end(&mut Vec::new()).await;
        let passed = begun.elapsed();
        assert!(passed <= READ_WAIT_MAX + Duration::from_secs(1), "{passed:?} after {sent:?}");
    }
}

/// Each read is progress. A socket of TCP can be written to only after many of them: one such pause of a steady
/// client was its end.
#[tokio::test(start_paused = true)]
async fn a_client_that_takes_an_answer_slowly_gets_all_of_it() {
    let site = site();
    let mut client = connected(&site, Peer::Account(1));
    client.write_all(REQUEST).await.expect("it takes a request");
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (mut taken, mut piece) = (0, vec![0; 32 << 10]);
    while taken < ANSWER_BYTES {
        tokio::time::sleep(Duration::from_secs(1)).await;
        match client.read(&mut piece).await.expect("it goes on") {
            0 => panic!("it ended after {taken} bytes"),
            read => taken += read,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_account_or_host_leaves_places_to_others() {
    for greedy in [Peer::Account(1), Peer::of_address([10, 0, 0, 1].into()), Peer::Unknown] {
        let site = site();
        let mut held: Vec<_> = (0..2 * CONNECTIONS_MAX).map(|_| connected(&site, greedy)).collect();
        for other in [Peer::Account(2), Peer::of_address([10, 0, 0, 2].into())] {
            let mut client = connected(&site, other);
            client.write_all(REQUEST).await.expect("it has a place");
            assert!(answer(&mut client).await.len() >= ANSWER_BYTES, "{other} beside {greedy}");
        }
        // Its last ones were closed at once, its first ones were not.
        let mut byte = [0];
        let (mut last, mut first) = (held.pop().expect("one"), held.swap_remove(0));
        assert_eq!(last.read(&mut byte).await.expect("an end"), 0, "{greedy}");
        first.write_all(REQUEST).await.expect("it has a place");
        assert!(answer(&mut first).await.len() >= ANSWER_BYTES, "{greedy}");
    }
}

/// Accounts of one tenant (`subuid`) took all places, and others waited for minutes.
#[tokio::test(start_paused = true)]
async fn many_accounts_leave_places_to_operators() {
    let site = site();
    let own = rustix::process::geteuid().as_raw();
    let ordinary = |id: usize| Peer::Account(own + 1000 + (id % 50) as u32);
    let _held: Vec<_> = (0..8 * CONNECTIONS_MAX).map(|id| connected(&site, ordinary(id))).collect();
    for operator in [Peer::Account(0), Peer::Account(own)] {
        let mut client = connected(&site, operator);
        client.write_all(REQUEST).await.expect("it has a place");
        assert!(answer(&mut client).await.len() >= ANSWER_BYTES, "{operator}");
    }
}

/// A listener with clients that have connected, and what those do.
async fn come_and(count: usize, act: impl Fn(&mut std::net::TcpStream)) -> AddressListener {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("it is bound");
    for _ in 0..count {
        let mut client = std::net::TcpStream::connect(at).expect("it listens");
        act(&mut client);
    }
    AddressListener::new(listener)
}

/// Each was a read of the whole table of sockets, one behind the other, and other clients waited.
#[tokio::test]
async fn clients_that_have_left_cost_few_reads_of_the_table() {
    use std::io::Write as _;
    let listener = come_and(50, |_| ()).await;
    for _ in 0..50 {
        let looking = listener.accept().await.expect("a connection");
        let error = looking.await.expect_err("it has left");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
    }
    assert_eq!(listener.accounts.reads(), 0);

    // They may wait for an answer, for all that the daemon can see.
    let listener = come_and(50, |client| client.write_all(REQUEST).expect("it takes it")).await;
    let mut looks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        looks.spawn(listener.accept().await.expect("a connection"));
    }
    let peers = looks.join_all().await;
    let is_unknown = |found: &io::Result<(Peer, TcpStream)>| {
        found.as_ref().is_ok_and(|(peer, _)| *peer == Peer::Unknown)
    };
    assert!(peers.iter().all(is_unknown), "{peers:?}");
    assert!(listener.accounts.reads() <= 3, "{} reads", listener.accounts.reads());
}

/// It was a client of an unknown account as long as it lasted.
#[tokio::test]
async fn a_client_that_has_closed_its_direction_is_known() {
    use std::io::Write as _;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("it is bound");
    let mut client = std::net::TcpStream::connect(at).expect("it listens");
    client.write_all(REQUEST).expect("it takes a request");
    client.shutdown(Shutdown::Write).expect("it is connected");
    let looking = AddressListener::new(listener).accept().await.expect("a connection");
    let (peer, _) = looking.await.expect("it is there");
    assert_eq!(peer, Peer::Account(rustix::process::geteuid().as_raw()));
}
