//! From the rings to the engine: requests taken, judged and made the engine's.

use super::Connection;
use crate::load::{Bounds, Load, Rank, Shortage};
use crate::request::{Buffers, Command, Incoming, Ticket};
use crate::table::Table;
use crate::turn_length;
use crate::vhost::block::{self, BlockOp, BlockRequest, Status};
use crate::vhost::chain::Chain;
use crate::vhost::device::{self, feature};
use crate::vhost::export::Export;
use crate::vhost::lease::{Lease, Returned};
use crate::vhost::limits::DESCRIPTORS_PER_TURN;
use crate::vhost::memory::{self, Piece, Pieces};
use crate::vhost::queue::Next;
use crate::vhost::reason::DisconnectReason;
use crate::vhost::slot::{Delivery, Slot};
use crate::vhost::stats::Stats;
use cinnabar_engine::seam::units::{BLOCK_BYTES, ByteSpan};
use cinnabar_engine::seam::{Op, RawMemory};
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
    NoRoom(Shortage),
}

/// What requests are taken with.
pub(in crate::vhost) struct Turn<'a, M, B> {
    pub(in crate::vhost) export: &'a Export,
    pub(in crate::vhost) bounds: &'a Bounds,
    pub(in crate::vhost) total: &'a mut Load,
    /// What earlier connections of this export left behind.
    pub(in crate::vhost) past: Load,
    /// Requests of its other connections.
    pub(in crate::vhost) others: u64,
    /// Whose turn it is, if others wait for room.
    pub(in crate::vhost) rank: Rank,
    pub(in crate::vhost) slots: &'a mut Table<Slot>,
    pub(in crate::vhost) stats: &'a mut Stats,
    /// Requests to this export that were answered with an error here.
    pub(in crate::vhost) refused: &'a mut u64,
    pub(in crate::vhost) returned: &'a Arc<Returned>,
    /// Guests are asked not to kick.
    pub(in crate::vhost) polling: bool,
    /// What its export may still have in this turn; the last request may go beyond.
    pub(in crate::vhost) credit: &'a mut i64,
    pub(in crate::vhost) buffers: &'a mut B,
    pub(in crate::vhost) incoming: &'a mut Vec<Incoming<M>>,
}

/// A request for the engine.
struct Submission<M> {
    op: Op<M>,
    delivery: Delivery,
    /// Where in the guest's memory goes what is read.
    data: Pieces,
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
        if let Some((_, bytes)) = self.queues[usize::from(index)].short.take()
            && self.is_served(index)
            && let Err((short, bytes)) = self.fits(index, bytes, turn)
        {
            // Nothing is read again before there is room for what it was.
            return Ok(self.wait_for(index, short, bytes));
        }
        self.waiter.take_if(|waiter| *waiter == index);
        let mut descriptors = 0;
        while self.is_served(index) {
            let Some(running) = &self.queues[usize::from(index)].running else { break };
            let Some(next) = running.next()? else {
                if running.stopping || turn.polling || !running.ring.ask_for_kicks() {
                    break;
                }
                // One came in the moment before the driver could see that it has to kick.
                continue;
            };
            if *turn.credit <= 0 || descriptors >= DESCRIPTORS_PER_TURN {
                return Ok(Taken::Some);
            }
            turn.stats.chains += 1;
            let indirect = self.features & feature::INDIRECT != 0;
            let chain = Chain::follow(&running.ring, &self.memory, next.head, indirect)?;
            descriptors += chain.count;
            let request = block::parse(turn.export, chain.readable, chain.writable)?;
            let cost = turn_length::cost(request.op.data_bytes());
            if let Err((short, bytes)) = self.take_one(key, index, next, request, turn)? {
                return Ok(self.wait_for(index, short, bytes));
            }
            *turn.credit -= cost;
            // Having waited longest counts once.
            if turn.rank == Rank::Starved {
                turn.rank = Rank::Free;
            }
        }
        // What was read of a ring may be zeros of our own.
        if self.memory.is_broken() { Err(DisconnectReason::MemoryGone) } else { Ok(Taken::All) }
    }

    /// Takes one request. If there is no room for it nothing has changed, and what is missing and
    /// the bytes of its buffer come back.
    fn take_one<M: RawMemory, B: Buffers<M>>(
        &mut self,
        key: u64,
        index: u16,
        next: Next,
        request: BlockRequest,
        turn: &mut Turn<'_, M, B>,
    ) -> Result<Result<(), (Shortage, u64)>, DisconnectReason> {
        let BlockRequest { op, data, status, writable_bytes: len } = request;
        let life = self.life;
        let slot = |delivery, data, bytes, volatile, memory| Slot {
            connection: key,
            life,
            queue: index,
            head: next.head,
            len,
            status: Some(Piece { first: status, len: 1 }),
            bytes,
            volatile,
            memory,
            data,
            delivery,
        };
        let (answer, submission) = match op {
            BlockOp::Answer(status) => (Some((status, Pieces::new())), None),
            BlockOp::Serial => {
                let serial = block::serial(turn.export);
                // SAFETY: the serial number is that long; `self.memory` holds what `data` is in.
                unsafe { memory::copy_to_guest(&data, serial.as_ptr(), serial.len()) };
                (Some((Status::Ok, data)), None)
            }
            _ => match self.submission(index, op, data, turn) {
                Ok(submission) => (None, Some(submission)),
                Err(short) => return Ok(Err(short)),
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
        if let Some((answer, data)) = answer {
            turn.stats.refused_requests += u64::from(answer != Status::Ok);
            *turn.refused += u64::from(answer != Status::Ok);
            running.complete(next.head, len);
            let slot = slot(Delivery::Nothing, data, 0, false, Arc::clone(&self.memory));
            slot.tell(answer);
            if let Some(log) = self.log() {
                slot.mark(log);
            }
        }
        if let Some(Submission { op, delivery, data, bytes }) = submission {
            let volatile = is_volatile(&op);
            self.volatile += u32::from(volatile);
            let memory = Arc::clone(&self.memory);
            let ticket = turn.slots.insert(slot(delivery, data, bytes, volatile, memory));
            turn.incoming.push(Incoming {
                ticket: Ticket(ticket),
                export: self.export,
                command: Command::Engine(op),
            });
        }
        Ok(Ok(()))
    }

    /// A queue's next request, of so many bytes, has to wait.
    fn wait_for(&mut self, index: u16, short: Shortage, bytes: u64) -> Taken {
        self.queues[usize::from(index)].short = Some((short, bytes));
        if bytes > 0 {
            self.waiter.get_or_insert(index);
        }
        Taken::NoRoom(short)
    }

    /// Whether there is room for one more request, or what is missing.
    fn fits<M, B>(
        &self,
        index: u16,
        bytes: u64,
        turn: &Turn<'_, M, B>,
    ) -> Result<(), (Shortage, u64)> {
        if bytes > 0 && self.waiter.is_some_and(|waiter| waiter != index) {
            return Err((Shortage::Own, bytes));
        }
        // All of an export's requests cost the guests of its thread, whatever number of connections they come by. Of
        // those that share an image, whose back end may hang, each has one: what is cached of it is served.
        let depth = self.load.requests + turn.past.requests + turn.others;
        if self.load.requests > 0 && depth >= turn.bounds.connection.requests {
            return Err((Shortage::Own, bytes));
        }
        let more = Load { requests: 1, bytes };
        let fits = turn.bounds.fits(self.load, turn.past, *turn.total, more, turn.rank);
        fits.map_err(|short| (short, bytes))
    }

    /// Makes room for one more request, or says what is missing.
    fn reserve<M, B>(
        &mut self,
        index: u16,
        bytes: u64,
        turn: &mut Turn<'_, M, B>,
    ) -> Result<(), (Shortage, u64)> {
        self.fits(index, bytes, turn)?;
        let more = Load { requests: 1, bytes };
        self.load += more;
        *turn.total += more;
        Ok(())
    }

    /// What the engine is to do, with a buffer and room for it.
    fn submission<M: RawMemory, B: Buffers<M>>(
        &mut self,
        index: u16,
        op: BlockOp,
        data: Pieces,
        turn: &mut Turn<'_, M, B>,
    ) -> Result<Submission<M>, (Shortage, u64)> {
        let fua = !device::is_writeback(self.features, self.writeback);
        let op = match op {
            BlockOp::Read(span) => return self.read(index, span, data, turn),
            BlockOp::Write(span) => {
                let bytes = span.blocks() * BLOCK_BYTES;
                self.reserve(index, bytes, turn)?;
                let buffer = take(turn.buffers, span);
                // What a guest can change is never handed on: it is copied once, here.
                // SAFETY: the buffer has whole blocks around the span, and no other user yet;
                // `self.memory` holds what `data` is in.
                let copied = unsafe {
                    let to = buffer.as_ptr().add(span.head_bytes() as usize);
                    memory::copy_from_guest(&data, to, span.len as usize)
                };
                turn.stats.received_bytes += copied as u64;
                let op = Op::Write { span, data: buffer, fua };
                let data = Pieces::new();
                return Ok(Submission { op, delivery: Delivery::Nothing, data, bytes });
            }
            BlockOp::Discard(span) => Op::Trim { span, fua },
            BlockOp::Zero { span, may_punch } => Op::WriteZeroes { span, fua, may_punch },
            BlockOp::Flush | BlockOp::Serial | BlockOp::Answer(_) => Op::Flush,
        };
        self.reserve(index, 0, turn)?;
        let data = Pieces::new();
        Ok(Submission { op, delivery: Delivery::Nothing, data, bytes: 0 })
    }

    /// A read, into the guest's memory if it is whole blocks everywhere.
    fn read<M: RawMemory, B: Buffers<M>>(
        &mut self,
        index: u16,
        span: ByteSpan,
        data: Pieces,
        turn: &mut Turn<'_, M, B>,
    ) -> Result<Submission<M>, (Shortage, u64)> {
        let whole = |value: u64| value.is_multiple_of(BLOCK_BYTES);
        let aligned = |piece: &Piece| whole(piece.first.addr() as u64) && whole(piece.len as u64);
        if whole(span.offset) && whole(span.len) && data.iter().all(aligned) {
            self.reserve(index, 0, turn)?;
            let lease = Lease::new(Arc::clone(&self.memory), Arc::clone(turn.returned));
            let lease = Arc::new(lease);
            let keep: Arc<dyn Any + Send + Sync> = Arc::clone(&lease) as _;
            let pieces: smallvec::SmallVec<[(*mut u8, usize); 8]> =
                data.iter().map(|piece| (piece.first, piece.len)).collect();
            if let Some(buffer) = turn.buffers.guest(keep, &pieces) {
                turn.stats.direct_reads += 1;
                let op = Op::Read { span, data: buffer };
                return Ok(Submission { op, delivery: Delivery::Direct(lease), data, bytes: 0 });
            }
            let one = Load { requests: 1, bytes: 0 };
            self.load -= one;
            *turn.total -= one;
        }
        let bytes = span.blocks() * BLOCK_BYTES;
        self.reserve(index, bytes, turn)?;
        let op = Op::Read { span, data: take(turn.buffers, span) };
        Ok(Submission { op, delivery: Delivery::Copy { span }, data, bytes })
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
