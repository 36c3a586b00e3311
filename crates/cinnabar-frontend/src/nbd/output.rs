//! Replies on their way out: a queue that is sent gathered, read data straight from their buffers.
//!
//! The queue is bounded by the requests a connection may have in flight.

use super::limits::GATHER_MAX;
use super::load::Load;
use super::memory;
use super::request::Buffers;
use cinnabar_engine::seam::RawMemory;
use cinnabar_engine::seam::units::Instant;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::IoSlice;

/// Longest head: a structured chunk with an offset.
const HEAD_BYTES: usize = 28;

/// What follows a head.
#[derive(Debug)]
pub(super) enum Tail<M> {
    /// Nothing follows the header.
    Nothing,
    /// `len` bytes of a buffer, from `at` on.
    Buffer { buffer: M, at: u64, len: u64 },
    /// Bytes made for this.
    Bytes(Vec<u8>),
}

/// A reply, or output of the handshake.
#[derive(Debug)]
pub(super) struct Entry<M> {
    head: [u8; HEAD_BYTES],
    head_len: u8,
    pub(super) tail: Tail<M>,
    /// What leaves the connection's load with it.
    load: Load,
    /// A piece of a long reply.
    pub(super) is_piece: bool,
    /// Since when it waits for its client, who did not read what was before it.
    since: Option<Instant>,
}

impl<M> Entry<M> {
    /// An empty reply to a request that held `load`.
    pub(super) const fn new(load: Load) -> Self {
        let (head, tail, since) = ([0; HEAD_BYTES], Tail::Nothing, None);
        Self { head, head_len: 0, tail, load, is_piece: false, since }
    }

    /// Output of the handshake, no reply to a request.
    pub(super) fn handshake(bytes: Vec<u8>) -> Self {
        let mut entry = Self::new(Load { requests: 0, bytes: 0 });
        entry.tail = Tail::Bytes(bytes);
        entry
    }

    /// Appends to the head.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        let at = usize::from(self.head_len);
        self.head[at..at + bytes.len()].copy_from_slice(bytes);
        self.head_len += bytes.len() as u8;
    }
}

impl<M: RawMemory> Entry<M> {
    fn pieces(&self) -> [&[u8]; 2] {
        let tail = match &self.tail {
            Tail::Nothing => &[][..],
            Tail::Buffer { buffer, at, len } => {
                memory::bytes(buffer, *at, *len).expect("checked when the reply was made")
            }
            Tail::Bytes(bytes) => bytes,
        };
        [&self.head[..usize::from(self.head_len)], tail]
    }

    fn len(&self) -> usize {
        let [head, tail] = self.pieces();
        head.len() + tail.len()
    }
}

/// What became of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// Bytes that left.
    pub(super) bytes: u64,
    /// Pieces of long replies that left.
    pub(super) pieces: u32,
    /// The client takes no more for now.
    pub(super) blocked: bool,
}

/// The queue of one connection.
#[derive(Debug)]
pub(super) struct Output<M> {
    queue: VecDeque<Entry<M>>,
    /// Bytes of the first entry that have left.
    sent: usize,
    /// Since when the first entry is the first.
    front_since: Option<Instant>,
}

impl<M: RawMemory> Output<M> {
    pub(super) const fn new() -> Self {
        Self { queue: VecDeque::new(), sent: 0, front_since: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn push(&mut self, entry: Entry<M>) {
        self.queue.push_back(entry);
    }

    /// Since when the oldest entry has waited for the client. (One that was not offered yet does not wait.)
    pub(super) fn oldest_since(&self) -> Option<Instant> {
        self.queue.front().and_then(|entry| entry.since)
    }

    /// Since when the first entry has been waiting to leave, as far as [`Self::send`] noticed.
    pub(super) const fn waiting_since(&self) -> Option<Instant> {
        self.front_since
    }

    /// Hands up to `bytes_max` of what is queued to `send`, as much as it takes, and adds what was let go to
    /// `released`. `send` returns how many bytes it took, 0 if none for now.
    pub(super) fn send<E>(
        &mut self,
        now: Instant,
        bytes_max: usize,
        released: &mut Load,
        buffers: &mut impl Buffers<M>,
        mut send: impl FnMut(&[IoSlice<'_>]) -> Result<usize, E>,
    ) -> Result<Sent, E> {
        let mut sent = Sent { bytes: 0, pieces: 0, blocked: false };
        while !self.queue.is_empty() && sent.bytes < bytes_max as u64 {
            let (pieces, offered) = self.gather(bytes_max - sent.bytes as usize);
            let taken = send(&pieces)?;
            drop(pieces);
            sent.bytes += taken as u64;
            if self.advance(taken, &mut sent, released, buffers) || self.front_since.is_none() {
                self.front_since = Some(now);
            }
            if taken < offered {
                sent.blocked = true;
                self.wait(now);
                return Ok(sent);
            }
        }
        if self.queue.is_empty() {
            self.front_since = None;
        }
        Ok(sent)
    }

    /// What was queued since the last time waits for the client from now on.
    pub(super) fn wait(&mut self, now: Instant) {
        let fresh = self.queue.iter_mut().rev().take_while(|entry| entry.since.is_none());
        fresh.for_each(|entry| entry.since = Some(now));
    }

    /// The first pieces of the queue, and their bytes, at most so many.
    fn gather(&self, bytes_max: usize) -> (SmallVec<[IoSlice<'_>; GATHER_MAX]>, usize) {
        let mut pieces = SmallVec::new();
        let mut offered = 0;
        let mut skip = self.sent;
        for entry in &self.queue {
            if pieces.len() + 2 > GATHER_MAX || offered == bytes_max {
                break;
            }
            for piece in entry.pieces() {
                let rest = &piece[skip.min(piece.len())..];
                skip = skip.saturating_sub(piece.len());
                let rest = &rest[..rest.len().min(bytes_max - offered)];
                if !rest.is_empty() {
                    offered += rest.len();
                    pieces.push(IoSlice::new(rest));
                }
            }
        }
        (pieces, offered)
    }

    /// `taken` bytes have left; returns whether an entry left whole.
    fn advance(
        &mut self,
        taken: usize,
        sent: &mut Sent,
        released: &mut Load,
        buffers: &mut impl Buffers<M>,
    ) -> bool {
        let mut moved = false;
        self.sent += taken;
        while let Some(front) = self.queue.front() {
            let len = front.len();
            if self.sent < len {
                break;
            }
            self.sent -= len;
            moved = true;
            *released += front.load;
            sent.pieces += u32::from(front.is_piece);
            if let Some(Entry { tail: Tail::Buffer { buffer, .. }, .. }) = self.queue.pop_front() {
                buffers.give(buffer);
            }
        }
        moved
    }

    /// Gives all buffers back, for a connection that is closed.
    pub(super) fn clear(&mut self, buffers: &mut impl Buffers<M>) {
        for entry in self.queue.drain(..) {
            if let Tail::Buffer { buffer, .. } = entry.tail {
                buffers.give(buffer);
            }
        }
        self.sent = 0;
        self.front_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cinnabar_engine::seam::Payload;
    use proptest::prelude::*;
    use std::convert::Infallible;

    /// Memory of which there is none: these entries bring their own bytes.
    #[derive(Clone, Debug)]
    enum NoMemory {}

    impl Payload for NoMemory {
        fn alloc(_blocks: u32) -> Self {
            unreachable!("no test needs it")
        }
        fn copy_from(&self, _at: u64, _from: &Self, _from_at: u64, _len: u64) {}
        fn zero(&self, _at: u64, _len: u64) {}
        fn checksum(&self, _at: u64, _seed: u64) -> u32 {
            0
        }
    }

    // SAFETY: there is no value of this type.
    unsafe impl RawMemory for NoMemory {
        fn as_ptr(&self) -> *mut u8 {
            match *self {}
        }
        fn len_bytes(&self) -> u64 {
            match *self {}
        }
    }

    struct NoBuffers;

    impl Buffers<NoMemory> for NoBuffers {
        fn take(&mut self, blocks: u32) -> NoMemory {
            NoMemory::alloc(blocks)
        }
        fn give(&mut self, buffer: NoMemory) {
            match buffer {}
        }
    }

    proptest! {
        #[test]
        fn every_byte_leaves_once_and_in_order(
            entries in prop::collection::vec((0_usize..=HEAD_BYTES, 0_usize..40), 1..700),
            takes in prop::collection::vec(0_usize..400, 1..50),
        ) {
            let mut output = Output::new();
            let mut expected = Vec::new();
            let mut byte = 0_u8;
            let mut bytes = |len| -> Vec<u8> {
                (0..len).map(|_| { byte = byte.wrapping_add(1); byte }).collect()
            };
            for &(head, tail) in &entries {
                let mut entry = Entry::new(Load { requests: 1, bytes: 1 });
                let (head, tail) = (bytes(head), bytes(tail));
                expected.extend([head.as_slice(), &tail].concat());
                entry.put(&head);
                entry.tail = Tail::Bytes(tail);
                output.push(entry);
            }
            let mut released = Load::default();
            let mut seen = Vec::new();
            let mut takes = takes.into_iter().cycle();
            for turn in 0..100_000 {
                // A socket that takes some bytes, and in the end everything.
                let mut room = if turn < 100 { takes.next().unwrap_or(0) } else { usize::MAX };
                let most = if turn % 3 == 0 { usize::MAX } else { 200 };
                let sent = output.send(Instant(turn), most, &mut released, &mut NoBuffers, |pieces| {
                    assert!(pieces.len() <= GATHER_MAX);
                    let all: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
                    assert!(all.len() <= most);
                    let taken = all.len().min(room);
                    room -= taken;
                    seen.extend_from_slice(&all[..taken]);
                    Ok::<_, Infallible>(taken)
                });
                let Ok(sent) = sent;
                prop_assert!(sent.bytes <= most as u64);
                prop_assert!(!sent.blocked || !output.is_empty());
                prop_assert!(sent.blocked || output.is_empty() || sent.bytes == most as u64);
                prop_assert_eq!(output.is_empty(), output.waiting_since().is_none());
                if output.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(seen, expected);
            let count = entries.len() as u64;
            prop_assert_eq!(released, Load { requests: count, bytes: count });
        }
    }
}
