//! From the rings to the engine: requests taken, judged and made the engine's.
//!
//! Called by the server when a queue was kicked, is polled, or has room again.

use super::Connection;
use crate::load::{Bounds, Load};
use crate::request::{Buffers, Command, Incoming, Ticket};
use crate::table::Table;
use crate::vhost::block::{self, BlockRequest, Status, Wish};
use crate::vhost::chain::Chain;
use crate::vhost::device::{self, feature};
use crate::vhost::export::Export;
use crate::vhost::lease::{Lease, Returned};
use crate::vhost::limits::REQUESTS_PER_TURN;
use crate::vhost::memory::{self, Piece};
use crate::vhost::queue::Next;
use crate::vhost::reason::DisconnectReason;
use crate::vhost::slot::{Fate, Slot};
use crate::vhost::stats::Stats;
use cinnabar_engine::units::{BLOCK_BYTES, ByteSpan};
use cinnabar_engine::{Op, RawMemory};
use std::any::Any;
use std::sync::Arc;

/// Why taking requests stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::vhost) enum Taken {
    /// Nothing is left.
    All,
    /// The turn's budget is used up.
    Some,
    /// There is no room for the next one.
    NoRoom,
}

/// What requests are taken with.
pub(in crate::vhost) struct Turn<'a, M, B> {
    pub(in crate::vhost) export: &'a Export,
    pub(in crate::vhost) bounds: &'a Bounds,
    pub(in crate::vhost) total: &'a mut Load,
    pub(in crate::vhost) slots: &'a mut Table<Slot>,
    pub(in crate::vhost) stats: &'a mut Stats,
    pub(in crate::vhost) returned: &'a Arc<Returned>,
    /// Guests are told not to kick.
    pub(in crate::vhost) polling: bool,
    pub(in crate::vhost) buffers: &'a mut B,
    pub(in crate::vhost) incoming: &'a mut Vec<Incoming<M>>,
}

/// A request for the engine.
struct Submission<M> {
    op: Op<M>,
    fate: Fate,
    /// Of its private buffer.
    bytes: u64,
}

impl Connection {
    /// Takes requests from a queue, for as long as it may.
    pub(in crate::vhost) fn take_requests<M: RawMemory, B: Buffers<M>>(
        &mut self,
        key: u64,
        index: u16,
        turn: &mut Turn<'_, M, B>,
    ) -> Result<Taken, DisconnectReason> {
        let mut taken = 0;
        while self.is_served(index) {
            let Some(running) = &self.queues[usize::from(index)].running else { break };
            let Some(next) = running.next()? else {
                if running.stopping || turn.polling || !running.ring.ask_for_kicks() {
                    break;
                }
                // One came in the moment before the driver could see that it has to kick.
                continue;
            };
            if taken == REQUESTS_PER_TURN {
                return Ok(Taken::Some);
            }
            let indirect = self.features & feature::INDIRECT != 0;
            let chain = Chain::follow(&running.ring, &self.memory, next.head, indirect)?;
            let request = block::parse(turn.export, chain.readable, chain.writable)?;
            if !self.take_one(key, index, next, request, turn)? {
                return Ok(Taken::NoRoom);
            }
            taken += 1;
        }
        // What was read of a ring may be zeros of our own.
        if self.memory.is_broken() { Err(DisconnectReason::MemoryGone) } else { Ok(Taken::All) }
    }

    /// Takes one request. False if there is no room for it: nothing has changed then.
    fn take_one<M: RawMemory, B: Buffers<M>>(
        &mut self,
        key: u64,
        index: u16,
        next: Next,
        request: BlockRequest,
        turn: &mut Turn<'_, M, B>,
    ) -> Result<bool, DisconnectReason> {
        let BlockRequest { wish, data, status, writable_bytes: len } = request;
        let slot = |fate, bytes, volatile, memory| Slot {
            connection: key,
            queue: index,
            head: next.head,
            len,
            status: Some(Piece { first: status, len: 1 }),
            bytes,
            volatile,
            _memory: memory,
            fate,
        };
        let answer = match wish {
            Wish::Answer(status) => Some(status),
            Wish::Serial => {
                let serial = block::serial(turn.export);
                // SAFETY: the serial number is that long; `self.memory` holds what `data` is in.
                unsafe { memory::copy_to_guest(&data, serial.as_ptr(), serial.len()) };
                Some(Status::Ok)
            }
            _ => None,
        };
        let submission = match answer {
            Some(_) => None,
            None => match self.submission(wish, &data, turn) {
                Some(submission) => Some(submission),
                None => return Ok(false),
            },
        };
        if self.memory.is_broken() {
            // What was read may be zeros, and must not be written anywhere.
            self.withdraw(submission, turn);
            return Err(DisconnectReason::MemoryGone);
        }
        let queue = self.queues[usize::from(index)].running.as_mut();
        let running = queue.expect("a request was just found in it");
        running.take(next);
        turn.stats.requests += 1;
        turn.stats.replayed_requests += u64::from(next.replayed);
        if let Some(answer) = answer {
            turn.stats.refused_requests += u64::from(answer != Status::Ok);
            slot(Fate::Nothing, 0, false, Arc::clone(&self.memory)).tell(answer);
            running.complete(next.head, len);
        }
        if let Some(Submission { op, fate, bytes }) = submission {
            let volatile = is_volatile(&op);
            self.volatile += u32::from(volatile);
            let memory = Arc::clone(&self.memory);
            let ticket = turn.slots.insert(slot(fate, bytes, volatile, memory));
            turn.incoming.push(Incoming {
                ticket: Ticket(ticket),
                export: self.export,
                command: Command::Engine(op),
            });
        }
        Ok(true)
    }

    /// What the engine is to do, with a buffer and room for it; `None`: there is no room.
    fn submission<M: RawMemory, B: Buffers<M>>(
        &mut self,
        wish: Wish,
        data: &[Piece],
        turn: &mut Turn<'_, M, B>,
    ) -> Option<Submission<M>> {
        let fua = !device::is_writeback(self.features, self.writeback);
        let op = match wish {
            Wish::Read(span) => return self.read(span, data, turn),
            Wish::Write(span) => {
                let bytes = span.blocks() * BLOCK_BYTES;
                turn.bounds.reserve(&mut self.load, turn.total, bytes).then_some(())?;
                let buffer = take(turn.buffers, span);
                // What a guest can change is never handed on: it is copied once, here.
                // SAFETY: the buffer has whole blocks around the span, and no other user yet;
                // `self.memory` holds what `data` is in.
                let copied = unsafe {
                    let to = buffer.as_ptr().add(span.head_bytes() as usize);
                    memory::copy_from_guest(data, to, span.len as usize)
                };
                turn.stats.received_bytes += copied as u64;
                let op = Op::Write { span, data: buffer, fua };
                return Some(Submission { op, fate: Fate::Nothing, bytes });
            }
            Wish::Discard(span) => Op::Trim { span, fua },
            Wish::Zero { span, may_punch } => Op::WriteZeroes { span, fua, may_punch },
            Wish::Flush | Wish::Serial | Wish::Answer(_) => Op::Flush,
        };
        turn.bounds.reserve(&mut self.load, turn.total, 0).then_some(())?;
        Some(Submission { op, fate: Fate::Nothing, bytes: 0 })
    }

    /// A read, into the guest's memory if it is whole blocks everywhere.
    fn read<M: RawMemory, B: Buffers<M>>(
        &mut self,
        span: ByteSpan,
        data: &[Piece],
        turn: &mut Turn<'_, M, B>,
    ) -> Option<Submission<M>> {
        let whole = |value: u64| value.is_multiple_of(BLOCK_BYTES);
        let aligned = |piece: &Piece| whole(piece.first.addr() as u64) && whole(piece.len as u64);
        if whole(span.offset) && whole(span.len) && data.iter().all(aligned) {
            turn.bounds.reserve(&mut self.load, turn.total, 0).then_some(())?;
            let lease = Lease::new(Arc::clone(&self.memory), Arc::clone(turn.returned));
            let lease = Arc::new(lease);
            let keep: Arc<dyn Any + Send + Sync> = Arc::clone(&lease) as _;
            let pieces: smallvec::SmallVec<[(*mut u8, usize); 8]> =
                data.iter().map(|piece| (piece.first, piece.len)).collect();
            if let Some(buffer) = turn.buffers.guest(keep, &pieces) {
                turn.stats.direct_reads += 1;
                let op = Op::Read { span, data: buffer };
                return Some(Submission { op, fate: Fate::Direct(lease), bytes: 0 });
            }
            let one = Load { requests: 1, bytes: 0 };
            self.load -= one;
            *turn.total -= one;
        }
        let bytes = span.blocks() * BLOCK_BYTES;
        turn.bounds.reserve(&mut self.load, turn.total, bytes).then_some(())?;
        let op = Op::Read { span, data: take(turn.buffers, span) };
        Some(Submission { op, fate: Fate::Copy { to: data.into(), span }, bytes })
    }

    /// Gives back what a submission took.
    fn withdraw<M: RawMemory, B: Buffers<M>>(
        &mut self,
        submission: Option<Submission<M>>,
        turn: &mut Turn<'_, M, B>,
    ) {
        let Some(Submission { op, bytes, .. }) = submission else { return };
        if let Op::Read { data, .. } | Op::Write { data, .. } = op {
            turn.buffers.give(data);
        }
        let load = Load { requests: 1, bytes };
        self.load -= load;
        *turn.total -= load;
    }
}

/// Whether it changes the disk without being durable when it is answered.
const fn is_volatile<M>(op: &Op<M>) -> bool {
    matches!(
        op,
        Op::Write { fua: false, .. }
            | Op::Trim { fua: false, .. }
            | Op::WriteZeroes { fua: false, .. }
    )
}

/// A buffer for `span`.
fn take<M: RawMemory>(buffers: &mut impl Buffers<M>, span: ByteSpan) -> M {
    let blocks = u32::try_from(span.blocks()).expect("requests with data are at most 32 MiB");
    let data = buffers.take(blocks);
    assert!(data.len_bytes() >= span.blocks() * BLOCK_BYTES, "the pool gave a short buffer");
    data
}
