//! Whatever comes in, and however it is cut into pieces: no panic, and the same result.

use crate::client::{info_data, meta_data, option};
use crate::memory::{Heap, Pool};
use crate::{Listed, export};
use cinnabar_engine::Op;
use cinnabar_frontend::nbd::handshake::{self, Directory, Handshake};
use cinnabar_frontend::nbd::proto::Request;
use cinnabar_frontend::nbd::transmission::{self, Room, Transmission};
use cinnabar_frontend::nbd::{Buffers, Command, ExportId};
use proptest::prelude::*;

/// A client's whole life: handshake, then transmission.
enum Phase {
    Handshake(Handshake),
    Transmission(Transmission<Heap>),
    Closed,
}

struct Life {
    phase: Phase,
    directory: Listed,
    pool: Pool,
    unread: Vec<u8>,
    /// Everything that happened.
    trace: Vec<String>,
    output: Vec<u8>,
}

/// Room for some bytes.
struct Bytes(u64);

impl Room for Bytes {
    fn reserve(&mut self, bytes: u64) -> bool {
        bytes <= self.0
    }
}

impl Life {
    fn new() -> Self {
        Self {
            phase: Phase::Handshake(Handshake::new(20)),
            directory: Listed(vec![export(1, "a"), export(2, "b")]),
            pool: Pool::default(),
            unread: Vec::new(),
            trace: Vec::new(),
            output: Vec::new(),
        }
    }

    fn feed(&mut self, piece: &[u8]) {
        self.unread.extend(piece);
        loop {
            let unread = std::mem::take(&mut self.unread);
            let (taken, more) = match &self.phase {
                Phase::Handshake(_) => self.negotiate(&unread),
                Phase::Transmission(_) => self.transmit(&unread),
                Phase::Closed => (unread.len(), false),
            };
            self.unread = unread[taken..].to_vec();
            if !more {
                return;
            }
        }
    }

    fn negotiate(&mut self, unread: &[u8]) -> (usize, bool) {
        let Phase::Handshake(handshake) = &mut self.phase else { return (0, false) };
        let (taken, step) = handshake.step(unread, &self.directory, &mut self.output);
        assert!(taken <= unread.len());
        if step == handshake::Step::NeedMore {
            assert_eq!(taken, 0);
            return (0, false);
        }
        self.trace.push(format!("{step:?}"));
        match step {
            handshake::Step::Enter(ExportId(1)) => {
                let export = self.directory.all().next().expect("it exists");
                let agreed = handshake.grant(export, &mut self.output);
                self.phase = Phase::Transmission(Transmission::new(export, agreed));
            }
            // The second export is in use by another client, say.
            handshake::Step::Enter(_) => {
                if let handshake::Step::Close(_) = handshake.refuse("no", &mut self.output) {
                    self.phase = Phase::Closed;
                }
            }
            handshake::Step::Close(_) => self.phase = Phase::Closed,
            _ => {}
        }
        (taken, true)
    }

    fn transmit(&mut self, unread: &[u8]) -> (usize, bool) {
        let Phase::Transmission(stream) = &mut self.phase else { return (0, false) };
        let mut room = Bytes(1 << 20);
        let (taken, step) = stream.step(unread, &mut room, &mut self.pool);
        assert!(taken <= unread.len());
        match step {
            transmission::Step::NeedMore => return (taken, false),
            transmission::Step::Wait | transmission::Step::Close(_) => {
                self.trace.push("end".into());
                self.phase = Phase::Closed;
            }
            transmission::Step::Refuse(pending, error) => {
                self.trace.push(format!("{pending:?} {error:?}"));
            }
            transmission::Step::Request(pending, command) => {
                self.trace.push(format!("{pending:?} {}", describe(&command)));
                if let Command::Engine(Op::Read { data, .. } | Op::Write { data, .. })
                | Command::Prefetch { data, .. } = command
                {
                    self.pool.give(data);
                }
            }
        }
        (taken, true)
    }

    fn run(pieces: &[&[u8]]) -> (Vec<String>, Vec<u8>) {
        let mut life = Self::new();
        for piece in pieces {
            life.feed(piece);
        }
        if let Phase::Transmission(stream) = &mut life.phase
            && let Some(buffer) = stream.abandon()
        {
            life.pool.give(buffer);
        }
        assert_eq!(life.pool.out(), 0, "a buffer was lost");
        (life.trace, life.output)
    }
}

fn describe(command: &Command<Heap>) -> String {
    match command {
        Command::Engine(Op::Write { span, data, fua }) => {
            format!("write {span:?} {fua} {:?}", data.slice(span.head_bytes(), span.len))
        }
        Command::Engine(Op::Read { span, .. }) => format!("read {span:?}"),
        Command::Prefetch { span, .. } => format!("prefetch {span:?}"),
        other => format!("{other:?}"),
    }
}

/// Lengths and offsets around everything that matters.
fn position() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0_u64..8).prop_map(|sector| sector * 512),
        (2040_u64..2060).prop_map(|sector| sector * 512),
        any::<u64>(),
        0_u64..10_000,
    ]
}

fn any_request() -> impl Strategy<Value = Vec<u8>> {
    let payload = any::<prop::sample::Index>();
    (0_u16..16, 0_u16..9, position(), position(), payload).prop_map(
        |(flags, command, offset, len, payload)| {
            let request = Request { flags, command, cookie: offset ^ len, offset, len: len as u32 };
            let mut bytes = request.encode().to_vec();
            if command == 1 && len < 20_000 {
                // Mostly whole, sometimes cut short.
                let len = usize::try_from(len).expect("it is small");
                let cut = if payload.index(10) == 0 { payload.index(len + 1) } else { len };
                bytes.extend((0..cut).map(|at| (at % 253) as u8));
            }
            bytes
        },
    )
}

fn any_option() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![Just("a"), Just("b"), Just(""), Just("none")];
    prop_oneof![
        4 => Just(option(8, &[])),
        2 => (9_u32..11, name.clone())
            .prop_map(|(kind, name)| option(kind, &meta_data(name, &["base:allocation"]))),
        4 => (6_u32..8, name.clone())
            .prop_map(|(kind, name)| option(kind, &info_data(name, &[1, 2, 3]))),
        1 => name.prop_map(|name| option(1, name.as_bytes())),
        2 => (0_u32..13, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(kind, data)| option(kind, &data)),
    ]
}

/// A stream that gets through to the transmission phase more often than not.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![9 => 0_u32..4, 1 => any::<u32>()];
    let options = prop::collection::vec(any_option(), 0..6);
    let go = prop_oneof![9 => Just(option(7, &info_data("a", &[]))), 1 => Just(Vec::new())];
    let requests = prop::collection::vec(any_request(), 0..8);
    let junk = prop::collection::vec(any::<u8>(), 0..64);
    (flags, options, go, requests, junk).prop_map(|(flags, options, go, requests, junk)| {
        let flags = flags.to_be_bytes().to_vec();
        [flags, options.concat(), go, requests.concat(), junk].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn pieces_do_not_matter(
        bytes in stream(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let whole = Life::run(&[&bytes]);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut rest = bytes.as_slice();
        let mut at = 0;
        for cut in cuts {
            let (piece, tail) = rest.split_at(cut - at);
            pieces.push(piece);
            (rest, at) = (tail, cut);
        }
        pieces.push(rest);
        prop_assert_eq!(&whole, &Life::run(&pieces));
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        prop_assert_eq!(&whole, &Life::run(&single));
    }

    #[test]
    fn junk_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        Life::run(&[&bytes]);
        let entered = [&3_u32.to_be_bytes()[..], &option(7, &info_data("a", &[])), &bytes].concat();
        Life::run(&[&entered]);
    }

    #[test]
    fn damaged_streams_never_panic(
        bytes in stream(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = bytes;
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        Life::run(&[&bytes]);
    }
}
