//! The handshake on byte vectors.

use crate::client::{OptionReply, info_data, meta_data, option, string, take_option_reply};
use crate::sample::{Listed, SIZE, export};
use cinnabar_frontend::nbd::handshake::{Agreed, Directory, Handshake, Step, greeting};
use cinnabar_frontend::nbd::proto::{option as opt, option_reply as rep};
use cinnabar_frontend::nbd::{DisconnectReason, Export, ExportId};

/// A handshake after the client's flags.
struct Started {
    handshake: Handshake,
    directory: Listed,
}

impl Started {
    fn new(flags: u32) -> Self {
        let mut described = export(1, "vm1");
        described.description = "first".into();
        let golden = Export { read_only: true, min_block_bytes: 4096, ..export(2, "golden") };
        let directory = Listed(vec![described, golden]);
        let mut handshake = Handshake::new(10);
        let mut output = Vec::new();
        let taken = handshake.step(&flags.to_be_bytes(), &directory, &mut output);
        assert_eq!((taken, output.len()), ((4, Step::Continue), 0));
        Self { handshake, directory }
    }

    /// One option: what became of it, and the replies.
    fn option(&mut self, option: &[u8]) -> (Step, Vec<OptionReply>) {
        let mut output = Vec::new();
        let (taken, step) = self.handshake.step(option, &self.directory, &mut output);
        assert!(taken == option.len() || matches!(step, Step::Close(_)));
        let mut bytes = output.as_slice();
        let mut replies = Vec::new();
        while !bytes.is_empty() {
            replies.push(take_option_reply(&mut bytes).expect("a whole reply"));
        }
        (step, replies)
    }

    fn kinds(&mut self, option: &[u8]) -> Vec<u32> {
        let (step, replies) = self.option(option);
        assert_eq!(step, Step::Continue);
        replies.into_iter().map(|reply| reply.kind).collect()
    }

    fn enter(&mut self, option: &[u8]) -> (Agreed, Vec<u8>) {
        let (step, replies) = self.option(option);
        assert_eq!(replies, []);
        let Step::Enter(id) = step else { panic!("{step:?}") };
        let export = self.directory.all().find(|export| export.id == id).expect("it was found");
        let mut output = Vec::new();
        (self.handshake.grant(export, &mut output), output)
    }
}

const FIXED: u32 = 1;
const FIXED_NO_ZEROES: u32 = 3;

#[test]
fn the_greeting_offers_fixed_newstyle_without_zeroes() {
    assert_eq!(greeting(), *b"NBDMAGICIHAVEOPT\x00\x03");
}

#[test]
fn go_tells_size_flags_and_block_sizes() {
    let mut started = Started::new(FIXED_NO_ZEROES);
    let (agreed, output) = started.enter(&option(opt::GO, &info_data("vm1", &[1, 2])));
    assert_eq!(agreed, Agreed { structured: false, block_status: false });
    let mut bytes = output.as_slice();
    let mut next = || take_option_reply(&mut bytes).expect("a reply").data;
    let mut size_and_flags = vec![0, 0];
    size_and_flags.extend(SIZE.to_be_bytes());
    // HAS_FLAGS, FLUSH, FUA, TRIM, WRITE_ZEROES, MULTI_CONN, CACHE; no DF.
    size_and_flags.extend(0x056d_u16.to_be_bytes());
    assert_eq!(next(), size_and_flags);
    assert_eq!(next(), b"\0\x01vm1");
    assert_eq!(next(), b"\0\x02first");
    assert_eq!(next(), b"\0\x03\0\0\x02\0\0\0\x10\0\x02\0\0\0");
    assert_eq!(take_option_reply(&mut bytes).map(|last| last.kind), Some(rep::ACK));
    assert!(bytes.is_empty());
}

#[test]
fn a_read_only_export_offers_no_writes() {
    let mut started = Started::new(FIXED_NO_ZEROES);
    assert_eq!(started.kinds(&option(opt::STRUCTURED_REPLY, &[])), [rep::ACK]);
    let (step, replies) = started.option(&option(opt::INFO, &info_data("golden", &[])));
    assert_eq!(step, Step::Continue);
    // HAS_FLAGS, READ_ONLY, FLUSH, DF, MULTI_CONN, CACHE.
    assert_eq!(replies[0].data[10..], 0x0587_u16.to_be_bytes());
    assert_eq!(replies[1].data[2..6], 4096_u32.to_be_bytes(), "its smallest block");
}

#[test]
fn export_name_is_answered_with_or_without_zeroes() {
    for (flags, len) in [(FIXED, 134), (FIXED_NO_ZEROES, 10), (0, 134)] {
        let mut started = Started::new(flags);
        let (_, output) = started.enter(&option(opt::EXPORT_NAME, b"vm1"));
        assert_eq!(output.len(), len);
        assert_eq!(output[..8], SIZE.to_be_bytes());
    }
}

#[test]
fn list_names_every_export() {
    let (_, replies) = Started::new(FIXED).option(&option(opt::LIST, &[]));
    let first = [string(b"vm1"), b"first".to_vec()].concat();
    assert_eq!(replies[0], OptionReply { option: opt::LIST, kind: rep::SERVER, data: first });
    assert_eq!(replies[1].data, string(b"golden"));
    assert_eq!((replies.len(), replies[2].kind), (3, rep::ACK));
}

#[test]
fn block_status_is_agreed_for_the_export_it_was_set_for() {
    let set = |name, queries: &[&str]| option(opt::SET_META_CONTEXT, &meta_data(name, queries));
    let go = |name| option(opt::GO, &info_data(name, &[]));
    for (options, block_status) in [
        (vec![set("vm1", &["base:allocation"])], true),
        (vec![set("vm1", &["x:y", "base:allocation", "base:allocation"])], true),
        (vec![set("golden", &["base:allocation"])], false),
        (vec![set("vm1", &["base:"])], false),
        (vec![set("vm1", &[])], false),
        (vec![set("vm1", &["base:allocation"]), set("vm1", &[])], false),
        (vec![set("vm1", &["base:allocation"]), set("none", &["base:allocation"])], false),
    ] {
        let mut started = Started::new(FIXED_NO_ZEROES);
        assert_eq!(started.kinds(&option(opt::STRUCTURED_REPLY, &[])), [rep::ACK]);
        for option in &options {
            started.option(option);
        }
        let (agreed, _) = started.enter(&go("vm1"));
        assert_eq!(agreed, Agreed { structured: true, block_status }, "{options:?}");
    }
}

#[test]
fn metadata_contexts_are_listed() {
    let list = |queries: &[&str]| option(opt::LIST_META_CONTEXT, &meta_data("vm1", queries));
    let mut started = Started::new(FIXED);
    assert_eq!(started.kinds(&list(&[])), [rep::ERR_INVALID], "needs structured replies");
    started.option(&option(opt::STRUCTURED_REPLY, &[]));
    assert_eq!(started.kinds(&list(&[])), [rep::META_CONTEXT, rep::ACK]);
    assert_eq!(started.kinds(&list(&["base:"])), [rep::META_CONTEXT, rep::ACK]);
    assert_eq!(started.kinds(&list(&["qemu:"])), [rep::ACK]);
}

#[test]
fn wrong_options_are_answered_and_forgiven() {
    let mut tail = info_data("vm1", &[]);
    tail.push(0);
    let mut endless = string(b"vm1");
    endless.extend(u32::MAX.to_be_bytes());
    for (option, kind) in [
        (option(5, &[]), rep::ERR_UNSUP),
        (option(11, &[]), rep::ERR_UNSUP),
        (option(u32::MAX, &[7; 100]), rep::ERR_UNSUP),
        (option(opt::LIST, &[0]), rep::ERR_INVALID),
        (option(opt::STRUCTURED_REPLY, &[0]), rep::ERR_INVALID),
        (option(opt::GO, &[]), rep::ERR_INVALID),
        (option(opt::GO, &[0xff; 4]), rep::ERR_INVALID),
        (option(opt::GO, &tail), rep::ERR_INVALID),
        (option(opt::INFO, &info_data("none", &[])), rep::ERR_UNKNOWN),
        (option(opt::GO, &info_data("", &[])), rep::ERR_UNKNOWN),
        (option(opt::SET_META_CONTEXT, &endless), rep::ERR_INVALID),
    ] {
        let mut started = Started::new(FIXED);
        assert_eq!(started.kinds(&option), [kind], "{option:?}");
        started.enter(&crate::client::option(opt::GO, &info_data("vm1", &[])));
    }
}

#[test]
fn what_cannot_be_forgiven_closes() {
    let mut magic = option(opt::LIST, &[]);
    magic[7] ^= 1;
    let mut long = option(opt::GO, &[]);
    long[12..].copy_from_slice(&((16_u32 << 10) + 1).to_be_bytes());
    for (flags, bytes, reason) in [
        (FIXED, magic, DisconnectReason::OptionMagic),
        (FIXED, long, DisconnectReason::OptionTooLong),
        (FIXED, option(opt::EXPORT_NAME, b"none"), DisconnectReason::UnknownExport),
        (0, option(opt::LIST, &[]), DisconnectReason::NotFixedNewstyle),
        (FIXED, option(opt::ABORT, &[]), DisconnectReason::Requested),
    ] {
        assert_eq!(Started::new(flags).option(&bytes).0, Step::Close(reason));
    }
    let flags = 4_u32.to_be_bytes();
    let step = Handshake::new(1).step(&flags, &Listed(Vec::new()), &mut Vec::new());
    assert_eq!(step, (0, Step::Close(DisconnectReason::ClientFlags)));
}

#[test]
fn options_are_counted() {
    let mut started = Started::new(FIXED);
    for _ in 0..10 {
        assert_eq!(started.kinds(&option(99, &[])), [rep::ERR_UNSUP]);
    }
    let (step, _) = started.option(&option(99, &[]));
    assert_eq!(step, Step::Close(DisconnectReason::TooManyOptions));
}

#[test]
fn a_refused_client_may_try_another_export() {
    let mut started = Started::new(FIXED);
    let (step, _) = started.option(&option(opt::GO, &info_data("vm1", &[])));
    assert_eq!(step, Step::Enter(ExportId(1)));
    let mut output = Vec::new();
    assert_eq!(started.handshake.refuse("in use", &mut output), Step::Continue);
    let reply = take_option_reply(&mut output.as_slice()).expect("a reply");
    assert_eq!((reply.kind, reply.data.as_slice()), (rep::ERR_POLICY, &b"in use"[..]));
    started.enter(&option(opt::GO, &info_data("golden", &[])));

    let mut started = Started::new(FIXED);
    started.option(&option(opt::EXPORT_NAME, b"vm1"));
    let step = started.handshake.refuse("in use", &mut Vec::new());
    assert_eq!(step, Step::Close(DisconnectReason::Policy));
}
