//! Valid conversations over NBD, of clients and of servers.

use crate::client::{info_data, meta_data, option, request};
use crate::sample::{Listed, export};
use cinnabar_frontend::nbd::handshake::{Directory, Handshake, Step, greeting};
use cinnabar_frontend::nbd::proto::{
    SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, command as cmd, option as opt,
};

/// The client's flags: without zeros behind the reply to `EXPORT_NAME`, and with.
const FLAGS: [u8; 4] = 3_u32.to_be_bytes();
const FLAGS_ZEROES: [u8; 4] = 1_u32.to_be_bytes();
/// Bytes of a request of the target `nbd_client`.
const LEN: usize = 2048;

/// An input whose connection is cut there.
fn cut(at: u16, pieces: &[Vec<u8>]) -> Vec<u8> {
    [at.to_le_bytes().to_vec(), pieces.concat()].concat()
}

fn go(name: &str) -> Vec<u8> {
    option(opt::GO, &info_data(name, &[0, 1, 2, 3]))
}

/// A request of each command, the last of which ends the connection.
fn requests() -> Vec<Vec<u8>> {
    let write = [request(cmd::WRITE, 2, 512, 1024), vec![7; 1024]].concat();
    let others = [
        (cmd::READ, 3584, 1024),
        (cmd::FLUSH, 0, 0),
        (cmd::TRIM, 4096, 8192),
        (cmd::CACHE, 0, 4096),
        (cmd::WRITE_ZEROES, 1024, 512),
        (cmd::BLOCK_STATUS, 0, 1 << 20),
        (cmd::DISC, 0, 0),
    ];
    let others = others.map(|(command, offset, len)| request(command, 1, offset, len));
    [vec![write], others.to_vec()].concat()
}

/// Inputs of the target `nbd_handshake`: each enters an export.
pub(crate) fn handshakes() -> Vec<Vec<u8>> {
    let contexts = meta_data("a", &["base:allocation"]);
    let all = vec![
        FLAGS.to_vec(),
        option(opt::LIST, &[]),
        option(opt::STRUCTURED_REPLY, &[]),
        option(opt::LIST_META_CONTEXT, &meta_data("a", &[])),
        option(opt::SET_META_CONTEXT, &contexts),
        option(opt::INFO, &info_data("b", &[])),
        option(opt::STARTTLS, &[]),
        go("a"),
        requests().concat(),
    ];
    let old = [FLAGS_ZEROES.to_vec(), option(opt::EXPORT_NAME, b"a"), requests().concat()];
    let refused = [FLAGS.to_vec(), go("b"), go("b"), option(opt::ABORT, &[])];
    vec![
        cut(9, &all),
        cut(30, &old),
        cut(0, &refused),
        cut(4, &[FLAGS.to_vec(), go("a"), requests().concat()]),
    ]
}

/// Inputs of the target `nbd_transmission`: each command in either dialect, and all of them.
pub(crate) fn transmissions() -> Vec<Vec<u8>> {
    let requests = requests();
    let simple = requests.iter().filter(|request| request[6..8] != cmd::DISC.to_be_bytes());
    let mut inputs: Vec<_> =
        simple.map(|request| [&[0, 0, 28, 0], request.as_slice()].concat()).collect();
    for dialect in [[0, 0], [1, 0], [1, 1]] {
        inputs.push([&dialect[..], &[40, 0], &requests.concat()].concat());
    }
    inputs
}

/// Inputs of the target `nbd_tls`: each is granted it.
pub(crate) fn tls() -> Vec<Vec<u8>> {
    let start = option(opt::STARTTLS, &[]);
    let early = [FLAGS.to_vec(), go("a"), option(opt::LIST, &[]), start.clone(), go("a")];
    let behind = [FLAGS.to_vec(), start.clone(), option(opt::LIST, &[]), start.clone()];
    vec![cut(20, &early), cut(4, &behind), cut(1, &[FLAGS_ZEROES.to_vec(), start])]
}

/// Inputs of the target `nbd_client`: what this project's server says first, and replies to its requests.
pub(crate) fn servers() -> Vec<Vec<u8>> {
    let structured = option(opt::STRUCTURED_REPLY, &[]);
    // A server that knows no structured replies: ours says so of an option of no name, at this place.
    let mut plain = said(&[&option(99, &[]), &go("a")]);
    let at = plain.windows(4).position(|bytes| *bytes == 99_u32.to_be_bytes());
    let at = at.expect("the answer names the option");
    plain[at..at + 4].copy_from_slice(&opt::STRUCTURED_REPLY.to_be_bytes());
    let mut inputs = vec![
        [&[1, 7][..], &said(&[&structured, &go("a")])].concat(),
        [&[1, 8][..], &plain].concat(),
    ];
    inputs.push([vec![0, 3], replies()].concat());
    inputs.push([vec![0, 0], simple(4, 0, &[])].concat());
    inputs.push([vec![1, 5], chunks()].concat());
    inputs
}

/// What the server says to these options, the last of which enters.
fn said(options: &[&[u8]]) -> Vec<u8> {
    let directory = Listed(vec![export(1, "a"), export(2, "b")]);
    let mut handshake = Handshake::new(20);
    let mut output = greeting().to_vec();
    for option in [&[&FLAGS[..]], options].concat() {
        let (taken, step) = handshake.step(option, &directory, &mut output);
        assert_eq!(taken, option.len());
        if matches!(step, Step::Enter(_)) {
            let export = directory.all().next().expect("it has two");
            handshake.grant(export, &mut output);
        }
    }
    output
}

/// The cookie of the target's request of this number: 1 to 4 are two reads, a write and a flush.
fn cookie(number: u64) -> [u8; 8] {
    (number << 32 | (number - 1)).to_be_bytes()
}

fn simple(number: u64, error: u32, data: &[u8]) -> Vec<u8> {
    let magic = SIMPLE_REPLY_MAGIC.to_be_bytes();
    [&magic[..], &error.to_be_bytes(), &cookie(number), data].concat()
}

fn replies() -> Vec<u8> {
    let parts = [simple(3, 0, &[]), simple(2, 5, &[]), simple(1, 0, &[7; LEN]), simple(4, 0, &[])];
    parts.concat()
}

fn chunk(is_last: bool, kind: u16, number: u64, payload: &[&[u8]]) -> Vec<u8> {
    let payload = payload.concat();
    let magic = STRUCTURED_REPLY_MAGIC.to_be_bytes();
    let (flags, kind) = (u16::from(is_last).to_be_bytes(), kind.to_be_bytes());
    let len = (payload.len() as u32).to_be_bytes();
    [&magic[..], &flags, &kind, &cookie(number), &len, &payload].concat()
}

/// Data and a hole in two chunks, an error with words, and two that are done without more.
fn chunks() -> Vec<u8> {
    const DATA: u16 = 1;
    const HOLE: u16 = 2;
    const ERROR: u16 = 1 << 15 | 1;
    let (first, half) = (0_u64.to_be_bytes(), LEN as u64 / 2);
    let words = [&5_u32.to_be_bytes()[..], &3_u16.to_be_bytes(), b"bad"];
    [
        chunk(false, DATA, 1, &[&half.to_be_bytes(), &[7; LEN / 2]]),
        chunk(true, ERROR, 2, &words),
        chunk(true, HOLE, 1, &[&first, &(half as u32).to_be_bytes()]),
        chunk(true, 0, 3, &[]),
        chunk(true, 0, 4, &[]),
    ]
    .concat()
}
