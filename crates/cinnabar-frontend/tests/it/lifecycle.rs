//! Sockets and ends, orderly and other.

use crate::client::{Client, meta_data, option, reads, request};
use crate::host::Host;
use crate::running::{Running, both, held, memory};
use crate::sample::{SIZE, export};
use cinnabar_frontend::nbd::proto::{Fields, Request, command as cmd, option as opt};
use cinnabar_frontend::nbd::{
    Address, DisconnectReason as Reason, ExportId, Limits, ListenError, Server,
};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::time::Duration;

#[test]
fn replies_to_those_who_left_are_dropped() {
    for server in both(&Limits::default(), &[export(1, "vm1")], held) {
        let mut client = Client::enter(&server.socket, "vm1");
        client.send(&reads(10, 4096));
        assert!(server.until(|host| host.held.len() == 10));
        drop(client);
        assert!(server.until(|host| host.server.stats().connections == 0));
        // The next connection may get the place of the first, but not its replies.
        let mut next = Client::enter(&server.socket, "vm1");
        next.send(&request(cmd::FLUSH, 77, 0, 0));
        assert!(server.until(|host| host.held.len() == 11));
        server.run(Host::answer_held);
        assert_eq!(next.simple_reply(), (0, 77));
        assert!(server.nothing_is_held());
    }
}

#[test]
fn a_half_closed_client_still_gets_its_replies() {
    for server in both(&Limits::default(), &[export(1, "vm1")], held) {
        let mut client = Client::enter(&server.socket, "vm1");
        client.send(&reads(3, 512));
        assert!(server.until(|host| host.held.len() == 3));
        client.0.shutdown(std::net::Shutdown::Write).expect("it is open");
        std::thread::sleep(Duration::from_millis(20));
        server.run(Host::answer_held);
        for cookie in 0..3 {
            assert_eq!(client.simple_reply(), (0, cookie));
            client.read::<512>();
        }
        assert!(client.is_closed());
        assert!(server.ended(Reason::PeerClosed, 1));
    }
}

#[test]
fn drain_answers_what_is_in_flight_and_nothing_else() {
    for server in both(&Limits::default(), &[export(1, "vm1")], held) {
        let mut idle = Client::enter(&server.socket, "vm1");
        let mut handshaking = Client::greet(&server.socket);
        let mut busy = Client::enter(&server.socket, "vm1");
        busy.send(&reads(2, 512));
        assert!(server.until(|host| host.held.len() == 2));
        server.run(|host| host.server.drain(&mut host.pool));
        assert!(idle.is_closed() && handshaking.is_closed());
        busy.send(&reads(1, 512));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!server.run(|host| host.server.is_drained()));
        server.run(Host::answer_held);
        for cookie in 0..2 {
            assert_eq!(busy.simple_reply(), (0, cookie));
            busy.read::<512>();
        }
        assert!(busy.is_closed());
        assert!(server.until(|host| host.server.is_drained()));
        assert_eq!(server.stats().requests, 2);
        assert!(!server.socket.exists(), "the socket is removed");
    }
}

#[test]
fn a_removed_export_takes_its_connections_along() {
    let server =
        Running::start(Limits::default(), vec![export(1, "vm1"), export(2, "vm2")], memory);
    let mut first = Client::enter(&server.socket, "vm1");
    let mut second = Client::enter(&server.socket, "vm2");
    assert!(server.run(|host| host.server.remove_export(ExportId(1), &mut host.pool)));
    assert!(first.is_closed());
    assert_eq!(second.write(0, &[1; 512]), 0);
    assert_ne!(Client::greet(&server.socket).go("vm1").kind, 1);
    assert!(server.run(|host| host.server.remove_export(ExportId(2), &mut host.pool)));
    assert!(!server.run(|host| host.server.remove_export(ExportId(2), &mut host.pool)));
    assert!(!server.socket.exists(), "nothing is left to be served there");
    assert!(server.ended(Reason::ExportRemoved, 2));
}

#[test]
fn structured_replies_look_as_the_protocol_says() {
    let server = Running::start(Limits::default(), vec![export(1, "vm1")], memory);
    let mut client = Client::greet(&server.socket);
    client.send(&option(opt::STRUCTURED_REPLY, &[]));
    client.send(&option(opt::SET_META_CONTEXT, &meta_data("vm1", &["base:allocation"])));
    for _ in 0..3 {
        client.option_reply();
    }
    assert_eq!(client.go("vm1").kind, 1);
    assert_eq!(client.write(4096, &[5; 512]), 0, "others are answered the simple way");
    let chunk = |client: &mut Client, command, offset, len| {
        let request = Request { flags: 0, command, cookie: 3, offset, len };
        client.send(&request.encode());
        let head = client.read::<20>();
        let mut fields = Fields(&head);
        assert_eq!((fields.u32(), fields.u16()), (Some(0x668e_33ef), Some(1)), "a last chunk");
        let kind = fields.u16().expect("its type");
        assert_eq!(fields.u64(), Some(3));
        let mut data = vec![0; fields.u32().expect("its length") as usize];
        client.0.read_exact(&mut data).expect("its data");
        (kind, data)
    };
    let data = [4096_u64.to_be_bytes().as_slice(), &[5; 512]].concat();
    assert_eq!(chunk(&mut client, cmd::READ, 4096, 512), (1, data));
    let error = [22_u32.to_be_bytes().as_slice(), &[0, 0]].concat();
    assert_eq!(chunk(&mut client, cmd::READ, SIZE, 512), (0x8001, error.clone()));
    assert_eq!(chunk(&mut client, cmd::BLOCK_STATUS, SIZE, 512), (0x8001, error));
    // Context 1: a hole, data, a hole.
    let extents = [1_u32, 4096, 3, 4096, 0, 8192, 3].map(u32::to_be_bytes).concat();
    assert_eq!(chunk(&mut client, cmd::BLOCK_STATUS, 0, 16384), (5, extents));
}

fn fresh(address: &Address) -> Result<Server<crate::memory::Heap>, ListenError> {
    let mut server = Server::new(Limits::default());
    server.add_export(export(1, "vm1")).expect("a valid export");
    server.listen(address, &[ExportId(1)])?;
    Ok(server)
}

#[test]
fn a_socket_is_taken_over_only_from_the_dead() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("nbd.sock");
    let address = Address::Unix(path.clone());
    // A dead server's socket.
    drop(UnixListener::bind(&path).expect("it is free"));
    assert!(path.exists());
    let mut server = fresh(&address).expect("the socket is dead");
    let metadata = path.symlink_metadata().expect("the socket");
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o660);
    // A living one's.
    assert!(matches!(fresh(&address), Err(ListenError::InUse(_))));
    assert!(matches!(server.listen(&address, &[ExportId(9)]), Err(ListenError::NoExport(9))));
    server.listen(&address, &[ExportId(1)]).expect("the test's own folder");
    // Another process's socket, which replaced the server's.
    std::fs::remove_file(&path).expect("it exists");
    let theirs = UnixListener::bind(&path).expect("it is free");
    drop(server);
    assert!(path.exists(), "the other socket is not removed");
    drop(theirs);
    drop(fresh(&address).expect("they are gone"));
    assert!(!path.exists(), "the server's own socket is removed");
    // No socket at all.
    std::fs::write(&path, "precious").expect("it is free");
    assert!(matches!(fresh(&address), Err(ListenError::NotASocket(_))));
    assert_eq!(std::fs::read(&path).expect("it is still there"), b"precious");
    let nowhere = Address::Unix(directory.path().join("none/nbd.sock"));
    assert!(matches!(fresh(&nowhere), Err(ListenError::Io { .. })));
}

#[test]
fn a_port_in_use_is_said_to_be() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = Address::Tcp(listener.local_addr().expect("bound"));
    let error = fresh(&address).err().expect("it is in use");
    assert_eq!(error.to_string(), format!("address in use: {address}"));
}
