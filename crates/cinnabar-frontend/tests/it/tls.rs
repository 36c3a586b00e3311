//! The way from plain text to TLS, with clients that break its rules. What ends TLS here only passes bytes
//! on: what it does itself is tested where it is made.

use crate::client::{Client, OptionReply, info_data, option, take_option_reply};
use crate::running::{Running, memory};
use crate::sample::{Listed, export};
use cinnabar_frontend::nbd::handshake::{Handshake, Step};
use cinnabar_frontend::nbd::proto::{option as opt, option_reply as rep};
use cinnabar_frontend::nbd::{
    Address, DisconnectReason, ExportId, Handover, Limits, ListenError, StartTls, TlsSession,
};
use cinnabar_frontend::{SocketAccess, TlsAccess};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const FLAGS: [u8; 4] = 3_u32.to_be_bytes();

/// A handshake on bytes that requires TLS, after the client's flags.
struct Started(Handshake);

impl Started {
    fn new() -> Self {
        let mut handshake = Handshake::new(20).requiring_tls();
        let taken = handshake.step(&FLAGS, &Listed(vec![export(1, "vm1")]), &mut Vec::new());
        assert_eq!(taken, (4, Step::Continue));
        Self(handshake)
    }

    fn option(&mut self, option: &[u8]) -> (Step, Vec<OptionReply>) {
        let mut output = Vec::new();
        let directory = Listed(vec![export(1, "vm1")]);
        let (_, step) = self.0.step(option, &directory, &mut output);
        let mut bytes = output.as_slice();
        let mut replies = Vec::new();
        while !bytes.is_empty() {
            replies.push(take_option_reply(&mut bytes).expect("a whole reply"));
        }
        (step, replies)
    }

    fn kind(&mut self, option: &[u8]) -> u32 {
        let (step, replies) = self.option(option);
        assert_eq!((step, replies.len()), (Step::Continue, 1));
        replies[0].kind
    }
}

fn starttls() -> Vec<u8> {
    option(opt::STARTTLS, &[])
}

fn go() -> Vec<u8> {
    option(opt::GO, &info_data("vm1", &[]))
}

#[test]
fn nothing_is_told_before_tls() {
    let mut started = Started::new();
    let meta = [&option(opt::LIST_META_CONTEXT, &[])[..], &option(opt::SET_META_CONTEXT, &[])];
    for asked in [
        go(),
        option(opt::INFO, &info_data("vm1", &[])),
        option(opt::INFO, b"rubbish"),
        option(opt::LIST, &[]),
        option(opt::STRUCTURED_REPLY, &[]),
        meta[0].to_vec(),
        meta[1].to_vec(),
        option(4711, &[]),
    ] {
        let (step, replies) = started.option(&asked);
        assert_eq!((step, replies.len()), (Step::Continue, 1));
        assert_eq!(replies[0].kind, rep::ERR_TLS_REQD, "{asked:?}");
        assert_eq!(replies[0].data, b"this volume is served over TLS only");
    }
    let (step, replies) = started.option(&option(opt::EXPORT_NAME, b"vm1"));
    assert_eq!((step, replies.len()), (Step::Close(DisconnectReason::TlsRequired), 0));
    let (step, replies) = Started::new().option(&option(opt::ABORT, &[]));
    assert_eq!(step, Step::Close(DisconnectReason::Requested));
    assert_eq!(replies[0].kind, rep::ACK);
}

#[test]
fn tls_is_started_once_and_without_data() {
    let mut started = Started::new();
    assert_eq!(started.kind(&option(opt::STARTTLS, b"x")), rep::ERR_INVALID);
    let (step, replies) = started.option(&starttls());
    assert_eq!((step, replies[0].kind, replies.len()), (Step::StartTls, rep::ACK, 1));
    assert_eq!(started.kind(&starttls()), rep::ERR_INVALID, "it is under way");
    // From here on all is as without TLS.
    assert_eq!(started.kind(&option(opt::STRUCTURED_REPLY, &[])), rep::ACK);
    assert_eq!(started.option(&go()).0, Step::Enter(ExportId(1)));
}

#[test]
fn a_server_without_tls_does_not_know_it() {
    let mut started = Started(Handshake::new(20));
    assert_eq!(started.option(&FLAGS).0, Step::Continue);
    assert_eq!(started.kind(&starttls()), rep::ERR_UNSUP);
    assert_eq!(started.option(&go()).0, Step::Enter(ExportId(1)));
}

#[test]
fn a_client_that_is_forbidden_gets_nothing_but_the_reason() {
    let mut started = Started::new();
    assert_eq!(started.option(&starttls()).0, Step::StartTls);
    started.0.forbid("no");
    for asked in [go(), option(opt::LIST, &[]), starttls(), option(4711, &[])] {
        let (step, replies) = started.option(&asked);
        assert_eq!((step, replies[0].kind), (Step::Continue, rep::ERR_POLICY));
        assert_eq!(replies[0].data, b"no");
    }
    let (step, _) = started.option(&option(opt::EXPORT_NAME, b"vm1"));
    assert_eq!(step, Step::Close(DisconnectReason::Policy));
}

/// Passes bytes on, as TLS would, between clients and a server.
#[derive(Debug)]
struct Relay {
    /// What the client's certificate would say; `None`: the handshake fails.
    names: Option<Vec<String>>,
    refuses: bool,
    /// Of each client: what was to be sent first.
    preludes: Mutex<Vec<Vec<u8>>>,
    /// Of each client: what the server learns of it.
    sessions: Mutex<Vec<Arc<TlsSession>>>,
}

impl Relay {
    fn new(names: Option<&[&str]>) -> Arc<Self> {
        let names = names.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        Arc::new(Self {
            names,
            refuses: false,
            preludes: Mutex::default(),
            sessions: Mutex::default(),
        })
    }
}

impl StartTls for Relay {
    fn start(&self, client: Handover) -> bool {
        if self.refuses {
            return false;
        }
        let Handover { client, plain, prelude, session, .. } = client;
        let (client, plain) = (UnixStream::from(client), UnixStream::from(plain));
        for socket in [&client, &plain] {
            socket.set_nonblocking(false).expect("a socket");
        }
        (&client).write_all(&prelude).expect("the client reads");
        self.preludes.lock().expect("no panic").push(prelude);
        let Some(names) = &self.names else {
            session.failed("no certificate".into());
            return true;
        };
        session.established(names.clone());
        self.sessions.lock().expect("no panic").push(Arc::clone(&session));
        let (client_again, plain_again) =
            (client.try_clone().expect("a socket"), plain.try_clone().expect("a socket"));
        std::thread::spawn(move || pass(&client, &plain));
        std::thread::spawn(move || pass(&plain_again, &client_again));
        true
    }
}

fn pass(mut from: &UnixStream, mut to: &UnixStream) {
    let mut buffer = [0; 4096];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// A server whose only volume needs TLS, which `relay` ends.
fn serve(relay: &Arc<Relay>, limits: Limits, allow: &[&str]) -> Running {
    let running = Running::start(limits, Vec::new(), memory);
    let allow = allow.iter().map(|name| (*name).to_owned()).collect();
    let access = SocketAccess { tls: Some(TlsAccess { allow }), ..SocketAccess::default() };
    let (relay, path) = (Arc::clone(relay), running.socket.with_extension("tls"));
    running.run(move |host| {
        let served = export(1, "vm1");
        let disk = memory(&served);
        host.add(served, disk);
        let address = Address::Unix(path);
        let refused = host.server.listen_with(&address, &access, &[ExportId(1)]);
        assert!(matches!(refused, Err(ListenError::NoTls(_))), "nothing ends TLS");
        host.server.set_tls(relay);
        host.server.listen_with(&address, &access, &[ExportId(1)]).expect("it is free");
        let open = SocketAccess::default();
        let refused = host.server.listen_with(&address, &open, &[ExportId(1)]);
        assert!(matches!(refused, Err(ListenError::NoTls(_))), "another rule at one address");
    });
    running
}

fn greet(running: &Running) -> Client {
    Client::greet(&running.socket.with_extension("tls"))
}

#[test]
fn a_client_goes_on_over_tls() {
    let relay = Relay::new(Some(&["other", "Host-A"]));
    let running = serve(&relay, Limits::default(), &["host-a"]);
    let mut client = greet(&running);
    client.send(&option(opt::LIST, &[]));
    assert_eq!(client.option_reply().kind, rep::ERR_TLS_REQD);
    client.send(&starttls());
    assert_eq!(client.option_reply().kind, rep::ACK);
    client.send(&starttls());
    assert_eq!(client.option_reply().kind, rep::ERR_INVALID);
    assert_eq!(client.go("vm1").kind, rep::ACK);
    assert_eq!(client.write(4096, &[7; 8192]), 0);
    assert_eq!(client.read_at(8192, 4096), Ok(vec![7; 4096]));
    let guests = running.run(|host| host.server.connections(ExportId(1)));
    assert_eq!((guests, running.stats().connections), (1, 1));
    drop(client);
    assert!(running.ended(DisconnectReason::PeerClosed, 1));
    assert!(running.nothing_is_held());
}

/// Another may have put them there before the client began: they are not its words.
#[test]
fn plain_text_behind_the_request_is_never_taken() {
    let relay = Relay::new(Some(&["a"]));
    let running = serve(&relay, Limits::default(), &[]);
    for (count, behind) in [&b"I"[..], &go(), &starttls(), &[0x16, 3, 1]].into_iter().enumerate() {
        let mut client = greet(&running);
        client.send(&[starttls().as_slice(), behind].concat());
        assert!(client.is_closed());
        assert!(running.ended(DisconnectReason::TlsPlaintext, count as u64 + 1));
    }
    assert!(relay.preludes.lock().expect("no panic").is_empty(), "no client got so far");
    // In one piece with what is before it, its answers are sent in plain text, in order.
    let mut client = greet(&running);
    client.send(&[option(opt::LIST, &[]), starttls()].concat());
    assert_eq!(client.option_reply().kind, rep::ERR_TLS_REQD);
    assert_eq!(client.option_reply().kind, rep::ACK);
    assert_eq!(client.go("vm1").kind, rep::ACK);
}

#[test]
fn a_client_whose_names_are_not_allowed_is_told_so() {
    let relay = Relay::new(Some(&["host-b"]));
    let running = serve(&relay, Limits::default(), &["host-a"]);
    let mut client = greet(&running);
    client.send(&starttls());
    assert_eq!(client.option_reply().kind, rep::ACK);
    let refused = client.go("vm1");
    assert_eq!(refused.kind, rep::ERR_POLICY);
    assert!(String::from_utf8_lossy(&refused.data).contains("tls_allow"), "{refused:?}");
    client.send(&option(opt::LIST, &[]));
    assert_eq!(client.option_reply().kind, rep::ERR_POLICY);
    assert_eq!(running.stats().refused_clients, 1, "it is counted once");
    client.send(&option(opt::EXPORT_NAME, b"vm1"));
    assert!(client.is_closed());
    assert!(running.ended(DisconnectReason::Policy, 1));
}

#[test]
fn handshakes_that_fail_are_told_apart() {
    let failing = Relay::new(None);
    let running = serve(&failing, Limits::default(), &[]);
    let mut client = greet(&running);
    client.send(&starttls());
    assert!(client.is_closed());
    assert!(running.ended(DisconnectReason::TlsFailed, 1));

    let names = Some(Vec::new());
    let full = Arc::new(Relay {
        names,
        refuses: true,
        preludes: Mutex::default(),
        sessions: Mutex::default(),
    });
    let running = serve(&full, Limits::default(), &[]);
    let mut client = greet(&running);
    client.send(&starttls());
    assert!(client.is_closed());
    assert!(running.ended(DisconnectReason::TooManyConnections, 1));
    assert_eq!(running.stats().connections, 0);
}

/// The client may be back by then, and have written the same blocks on another connection.
#[test]
fn nothing_is_taken_of_a_connection_that_was_cut() {
    for leaves in [false, true] {
        let relay = Relay::new(Some(&["a"]));
        let running = serve(&relay, Limits::default(), &[]);
        let mut client = greet(&running);
        client.send(&starttls());
        assert_eq!(client.option_reply().kind, rep::ACK);
        assert_eq!(client.go("vm1").kind, rep::ACK);
        assert_eq!(client.write(0, &[7; 4096]), 0);
        relay.sessions.lock().expect("no panic")[0].failed("it was cut".into());
        let mut request = [0; 28];
        request[..4].copy_from_slice(&0x2560_9513_u32.to_be_bytes());
        request[7] = if leaves { 2 } else { 0 };
        request[24..].copy_from_slice(&4096_u32.to_be_bytes());
        client.send(&request);
        assert!(client.is_closed());
        let reason = if leaves { DisconnectReason::Requested } else { DisconnectReason::Broken };
        assert!(running.ended(reason, 1), "{reason}");
        assert_eq!(running.stats().disconnects(reason), 1);
    }
}

/// Time counts from the connection's begin, whatever was said in plain text.
#[test]
fn a_client_that_says_nothing_more_is_ended() {
    let limits = Limits { handshake_ns_max: 300_000_000, ..Limits::default() };
    let running = serve(&Relay::new(Some(&[])), limits, &[]);
    let mut client = greet(&running);
    client.send(&starttls());
    assert_eq!(client.option_reply().kind, rep::ACK);
    std::thread::sleep(Duration::from_millis(10));
    assert!(client.is_closed());
    assert!(running.ended(DisconnectReason::HandshakeTimeout, 1));
}
