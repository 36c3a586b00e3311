//! A client's whole connection on bytes alone: handshake, then transmission. Shared with the fuzz
//! targets.

use super::memory::{Heap, Pool};
use super::sample::{Listed, export};
use cinnabar_engine::seam::Op;
use cinnabar_frontend::nbd::handshake::{self, Agreed, Directory, Handshake};
use cinnabar_frontend::nbd::transmission::{
    self, ForPiece, Load, Modify, Room, Transmission, With,
};
use cinnabar_frontend::nbd::{Buffers, Command, ExportId};

enum Phase {
    Handshake(Handshake),
    Transmission(Transmission<Heap>),
    Closed,
}

pub(crate) struct Life {
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
    fn reserve(&mut self, Load { bytes, .. }: Load) -> bool {
        bytes <= self.0
    }

    fn reserve_piece(&mut self, more: Load) -> ForPiece {
        if self.reserve(more) { ForPiece::Granted } else { ForPiece::NoRoom }
    }

    fn is_quiet(&self) -> bool {
        true
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
            transmission::Step::GoOn => {}
            transmission::Step::Wait | transmission::Step::Close(_) => {
                self.trace.push("end".into());
                self.phase = Phase::Closed;
            }
            transmission::Step::Refuse(pending, error) => {
                self.trace.push(format!("{pending:?} {error:?}"));
            }
            transmission::Step::Answer(pending, result) => {
                self.trace.push(format!("{pending:?} {result:?}"));
            }
            transmission::Step::Modify(pending, Modify { span, fua, with }) => {
                let what = match &with {
                    With::Data(Some(data)) => data.slice(span.head_bytes(), span.len).to_vec(),
                    other => format!("{other:?}").into_bytes(),
                };
                self.trace.push(format!("{pending:?} modify {span:?} {fua} {what:?}"));
                if let With::Data(Some(data)) = with {
                    self.pool.give(data);
                }
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

    /// What happens, and what is sent, when these pieces arrive.
    #[allow(dead_code, reason = "not every user of this file asks")]
    pub(crate) fn run(pieces: &[&[u8]]) -> (Vec<String>, Vec<u8>) {
        Self::new().live(pieces)
    }

    /// The same from the middle of a connection: an export was entered.
    #[allow(dead_code, reason = "not every user of this file asks")]
    pub(crate) fn run_entered(agreed: Agreed, pieces: &[&[u8]]) -> (Vec<String>, Vec<u8>) {
        let mut life = Self::new();
        let export = life.directory.all().next().expect("it exists");
        life.phase = Phase::Transmission(Transmission::new(export, agreed));
        life.live(pieces)
    }

    fn live(mut self, pieces: &[&[u8]]) -> (Vec<String>, Vec<u8>) {
        let life = &mut self;
        for piece in pieces {
            life.feed(piece);
        }
        if let Phase::Transmission(stream) = &mut life.phase {
            stream.abandon(&mut life.pool);
        }
        assert_eq!(life.pool.out(), 0, "a buffer was lost");
        (self.trace, self.output)
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
