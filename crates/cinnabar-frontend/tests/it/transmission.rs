//! The transmission phase on byte vectors.

use crate::memory::{Heap, Pool};
use crate::sample::{SIZE, export};
use cinnabar_engine::seam::Op;
use cinnabar_engine::seam::units::ByteSpan;
use cinnabar_frontend::nbd::handshake::Agreed;
use cinnabar_frontend::nbd::proto::{Errno, Request, command as cmd, command_flag as flag};
use cinnabar_frontend::nbd::transmission::{Expect, ForPiece, Load, Room, Step, Transmission};
use cinnabar_frontend::nbd::{Command, DisconnectReason, Export};

/// Room without end, or none at all.
pub(crate) struct Rooms(pub(crate) bool);

impl Room for Rooms {
    fn reserve(&mut self, _more: Load) -> bool {
        self.0
    }

    fn reserve_piece(&mut self, _more: Load) -> ForPiece {
        if self.0 { ForPiece::Granted } else { ForPiece::NoRoom }
    }

    fn is_quiet(&self) -> bool {
        self.0
    }
}

const ALL: Agreed = Agreed { structured: true, block_status: true };

fn start(read_only: bool, agreed: Agreed) -> Transmission<Heap> {
    Transmission::new(&Export { read_only, ..export(1, "vm1") }, agreed)
}

fn request(command: u16, flags: u16, offset: u64, len: u32) -> Vec<u8> {
    Request { flags, command, cookie: 7, offset, len }.encode().to_vec()
}

fn step(stream: &mut Transmission<Heap>, bytes: &[u8]) -> (usize, Step<Heap>) {
    stream.step(bytes, &mut Rooms(true), &mut Pool::default())
}

fn refusal(read_only: bool, agreed: Agreed, bytes: &[u8]) -> Option<Errno> {
    match step(&mut start(read_only, agreed), bytes) {
        (taken, Step::Refuse(pending, error)) => {
            assert_eq!((taken, pending.cookie), (bytes.len(), 7));
            Some(error)
        }
        (_, Step::Request(..)) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_read_covers_whole_blocks() {
    let (taken, step) = step(&mut start(false, ALL), &request(cmd::READ, 0, 3584, 1024));
    let Step::Request(pending, Command::Engine(Op::Read { span, data })) = step else {
        panic!("{step:?}")
    };
    assert_eq!((taken, span), (28, ByteSpan::new(3584, 1024)));
    assert_eq!((pending.expect, pending.load.bytes), (Expect::Data(span), 8192));
    assert_eq!(cinnabar_engine::seam::RawMemory::len_bytes(&data), 8192);
}

#[test]
fn a_write_lands_at_its_place_within_the_block() {
    let payload: Vec<u8> = (0..1024_u32).map(|at| (at % 251) as u8).collect();
    let mut bytes = request(cmd::WRITE, flag::FUA, 8192 + 512, 1024);
    bytes.extend(&payload);
    bytes.extend([1, 2, 3]);
    let (taken, step) = step(&mut start(false, ALL), &bytes);
    let Step::Request(pending, Command::Engine(Op::Write { span, data, fua })) = step else {
        panic!("{step:?}")
    };
    assert_eq!((taken, fua, pending.expect), (28 + 1024, true, Expect::Done));
    assert_eq!(data.slice(span.head_bytes(), 1024), payload);
}

#[test]
fn a_payload_can_be_received_in_place() {
    let mut stream = start(false, ALL);
    let mut bytes = request(cmd::WRITE, 0, 512, 8192);
    bytes.extend([1; 4095]);
    assert!(matches!(step(&mut stream, &bytes), (0, Step::NeedMore)));
    assert!(stream.payload_room().is_none(), "a buffer is taken for what has come");
    bytes.push(1);
    assert!(matches!(step(&mut stream, &bytes), (4124, Step::NeedMore)));
    let room = stream.payload_room().expect("a payload is under way");
    assert_eq!(room.len(), 4096);
    room.fill(2);
    stream.payload_received(4096);
    let (0, Step::Request(_, Command::Engine(Op::Write { data, .. }))) = step(&mut stream, &[])
    else {
        panic!("the payload is whole");
    };
    assert_eq!(data.slice(512, 8192), [[1; 4096], [2; 4096]].concat());
    assert!(stream.payload_room().is_none());
}

#[test]
fn commands_keep_their_flags() {
    let at = |command, flags| match step(&mut start(false, ALL), &request(command, flags, 512, 512))
    {
        (28, Step::Request(_, command)) => command,
        other => panic!("{other:?}"),
    };
    assert!(matches!(at(cmd::FLUSH, 0), Command::Engine(Op::Flush)));
    assert!(matches!(at(cmd::TRIM, flag::FUA), Command::Engine(Op::Trim { fua: true, .. })));
    let zeroes = at(cmd::WRITE_ZEROES, flag::NO_HOLE);
    let Command::Engine(Op::WriteZeroes { may_punch: false, fua: false, .. }) = zeroes else {
        panic!("{zeroes:?}")
    };
    let zeroes = at(cmd::WRITE_ZEROES, flag::FUA);
    let Command::Engine(Op::WriteZeroes { may_punch: true, fua: true, .. }) = zeroes else {
        panic!("{zeroes:?}")
    };
    assert!(matches!(at(cmd::CACHE, 0), Command::Prefetch { .. }));
    let status = at(cmd::BLOCK_STATUS, flag::REQ_ONE);
    assert!(matches!(status, Command::BlockStatus { only_first: true, .. }));
}

#[test]
fn wrong_requests_get_the_protocols_errors() {
    let last = SIZE - 512;
    let plain = Agreed::default();
    let (einval, enospc) = (Some(Errno::Invalid), Some(Errno::NoSpace));
    for (command, flags, offset, len, agreed, expected) in [
        (cmd::READ, 0, last, 512, ALL, None),
        (cmd::READ, 0, last, 1024, ALL, einval),
        (cmd::READ, 0, SIZE, 512, ALL, einval),
        (cmd::READ, 0, u64::MAX - 511, 512, ALL, einval),
        (cmd::READ, 0, 1, 512, ALL, None),
        (cmd::READ, 0, 0, 513, ALL, None),
        (cmd::READ, 0, SIZE - 1, 1, ALL, None),
        (cmd::READ, 0, SIZE - 1, 2, ALL, einval),
        (cmd::READ, 0, 0, 0, ALL, einval),
        (cmd::READ, 0, 0, !511, ALL, einval),
        (cmd::READ, flag::DF, 0, 512, ALL, None),
        (cmd::READ, flag::DF, 0, 512, plain, einval),
        (cmd::READ, flag::FUA, 0, 512, plain, None),
        (cmd::READ, flag::REQ_ONE, 0, 512, ALL, einval),
        (cmd::WRITE, 0, 0, 0, ALL, einval),
        (cmd::TRIM, 0, 0, 1 << 20, ALL, None),
        (cmd::TRIM, 0, 512, (1 << 20) + 512, ALL, einval),
        (cmd::TRIM, flag::NO_HOLE, 0, 512, ALL, einval),
        (cmd::WRITE_ZEROES, 0, 512, (1 << 20) + 512, ALL, enospc),
        (cmd::WRITE_ZEROES, 1 << 4, 0, 512, ALL, einval),
        (cmd::CACHE, 0, last, 1024, ALL, einval),
        (cmd::BLOCK_STATUS, 0, 0, 512, ALL, None),
        (cmd::BLOCK_STATUS, 0, 0, 512, plain, einval),
        (cmd::BLOCK_STATUS, 0, last, 1024, ALL, einval),
        (cmd::FLUSH, 0, 1, 1, plain, None),
        (cmd::FLUSH, 0, u64::MAX, u32::MAX, plain, None),
        (cmd::FLUSH, flag::DF, 0, 0, plain, einval),
        (8, 0, 0, 512, ALL, einval),
        (u16::MAX, 0, 0, 0, ALL, einval),
    ] {
        let bytes = request(command, flags, offset, len);
        let case = (command, flags, offset, len);
        assert_eq!(refusal(false, agreed, &bytes), expected, "{case:?}");
    }
}

#[test]
fn a_read_only_export_takes_no_changes() {
    for command in [cmd::TRIM, cmd::WRITE_ZEROES] {
        let bytes = request(command, 0, 0, 512);
        assert_eq!(refusal(true, ALL, &bytes), Some(Errno::NotPermitted));
    }
    let mut write = request(cmd::WRITE, 0, 0, 512);
    write.extend([0; 512]);
    assert_eq!(refusal(true, ALL, &write), Some(Errno::NotPermitted));
    assert_eq!(refusal(true, ALL, &request(cmd::READ, 0, 0, 512)), None);
    assert_eq!(refusal(true, ALL, &request(cmd::FLUSH, 0, 0, 0)), None);
}

#[test]
fn the_payload_of_a_refused_write_is_skipped() {
    for (flags, offset, len, error) in [
        (0, SIZE - 512, 1024_u32, Errno::NoSpace),
        (0, SIZE - 1, 2, Errno::NoSpace),
        (0, 0, (32 << 20) + 1, Errno::NoSpace),
        (flag::NO_HOLE, 0, 512, Errno::Invalid),
    ] {
        let mut bytes = request(cmd::WRITE, flags, offset, len);
        bytes.extend(vec![0xff; len as usize]);
        assert_eq!(refusal(false, ALL, &bytes), Some(error));
        let mut stream = start(false, ALL);
        step(&mut stream, &bytes);
        let next = step(&mut stream, &request(cmd::READ, 0, 0, 512)).1;
        assert!(matches!(next, Step::Request(..)), "the stream goes on");
    }
}

#[test]
fn requests_without_data_may_have_any_length_and_those_with_data_come_in_pieces() {
    let export = Export { size_bytes: 8 << 30, ..export(1, "vm1") };
    let long = |command, offset, len| {
        let mut stream = Transmission::<Heap>::new(&export, ALL);
        let mut next = step(&mut stream, &request(command, 0, offset, len)).1;
        if let Step::GoOn = next {
            next = step(&mut stream, &[]).1;
        }
        match next {
            Step::Request(pending, Command::Prefetch { span, data }) => {
                assert_eq!(cinnabar_engine::seam::RawMemory::len_bytes(&data), pending.load.bytes);
                Ok(span.len)
            }
            Step::Request(
                _,
                Command::Engine(
                    Op::Trim { span, .. } | Op::WriteZeroes { span, .. } | Op::Read { span, .. },
                )
                | Command::BlockStatus { span, .. },
            ) => Ok(span.len),
            Step::Modify(_, modify) => Ok(modify.span.len),
            Step::Refuse(_, error) => Err(error),
            other => panic!("{other:?}"),
        }
    };
    let max = u32::MAX;
    assert_eq!(long(cmd::TRIM, 0, max), Ok(u64::from(max) - 511));
    assert_eq!(long(cmd::WRITE_ZEROES, 0, max), Ok(max.into()));
    assert_eq!(long(cmd::BLOCK_STATUS, 0, max), Ok(1 << 32));
    assert_eq!(long(cmd::CACHE, 512, max), Ok((32 << 20) - 512));
    assert_eq!(long(cmd::CACHE, 0, 32 << 20), Ok(32 << 20));
    assert_eq!(long(cmd::CACHE, 1, 32 << 20), Ok(32 << 20));
    assert_eq!(long(cmd::READ, 0, 32 << 20), Ok(32 << 20));
    assert_eq!(long(cmd::READ, 0, (32 << 20) + 1), Ok(8 << 20));
    assert_eq!(long(cmd::READ, (8 << 20) - 5, max), Ok(512));
    assert_eq!(long(cmd::READ, 1, 32 << 20), Ok(8 << 20));
}

#[test]
fn a_trim_of_no_whole_sector_is_done_at_once() {
    let step = step(&mut start(false, ALL), &request(cmd::TRIM, 0, 1, 1000)).1;
    assert!(matches!(step, Step::Answer(_, Ok(()))), "{step:?}");
}

#[test]
fn nothing_is_trusted_after_a_wrong_magic_or_a_giant_write() {
    let mut magic = request(cmd::READ, 0, 0, 512);
    magic[3] ^= 1;
    for (bytes, reason) in [
        (magic, DisconnectReason::RequestMagic),
        (request(cmd::WRITE, 0, 0, (64 << 20) + 1), DisconnectReason::WriteTooLong),
        (request(cmd::WRITE, 0, 0, u32::MAX), DisconnectReason::WriteTooLong),
        (request(cmd::DISC, 0, 0, 0), DisconnectReason::Requested),
    ] {
        let step = step(&mut start(false, ALL), &bytes).1;
        assert!(matches!(step, Step::Close(seen) if seen == reason), "{step:?}");
    }
}

#[test]
fn without_room_nothing_is_taken() {
    let mut stream = start(false, ALL);
    let mut pool = Pool::default();
    let bytes = request(cmd::READ, 0, 0, 512);
    let refused = stream.step(&bytes, &mut Rooms(false), &mut pool);
    assert!(matches!(refused, (0, Step::Wait)));
    let granted = stream.step(&bytes, &mut Rooms(true), &mut pool);
    assert!(matches!(granted, (28, Step::Request(..))));
    assert_eq!(pool.out(), 1);
}
