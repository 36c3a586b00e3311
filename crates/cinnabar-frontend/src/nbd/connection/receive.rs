//! Receiving: from the socket to requests.

use super::{Connection, Phase};
use crate::load::{Load, Rank, Shortage};
use crate::nbd::budget::Budget;
use crate::nbd::export::ExportId;
use crate::nbd::handshake;
use crate::nbd::jobs::Jobs;
use crate::nbd::limits::RECEIVES_PER_TURN;
use crate::nbd::long;
use crate::nbd::mutant::{Mutant, Mutants};
use crate::nbd::output::Entry;
use crate::nbd::reason::DisconnectReason;
use crate::nbd::reply;
use crate::nbd::request::{Buffers, Command, Incoming, Ticket};
use crate::nbd::shared::{Part, Shared, Slot};
use crate::nbd::tls::{NOT_ALLOWED, TlsAccess};
use crate::nbd::transmission::{self, Expect, ForPiece, Room};
use crate::turn_length;
use cinnabar_engine::seam::{Op, RawMemory};
use rustix::io::{Errno, retry_on_intr};
use std::collections::BTreeSet;
use std::io::IoSliceMut;

/// Replies of the handshake collected before the client has to read them.
const HANDSHAKE_OUTPUT_BYTES: usize = 4 << 10;
/// A payload of which more than this is missing is received almost alone, so that the next one can
/// go straight into its buffer too.
const LARGE_PAYLOAD_BYTES: usize = 64 << 10;
/// What is received of a payload at a time, at most: as much as a turn of its export may be.
const PAYLOAD_BYTES_MAX: usize = 2 << 20;
/// What is received behind a large payload.
const BEHIND_PAYLOAD_BYTES: usize = 4 << 10;

/// What a block status counts: it asks the back end, and its answer is long.
const BLOCK_STATUS_COST: i64 = 8;

/// Capacity for unread bytes that an idle connection keeps.
const LEFTOVER_BYTES_KEPT: usize = 4 << 10;

/// Why receiving stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nbd) enum Outcome {
    /// Nothing more to read for now.
    Idle,
    /// The turn's budget is used up.
    Backlog,
    /// No room: the load must sink, or the output be read, first.
    Paused,
    /// The client wants to enter an export; to be answered with `grant` or `refuse`.
    Enter(ExportId),
    /// The client goes on over TLS.
    StartTls,
    /// To be closed now.
    Close(DisconnectReason),
}

/// What `pump` works with.
pub(in crate::nbd) struct Turn<'a, M, B> {
    pub(in crate::nbd) shared: &'a mut Shared,
    /// Whose turn it is, if others wait for room.
    pub(in crate::nbd) rank: Rank,
    /// What its export may have in this turn: 1 for a request or 64 KiB.
    pub(in crate::nbd) credit: &'a mut i64,
    pub(in crate::nbd) served: &'a BTreeSet<ExportId>,
    /// Whose certificates are taken.
    pub(in crate::nbd) tls: Option<&'a TlsAccess>,
    pub(in crate::nbd) jobs: &'a mut Jobs<M>,
    pub(in crate::nbd) buffers: &'a mut B,
    pub(in crate::nbd) incoming: &'a mut Vec<Incoming<M>>,
}

/// Room for one more request, within the connection's bound and its export's.
struct Grant<'a> {
    own: &'a mut Load,
    requests_max: u64,
    export: ExportId,
    budget: &'a mut Budget,
    rank: &'a mut Rank,
    /// Of long requests.
    pieces: &'a mut u32,
    /// What was missing, if not of the connection's own bound.
    short: Option<(Shortage, Load)>,
}

impl Room for Grant<'_> {
    fn reserve(&mut self, more: Load) -> bool {
        let Self { own, requests_max, export, budget, rank, short, .. } = self;
        if own.requests + more.requests > *requests_max {
            return false;
        }
        match budget.reserve(*export, **own, more, **rank) {
            Ok(()) => {
                **own += more;
                // Having waited longest counts once.
                if **rank == Rank::Starved {
                    **rank = Rank::Free;
                }
                true
            }
            Err(missing) => {
                *short = Some((missing, more));
                false
            }
        }
    }

    fn reserve_piece(&mut self, more: Load) -> ForPiece {
        if *self.pieces >= long::PIECES_MAX {
            ForPiece::Enough
        } else if self.reserve(more) {
            *self.pieces += 1;
            ForPiece::Granted
        } else {
            ForPiece::NoRoom
        }
    }

    fn is_quiet(&self) -> bool {
        self.own.requests == 0
    }
}

impl<M: RawMemory> Connection<M> {
    /// Receives and takes requests until nothing is left, or for as long as it may.
    pub(in crate::nbd) fn pump<B: Buffers<M>>(
        &mut self,
        key: u64,
        turn: &mut Turn<'_, M, B>,
    ) -> Outcome {
        let messages = self.messages;
        let outcome = self.rounds(key, turn);
        self.paused = outcome == Outcome::Paused;
        let started = match &self.phase {
            Phase::Handshake(_) => false,
            Phase::Transmission(stream) => stream.in_payload() || !self.leftover.is_empty(),
        };
        if !started || self.paused {
            self.message_since = None;
        } else if self.message_since.is_none() || messages != self.messages {
            self.message_since = Some(turn.shared.now);
        }
        outcome
    }

    fn rounds<B: Buffers<M>>(&mut self, key: u64, turn: &mut Turn<'_, M, B>) -> Outcome {
        for _ in 0..RECEIVES_PER_TURN {
            // What it asked for before is answered whole.
            if self.closing.is_some() && !self.is_owed_pieces() {
                return Outcome::Idle;
            }
            if let Some(outcome) = self.take_leftover(key, turn) {
                return outcome;
            }
            if !self.readable || self.closing.is_some() {
                return Outcome::Idle;
            }
            if *turn.credit <= 0 {
                return Outcome::Backlog;
            }
            if let Some(outcome) = self.receive(key, turn) {
                return outcome;
            }
        }
        if self.readable { Outcome::Backlog } else { Outcome::Idle }
    }

    /// Goes on with what was received before.
    fn take_leftover<B: Buffers<M>>(
        &mut self,
        key: u64,
        turn: &mut Turn<'_, M, B>,
    ) -> Option<Outcome> {
        if self.leftover.is_empty() && !self.has_piece() {
            return None;
        }
        let leftover = std::mem::take(&mut self.leftover);
        let (taken, outcome) = self.consume(key, &leftover[self.leftover_at..], turn);
        self.leftover = leftover;
        self.leftover_at += taken;
        if self.leftover_at == self.leftover.len() {
            self.forget_leftover();
        }
        outcome
    }

    pub(super) fn forget_leftover(&mut self) {
        self.leftover_at = 0;
        if self.leftover.capacity() > LEFTOVER_BYTES_KEPT {
            self.leftover = Vec::new();
        } else {
            self.leftover.clear();
        }
    }

    /// Receives once, and takes what came.
    fn receive<B: Buffers<M>>(&mut self, key: u64, turn: &mut Turn<'_, M, B>) -> Option<Outcome> {
        let mut area = std::mem::take(&mut turn.shared.receive_area);
        // A message's beginning: it goes before what is received now. It is shorter than the area,
        // see limits.rs.
        let carried = self.leftover.len() - self.leftover_at;
        area[..carried].copy_from_slice(&self.leftover[self.leftover_at..]);
        let outcome = match self.receive_into(&mut area, carried) {
            Ok((0, _)) => Some(self.end_of_stream(carried)),
            Ok((received, end)) => {
                turn.shared.stats.received_bytes += received as u64;
                *turn.credit -= (received as u64 / turn_length::COST_BYTES).cast_signed();
                self.forget_leftover();
                let (taken, outcome) = self.consume(key, &area[..end], turn);
                self.leftover.extend_from_slice(&area[taken..end]);
                outcome
            }
            Err(Errno::AGAIN) => {
                self.readable = false;
                Some(Outcome::Idle)
            }
            Err(_) => Some(Outcome::Close(DisconnectReason::Broken)),
        };
        turn.shared.receive_area = area;
        outcome
    }

    /// Returns how many bytes came, and where those in `area` end.
    fn receive_into(
        &mut self,
        area: &mut [u8],
        carried: usize,
    ) -> rustix::io::Result<(usize, usize)> {
        if let Phase::Transmission(stream) = &mut self.phase
            && let Some(payload) = stream.payload_room()
        {
            let missing = payload.len().min(PAYLOAD_BYTES_MAX);
            let behind = match missing {
                // What comes next belongs to the payload, too.
                _ if missing < payload.len() => 0,
                _ if missing > LARGE_PAYLOAD_BYTES => BEHIND_PAYLOAD_BYTES,
                _ => area.len(),
            };
            let payload = &mut payload[..missing];
            let mut pieces = [IoSliceMut::new(payload), IoSliceMut::new(&mut area[..behind])];
            let received = retry_on_intr(|| rustix::io::readv(&self.fd, &mut pieces))?;
            self.readable = received == missing + behind;
            stream.payload_received(received.min(missing));
            return Ok((received, received.saturating_sub(missing)));
        }
        let room = &mut area[carried..];
        let received = retry_on_intr(|| rustix::io::read(&self.fd, &mut *room))?;
        // Less than there was room for: the socket is empty, no need to ask again.
        self.readable = received == room.len();
        Ok((received, carried + received))
    }

    fn end_of_stream(&mut self, carried: usize) -> Outcome {
        self.readable = false;
        if let Some(link) = self.tls.as_ref().filter(|link| link.session.failure().is_some()) {
            // An end that TLS does not vouch for is none that the client meant.
            let began = link.session.names().is_some();
            let reason = if began { DisconnectReason::Broken } else { DisconnectReason::TlsFailed };
            return Outcome::Close(reason);
        }
        let within = match &self.phase {
            Phase::Handshake(_) => carried > 0,
            Phase::Transmission(stream) => carried > 0 || stream.in_payload(),
        };
        self.end(if within { DisconnectReason::Truncated } else { DisconnectReason::PeerClosed })
    }

    /// Ends the connection: in an orderly way if there is nothing to complain of.
    fn end(&mut self, reason: DisconnectReason) -> Outcome {
        if !reason.is_ordinary() {
            return Outcome::Close(reason);
        }
        self.closing = Some(reason);
        Outcome::Idle
    }

    /// Takes whole messages off `input`; returns how many bytes that were, and why it stopped
    /// unless only because the rest is incomplete.
    fn consume<B: Buffers<M>>(
        &mut self,
        key: u64,
        input: &[u8],
        turn: &mut Turn<'_, M, B>,
    ) -> (usize, Option<Outcome>) {
        match self.phase {
            Phase::Handshake(_) => self.consume_options(input, turn),
            Phase::Transmission(_) => self.consume_requests(key, input, turn),
        }
    }

    /// Looks who the client is, before anything that it sent over TLS is answered.
    fn judge<B>(&mut self, turn: &mut Turn<'_, M, B>) {
        let Some(link) = self.tls.as_mut().filter(|link| !link.judged) else { return };
        let Phase::Handshake(handshake) = &mut self.phase else { return };
        link.judged = true;
        let Err(names) = link.admits(turn.tls, self.peer) else { return };
        handshake.forbid(NOT_ALLOWED);
        turn.shared.stats.refused_clients += 1;
        if turn.shared.warnings.allow(turn.shared.now) {
            let (peer, reason) = (self.peer, "none of its certificate's names is in tls_allow");
            tracing::warn!(%peer, names, reason, "NBD client refused");
        }
    }

    fn consume_options<B>(
        &mut self,
        input: &[u8],
        turn: &mut Turn<'_, M, B>,
    ) -> (usize, Option<Outcome>) {
        self.judge(turn);
        let Phase::Handshake(handshake) = &mut self.phase else { return (0, None) };
        let directory = turn.shared.exports.view(turn.served);
        let mut output = Vec::new();
        let mut taken = 0;
        let outcome = loop {
            // Answers are longer than questions: no more of them until these are read.
            if !self.output.is_empty() || output.len() >= HANDSHAKE_OUTPUT_BYTES {
                break Some(Outcome::Paused);
            }
            if *turn.credit <= 0 {
                break Some(Outcome::Backlog);
            }
            let (len, step) = handshake.step(&input[taken..], &directory, &mut output);
            taken += len;
            *turn.credit -= 1;
            match step {
                handshake::Step::NeedMore => break None,
                handshake::Step::Continue => self.messages += 1,
                handshake::Step::Enter(export) => break Some(Outcome::Enter(export)),
                handshake::Step::StartTls if taken < input.len() => {
                    break Some(Outcome::Close(DisconnectReason::TlsPlaintext));
                }
                handshake::Step::StartTls => {
                    self.messages += 1;
                    // Nothing else waits to be sent: options are taken one output at a time.
                    self.prelude = output;
                    return (taken, Some(Outcome::StartTls));
                }
                handshake::Step::Close(reason) => break Some(self.end(reason)),
            }
        };
        if !output.is_empty() {
            self.output.push(Entry::handshake(output));
        }
        (taken, outcome)
    }

    fn consume_requests<B: Buffers<M>>(
        &mut self,
        key: u64,
        input: &[u8],
        turn: &mut Turn<'_, M, B>,
    ) -> (usize, Option<Outcome>) {
        let (Phase::Transmission(stream), Some(export)) = (&mut self.phase, self.export) else {
            return (0, None);
        };
        let shared = &mut *turn.shared;
        // The client may be back on another connection by now: what it asked for on this one before it was cut
        // must not come behind that.
        let is_cut = self.tls.as_ref().is_some_and(|link| link.session.failure().is_some());
        let mut taken = 0;
        let outcome = loop {
            if is_cut && !stream.is_goodbye(&input[taken..]) {
                break Some(Outcome::Close(DisconnectReason::Broken));
            }
            let mut room = Grant {
                own: &mut self.load,
                requests_max: u64::from(shared.limits.connection_requests_max),
                export,
                budget: &mut shared.budget,
                rank: &mut turn.rank,
                pieces: &mut self.pieces,
                short: None,
            };
            let (len, step) = stream.step(&input[taken..], &mut room, turn.buffers);
            taken += len;
            let cost = cost(&step, shared.limits.mutants);
            self.messages += u64::from(is_message(&step));
            match step {
                transmission::Step::NeedMore => break None,
                transmission::Step::GoOn => {}
                transmission::Step::Wait => {
                    self.short = room.short;
                    break Some(Outcome::Paused);
                }
                transmission::Step::Request(pending, command) => {
                    shared.stats.requests += count(pending.expect);
                    self.in_engine += pending.load();
                    let slot = Slot { connection: key, export, pending, part: Part::Whole };
                    let ticket = Ticket(shared.slots.insert(slot));
                    turn.jobs.submit(Incoming { ticket, export, command }, turn.incoming);
                }
                transmission::Step::Modify(pending, modify) => {
                    shared.stats.requests += count(pending.expect);
                    self.in_engine += pending.load();
                    let slot = Slot { connection: key, export, pending, part: Part::Whole };
                    let slots = &mut shared.slots;
                    turn.jobs.begin(slot, modify, slots, turn.buffers, turn.incoming);
                }
                transmission::Step::Answer(pending, result) => {
                    shared.stats.requests += 1;
                    self.output.push(reply::done(&pending, result));
                }
                transmission::Step::Refuse(pending, error) => {
                    shared.stats.requests += 1;
                    shared.refuse(export);
                    let (entry, _) = reply::encode(stream.agreed(), &pending, Err(error));
                    self.output.push(entry);
                }
                transmission::Step::Close(reason) => break Some(self.end(reason)),
            }
            *turn.credit -= cost;
            if *turn.credit <= 0 {
                break Some(Outcome::Backlog);
            }
        };
        (taken, outcome)
    }
}

/// Whether a client has gone on by a step.
const fn is_message<M>(step: &transmission::Step<M>) -> bool {
    use transmission::Step::{Close, NeedMore, Wait};
    !matches!(step, NeedMore | Wait | Close(_))
}

/// What a step takes of a turn. (The data of a write counted when they came.)
fn cost<M>(step: &transmission::Step<M>, mutants: Mutants) -> i64 {
    match step {
        transmission::Step::Request(_, Command::BlockStatus { .. })
            if !mutants.is(Mutant::BlockStatusCheap) =>
        {
            BLOCK_STATUS_COST
        }
        transmission::Step::Request(
            pending,
            Command::Engine(Op::Read { .. }) | Command::Prefetch { .. },
        ) => turn_length::cost(pending.load.bytes),
        _ => 1,
    }
}

/// A long request counts when it is answered, not its pieces.
fn count(expect: Expect) -> u64 {
    u64::from(!matches!(expect, Expect::Piece(_)))
}
