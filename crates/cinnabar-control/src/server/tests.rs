//! Clients that hold connections, and those beside them.

use super::*;
use axum::routing::get;
use std::future::pending;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// More than a connection buffers.
const ANSWER_BYTES: usize = 1 << 20;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
/// No connection ends by its age here.
const LIFE_MAX: Duration = Duration::from_hours(1);

/// Connections as a test makes them.
struct Clients(Mutex<UnboundedReceiver<(Peer, DuplexStream)>>);

impl Listen for Clients {
    type Stream = DuplexStream;
    type Opening = Ready<io::Result<DuplexStream>>;
    async fn next(&self) -> io::Result<(Peer, Self::Opening)> {
        match self.0.lock().await.recv().await {
            Some((peer, stream)) => Ok((peer, ready(Ok(stream)))),
            None => pending().await,
        }
    }
}

/// A served site, and where its clients connect.
fn site() -> UnboundedSender<(Peer, DuplexStream)> {
    let (connect, clients) = unbounded_channel();
    let routes = Router::new().route("/", get(|| async { "x".repeat(ANSWER_BYTES) }));
    tokio::spawn(serve(Clients(Mutex::new(clients)), routes, LIFE_MAX));
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
async fn who_takes_nothing_of_an_answer_is_let_go_after_seconds() {
    let site = site();
    let mut client = connected(&site, Peer::Account(1));
    client.write_all(REQUEST).await.expect("it takes a request");
    tokio::time::sleep(Duration::from_secs(5)).await;
    client.write_all(REQUEST).await.expect("for a moment that is fine");
    tokio::time::sleep(Duration::from_secs(15)).await;
    let some = answer(&mut client).await;
    assert!(some.len() < ANSWER_BYTES, "the rest is not sent any more");
}

/// Each read is progress.
#[tokio::test(start_paused = true)]
async fn who_takes_an_answer_slowly_gets_all_of_it() {
    let site = site();
    let mut client = connected(&site, Peer::Account(1));
    client.write_all(REQUEST).await.expect("it takes a request");
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
