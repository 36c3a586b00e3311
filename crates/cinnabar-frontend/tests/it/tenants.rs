//! What one export's clients may take from another's: memory, connections, turns. All in counts, whatever time it
//! takes. Each scenario also has a deliberate bug that it must find.

use crate::client::{Client, meta_data, option, request};
use crate::host::Host;
use crate::running::{Running, held, memory};
use crate::sample::export;
use crate::scarce;
use cinnabar_engine::seam::units::Instant;
use cinnabar_frontend::nbd::limits::SECOND_NS;
use cinnabar_frontend::nbd::mutant::{Mutant, Mutants};
use cinnabar_frontend::nbd::proto::{command as cmd, option as opt};
use cinnabar_frontend::nbd::{DisconnectReason as Reason, Export, ExportId, Limits};
use std::io::Read;

const MIB: u32 = 1 << 20;

type Scenario = fn(Mutants) -> Result<(), String>;

/// Each bug, and what finds it.
const FOUND_BY: &[(Mutant, Scenario)] = &[
    (Mutant::FloorLent, floors_are_not_lent),
    (Mutant::BudgetByConnection, many_connections_hold_what_one_may),
    (Mutant::HoldRestarts, who_reads_a_little_now_and_then_makes_room),
    (Mutant::NewestEnded, a_handshake_outlives_those_that_were_left_before),
    (Mutant::TurnByConnection, many_connections_have_one_turn),
    (Mutant::BlockStatusCheap, a_turn_has_few_block_status),
];

#[test]
fn each_deliberate_bug_is_found_and_only_the_bug_is() {
    let mut failures = Vec::new();
    for mutant in Mutant::ALL {
        let Some((_, scenario)) = FOUND_BY.iter().find(|(of, _)| of == mutant) else {
            assert!(scarce::BUGS.contains(mutant), "nothing finds {mutant:?}");
            continue;
        };
        if let Err(wrong) = scenario(Mutants::NONE) {
            failures.push(format!("without {mutant:?}: {wrong}"));
        }
        match scenario(Mutants::only(*mutant)) {
            Ok(()) => failures.push(format!("{mutant:?} is not found")),
            Err(wrong) => println!("{mutant:?}: {wrong}"),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Fails with a reason unless it is so.
fn check(is_so: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(otherwise()) }
}

fn disk(id: u32) -> Export {
    Export { size_bytes: 64 << 20, ..export(id, &name(id)) }
}

fn name(id: u32) -> String {
    format!("vm{id}")
}

/// Room for 96 MiB, 1 MiB of it for each export.
fn small(mutants: Mutants) -> Limits {
    Limits { bytes_max: 0, mutants, ..Limits::default() }
}

fn read(cookie: u64, len: u32) -> Vec<u8> {
    request(cmd::READ, cookie, 0, len)
}

/// The server takes what was sent.
fn settle(server: &Running) {
    server.run(|host| (0..20).for_each(|_| host.turn(0)));
}

/// Requests of an export that the engine has.
fn in_engine(server: &Running, id: u32) -> usize {
    server
        .run(move |host| host.held.iter().filter(|request| request.export == ExportId(id)).count())
}

/// Ends all, and the engine answers what it has.
fn end(server: &Running, clients: Vec<Client>) {
    drop(clients);
    assert!(server.until(|host| host.server.stats().connections == 0));
    server.run(Host::answer_held);
    assert!(server.nothing_is_held());
}

/// Sixteen exports take all they can, one after the other.
fn floors_are_not_lent(mutants: Mutants) -> Result<(), String> {
    let server = Running::start(small(mutants), (0..17).map(disk).collect(), held);
    let mut clients = Vec::new();
    for id in 0..16 {
        for kib in [16 << 10, 4 << 10, 1 << 10, 256, 64, 16, 4] {
            let mut client = Client::enter(&server.socket, &name(id));
            client.send(&read(0, kib << 10).repeat(4));
            settle(&server);
            clients.push(client);
        }
    }
    let mut victim = Client::enter(&server.socket, &name(16));
    victim.send(&read(0, 64 << 10).repeat(16));
    settle(&server);
    let served = in_engine(&server, 16);
    let bytes = server.stats().held_bytes;
    clients.push(victim);
    end(&server, clients);
    check(served == 16, || format!("of 16 reads within its floor {served} were served"))?;
    check(bytes <= (96 << 20) + (64 << 10), || format!("{bytes} bytes are held"))
}

/// Twelve connections to one disk ask for 8 MiB each.
fn many_connections_hold_what_one_may(mutants: Mutants) -> Result<(), String> {
    let server = Running::start(small(mutants), vec![disk(0), disk(1)], held);
    let mut clients = Vec::new();
    for _ in 0..12 {
        let mut client = Client::enter(&server.socket, "vm0");
        client.send(&read(0, 8 * MIB));
        clients.push(client);
    }
    settle(&server);
    let of_many = in_engine(&server, 0);
    let mut victim = Client::enter(&server.socket, "vm1");
    victim.send(&read(0, 16 * MIB));
    settle(&server);
    let served = in_engine(&server, 1);
    clients.push(victim);
    end(&server, clients);
    // 1 MiB of its own, and 47 of 94.
    check(of_many == 6, || format!("{of_many} of 12 have their 8 MiB, half is room for 6"))?;
    check(served == 1, || "another one's read of 16 MiB waits".into())
}

/// Three clients leave their replies unread, but for a little one each; a fourth one waits for room.
fn who_reads_a_little_now_and_then_makes_room(mutants: Mutants) -> Result<(), String> {
    // More than a socket holds.
    const LITTLE: u32 = 3 * MIB;
    let server = Running::start(small(mutants), (0..4).map(disk).collect(), memory);
    // Of the 92 MiB that can be lent they borrow 42, 24 and 10.
    let asks = [read(1, 8 * MIB).repeat(5), read(1, 11 * MIB).repeat(2), read(1, 8 * MIB)];
    let mut slow = Vec::new();
    for (id, ask) in (0..).zip(asks) {
        let mut client = Client::enter(&server.socket, &name(id));
        client.send(&[read(0, LITTLE), ask].concat());
        settle(&server);
        slow.push(client);
    }
    let mut waiter = Client::enter(&server.socket, "vm3");
    waiter.send(&read(0, 32 * MIB));
    settle(&server);
    let ended = |seconds: u64| {
        server.run(move |host| {
            host.skipped_ns += seconds * SECOND_NS;
            (0..20).for_each(|_| host.turn(0));
            host.server.stats().disconnects(Reason::HeldMemory)
        })
    };
    let early = ended(2);
    for client in &mut slow {
        assert_eq!(client.simple_reply(), (0, 0));
        client.0.read_exact(&mut vec![0; LITTLE as usize]).expect("the data");
    }
    settle(&server);
    let late = ended(2);
    let answered = server.stats().held_bytes > 0 && late == 1 && {
        assert_eq!(waiter.simple_reply(), (0, 0));
        waiter.0.read_exact(&mut vec![0; 32 << 20]).expect("the data");
        true
    };
    slow.push(waiter);
    end(&server, slow);
    check(early == 0, || "it was ended after two seconds".into())?;
    check(late == 1, || format!("{late} were ended after four seconds"))?;
    check(answered, || "it was not answered".into())
}

/// Connections that say nothing have all places, and more come.
fn a_handshake_outlives_those_that_were_left_before(mutants: Mutants) -> Result<(), String> {
    let limits = Limits { origin_handshakes_max: 8, mutants, ..Limits::default() };
    let server = Running::start(limits, vec![disk(0)], memory);
    let idle: Vec<Client> = (0..8).map(|_| Client::greet(&server.socket)).collect();
    let mut honest = Client::greet(&server.socket);
    let more: Vec<Client> = (0..7).map(|_| Client::greet(&server.socket)).collect();
    let is_ended = honest.is_thrown_out(0);
    let entered = !is_ended && honest.go("vm0").kind == 1;
    let ended = server.stats().disconnects(Reason::TooManyConnections);
    drop((idle, more));
    check(entered, || "it was ended for one that came later".into())?;
    check(ended == 8, || format!("{ended} were ended, not the first eight"))
}

/// What `id` got in each of a few short turns, while the others have work, too.
fn turns(server: &Running, mut all: Vec<(Client, Vec<u8>)>, id: u32) -> Vec<usize> {
    server.run(move |host| {
        host.server.follow(Instant(u64::MAX));
        for (client, bytes) in &mut all {
            client.send(bytes);
        }
        let count = |host: &mut Host| {
            host.turn(0);
            let taken = std::mem::take(&mut host.held);
            let of_it = taken.iter().filter(|request| request.export == ExportId(id)).count();
            host.held = taken;
            host.answer_held();
            of_it
        };
        (0..4).map(|_| count(host)).collect()
    })
}

/// Eight connections with a hundred reads each, beside one with forty.
fn many_connections_have_one_turn(mutants: Mutants) -> Result<(), String> {
    let limits = Limits { mutants, ..Limits::default() };
    let server = Running::start(limits, vec![disk(0), disk(1)], held);
    let all = || {
        let mut all: Vec<(Client, Vec<u8>)> = (0..8)
            .map(|_| (Client::enter(&server.socket, "vm0"), read(0, 4096).repeat(100)))
            .collect();
        all.push((Client::enter(&server.socket, "vm1"), read(0, 4096).repeat(40)));
        all
    };
    let flood = turns(&server, all(), 0);
    server.until(|host| host.server.stats().connections == 0);
    server.run(Host::answer_held);
    let victim = turns(&server, all(), 1);
    let so = format!("requests in four turns: {flood:?} of the flood, {victim:?} of the other");
    println!("{so}");
    check(flood[..2] == [4, 4] && victim[..2] == [4, 4], || so)
}

/// A flood of block status beside reads.
fn a_turn_has_few_block_status(mutants: Mutants) -> Result<(), String> {
    let limits = Limits { mutants, ..Limits::default() };
    let server = Running::start(limits, vec![disk(0), disk(1)], held);
    let mut client = Client::greet(&server.socket);
    client.send(&option(opt::STRUCTURED_REPLY, &[]));
    client.send(&option(opt::SET_META_CONTEXT, &meta_data("vm0", &["base:allocation"])));
    (0..3).for_each(|_| drop(client.option_reply()));
    assert_eq!(client.go("vm0").kind, 1);
    let status = request(cmd::BLOCK_STATUS, 0, 0, MIB).repeat(100);
    let reader = Client::enter(&server.socket, "vm1");
    let all = vec![(client, status), (reader, read(0, 4096).repeat(100))];
    let seen = turns(&server, all, 0);
    println!("block status in four turns: {seen:?}");
    check(seen[..3] == [1, 0, 1], || format!("block status in four turns: {seen:?}"))
}

/// A writer announces much, and sends nothing of it.
#[test]
fn a_payload_that_does_not_come_holds_nothing() {
    let server = Running::start(Limits::default(), vec![disk(0)], memory);
    let mut client = Client::enter(&server.socket, "vm0");
    client.send(&request(cmd::WRITE, 1, 0, 32 * MIB));
    client.send(&[7; 4095]);
    settle(&server);
    assert_eq!(server.stats().held_bytes, 0);
    client.send(&[7]);
    assert!(server.until(|host| host.server.stats().held_bytes == 32 << 20));
    let rest = vec![7; (32 << 20) - 4096];
    client.send(&rest);
    assert_eq!(client.simple_reply(), (0, 1));
    drop(client);
    assert!(server.nothing_is_held());
}

/// Two clients that share an image: one that does not read ends when the other one waits, not for a
/// connection of its own.
#[test]
fn a_client_is_not_ended_for_its_own_requests() {
    let server = Running::start(small(Mutants::NONE), vec![disk(0), disk(1)], memory);
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = Client::enter(&server.socket, "vm0");
        client.send(&read(1, 8 * MIB).repeat(8));
        clients.push(client);
    }
    settle(&server);
    server.run(|host| {
        host.skipped_ns += 10 * SECOND_NS;
        (0..20).for_each(|_| host.turn(0));
    });
    assert_eq!(server.stats().disconnects(Reason::HeldMemory), 0);
    end(&server, clients);
}

/// The engine answers after ten seconds, in which others waited: the client did not keep the memory.
#[test]
fn a_reply_is_not_held_by_its_client_before_it_is_sent() {
    let server = Running::start(small(Mutants::NONE), (0..4).map(disk).collect(), held);
    let mut clients = Vec::new();
    for (id, mib) in [(0, 46), (1, 24), (2, 12)] {
        let mut client = Client::enter(&server.socket, &name(id));
        client.send(&[read(1, 2 * MIB).repeat(mib / 2), read(2, 4096)].concat());
        settle(&server);
        clients.push(client);
    }
    let mut waiter = Client::enter(&server.socket, "vm3");
    waiter.send(&read(0, 32 * MIB));
    settle(&server);
    let ended = server.run(|host| {
        host.skipped_ns += 10 * SECOND_NS;
        host.answer_held();
        (0..3).for_each(|_| host.turn(0));
        host.server.stats().disconnects(Reason::HeldMemory)
    });
    assert_eq!(ended, 0);
    clients.push(waiter);
    end(&server, clients);
}

/// A list of a thousand exports is not made before it is read.
#[test]
fn a_long_list_is_answered_as_it_is_read() {
    let exports = (0..1000).map(|id| Export { description: "x".repeat(255), ..disk(id) });
    let server = Running::start(Limits::default(), exports.collect(), |_| {
        crate::host::Disk::Held(Vec::new())
    });
    let mut client = Client::greet(&server.socket);
    client.send(&[option(opt::LIST, &[]), option(opt::LIST, &[])].concat());
    for _ in 0..2 {
        for _ in 0..1000 {
            assert_eq!(client.option_reply().kind, 2);
        }
        assert_eq!(client.option_reply().kind, 1);
    }
    assert_eq!(client.go("vm999").kind, 1);
}
