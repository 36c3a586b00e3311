//! A server that says what the test wants.

use super::*;
use crate::nbd::proto::export_flag;
use proptest::prelude::*;
use std::io::Cursor;

/// A server that has said all it will say beforehand.
struct Script {
    said: Cursor<Vec<u8>>,
    heard: Vec<u8>,
}

impl Read for Script {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.said.read(bytes)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.heard.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn run(said: Vec<u8>) -> (Result<Export, Trouble>, Vec<u8>, usize) {
    let len = said.len();
    let mut script = Script { said: Cursor::new(said), heard: Vec::new() };
    let result = enter(&mut script, "vm1");
    (result, script.heard, len - script.said.position() as usize)
}

fn greeting(flags: u16) -> Vec<u8> {
    let mut bytes = b"NBDMAGICIHAVEOPT".to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes
}

fn answer(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = proto::OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    for field in [option, kind, data.len() as u32] {
        bytes.extend(field.to_be_bytes());
    }
    bytes.extend(data);
    bytes
}

fn export_info(size: u64, flags: u16) -> Vec<u8> {
    let mut data = info::EXPORT.to_be_bytes().to_vec();
    data.extend(size.to_be_bytes());
    data.extend(flags.to_be_bytes());
    answer(option::GO, option_reply::INFO, &data)
}

fn block_info(sizes: [u32; 3]) -> Vec<u8> {
    let mut data = info::BLOCK_SIZE.to_be_bytes().to_vec();
    data.extend(sizes.iter().flat_map(|size| size.to_be_bytes()));
    answer(option::GO, option_reply::INFO, &data)
}

fn structured_ok() -> Vec<u8> {
    answer(option::STRUCTURED_REPLY, option_reply::ACK, &[])
}

fn modern(go: &[Vec<u8>]) -> Vec<u8> {
    [greeting(3), structured_ok(), go.concat()].concat()
}

fn refused(said: Vec<u8>) -> Refusal {
    match run(said).0 {
        Err(Trouble::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_modern_server_is_entered() {
    let flags = export_flag::HAS_FLAGS | export_flag::SEND_FLUSH;
    let said = modern(&[
        block_info([512, 4096, 65_536]),
        // Its name, which was not asked for.
        answer(option::GO, option_reply::INFO, b"\0\x01vm1"),
        export_info(1 << 20, flags),
        answer(option::GO, option_reply::ACK, &[]),
        b"the first reply".to_vec(),
    ]);
    let (result, heard, left) = run(said);
    let blocks = Some((512, 65_536));
    let expected = Export { size_bytes: 1 << 20, flags, blocks, structured: true };
    assert_eq!(result.expect("it is entered"), expected);
    assert_eq!(left, b"the first reply".len(), "not a byte more is taken");
    let mut asked = 3_u32.to_be_bytes().to_vec();
    asked.extend(b"IHAVEOPT\0\0\0\x08\0\0\0\0");
    asked.extend(b"IHAVEOPT\0\0\0\x07\0\0\0\x0b\0\0\0\x03vm1\0\x01\0\x03");
    assert_eq!(heard, asked);
}

#[test]
fn a_server_without_go_is_entered_by_name() {
    let unsupported = |option| answer(option, option_reply::ERR_UNSUP, b"what?");
    for zeroes in [false, true] {
        let flags = if zeroes { proto::FIXED_NEWSTYLE } else { 3 };
        let mut said = [
            greeting(flags),
            unsupported(option::STRUCTURED_REPLY),
            unsupported(option::GO),
            (1_u64 << 20).to_be_bytes().to_vec(),
            export_flag::HAS_FLAGS.to_be_bytes().to_vec(),
        ]
        .concat();
        said.extend(vec![0; if zeroes { 124 } else { 0 }]);
        let (result, _, left) = run(said);
        let export = result.expect("it is entered");
        assert_eq!((export.size_bytes, export.blocks, export.structured), (1 << 20, None, false));
        assert_eq!(left, 0);
    }
}

#[test]
fn refusals_are_told_apart() {
    assert_eq!(refused(b"SSH-2.0-OpenSSH_9.2p1 Debian".to_vec()), Refusal::Stranger);
    assert_eq!(refused(b"NBDMAGICsomething".to_vec()), Refusal::Stranger);
    assert_eq!(refused(b"NBDMAGIC\0\0\x42\x02\x81\x86\x12\x53".to_vec()), Refusal::OldStyle);
    assert_eq!(refused(greeting(0)), Refusal::OldStyle);
    let go = |kind| refused(modern(&[answer(option::GO, kind, b"no")]));
    assert_eq!(go(option_reply::ERR_UNKNOWN), Refusal::Export("vm1".into()));
    assert_eq!(go(option_reply::ERR_TLS_REQD), Refusal::Tls);
    assert_eq!(go(option_reply::ERR_POLICY), Refusal::Policy);
    assert_eq!(go(option_reply::ERR_SHUTDOWN), Refusal::Shutdown);
    assert_eq!(go(0x8000_1234), Refusal::Other(0x8000_1234));
    let tls = [greeting(3), answer(option::STRUCTURED_REPLY, option_reply::ERR_TLS_REQD, &[])];
    assert_eq!(refused(tls.concat()), Refusal::Tls);
}

#[test]
fn a_server_that_breaks_the_protocol_is_left() {
    let ack = answer(option::GO, option_reply::ACK, &[]);
    let mut long = answer(option::GO, option_reply::INFO, &[0; 12]);
    long[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("an export without a size", modern(std::slice::from_ref(&ack))),
        ("a reply that is too long", modern(&[long])),
        ("a reply to another option", modern(&[answer(9, option_reply::ACK, &[])])),
        ("no reply to an option", modern(&[vec![0x55; 20]])),
        ("a reply that is too short", modern(&[answer(option::GO, option_reply::INFO, &[0])])),
        (
            "information of a wrong length",
            modern(&[answer(option::GO, option_reply::INFO, &[0; 11])]),
        ),
        ("an unknown reply to an option", modern(&[answer(option::GO, 77, &[])])),
        ("too many replies to an option", modern(&vec![export_info(4096, 1); 1000])),
    ];
    for (what, said) in cases {
        assert_eq!(refused(said), Refusal::Protocol(what));
    }
}

/// A server that never ends a reply costs its deadline and no memory: data are dropped as they come.
#[test]
fn an_end_at_any_byte_is_an_error() {
    let said = modern(&[export_info(4096, 1), answer(option::GO, option_reply::ACK, &[])]);
    for len in 0..said.len() {
        let (result, ..) = run(said[..len].to_vec());
        assert!(matches!(result, Err(Trouble::Io(_))), "after {len} bytes: {result:?}");
    }
    assert!(run(said).0.is_ok());
}

proptest! {
    /// Whatever follows a sound beginning: an answer, and never more asked than three options.
    #[test]
    fn any_bytes_end(
        begin in 0_usize..3,
        parts in prop::collection::vec((any::<u8>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..40)), 0..6),
        tail in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut said = [Vec::new(), greeting(3), modern(&[])][begin].clone();
        for (option, kind, data) in parts {
            let option = [option::GO, option::STRUCTURED_REPLY, 5][usize::from(option % 3)];
            let kind = [kind, option_reply::ACK, option_reply::INFO, option_reply::ERR_UNSUP][kind as usize % 4];
            said.extend(answer(option, kind, &data));
        }
        said.extend(tail);
        let (_, heard, _) = run(said);
        prop_assert!(heard.len() <= 4 + 16 + (16 + 11) + (16 + 3), "{} bytes", heard.len());
    }
}
