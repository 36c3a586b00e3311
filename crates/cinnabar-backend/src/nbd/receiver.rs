//! Replies, piece by piece: which request each byte belongs to, and when a request is answered. Pure.
//!
//! The server is not trusted: a reply that does not fit what was asked is a [`Violation`], and
//! nothing of it is used.

use super::in_flight::{Command, Flight, InFlight};
use super::proto::{self, be16, be32, be64, chunk};

/// Longest text that comes with an error.
const ERROR_BYTES_MAX: u32 = 6 + 65_535 + 8;

/// How a server replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// One reply for each request.
    Simple,
    /// Chunks.
    Structured,
}

/// What the server did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it breaks the protocol: {0}")]
pub struct Violation(pub &'static str);

/// Where the data of reads go, and who hears of answers.
pub trait Reader {
    /// `bytes` of a read, from its byte `at` on.
    fn put(&mut self, flight: &Flight, at: u32, bytes: &[u8]);
    /// `len` zeros of a read, from its byte `at` on.
    fn zero(&mut self, flight: &Flight, at: u32, len: u32);
    /// A request is answered, with an error of the protocol's or well.
    fn answered(&mut self, flight: Flight, error: Option<u32>);
}

/// The rest of a read's data, of which nothing is in the input yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Whose.
    pub cookie: u64,
    /// First missing byte within the request.
    pub at: u32,
    /// How many are missing.
    pub len: u32,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// A reply or chunk begins.
    Head,
    /// Data of a read follow; `last` ends the reply.
    Data { rest: Rest, last: bool },
    /// An offset, then data.
    Offset { cookie: u64, len: u32, last: bool },
    /// A hole: offset and length.
    Hole { cookie: u64, last: bool },
    /// An error's number.
    Error { cookie: u64, len: u32, last: bool },
    /// Bytes that say nothing to us.
    Skip { cookie: u64, len: u32, last: bool },
}

/// See the module.
#[derive(Debug)]
pub struct Receiver {
    dialect: Dialect,
    state: State,
}

impl Receiver {
    /// At the first byte behind the handshake.
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, state: State::Head }
    }

    /// Takes what it can of `input`; bytes used. What is left is the beginning of something, at
    /// most 20 bytes.
    ///
    /// # Errors
    /// [`Violation`]; the connection is of no use then.
    pub fn take(
        &mut self,
        input: &[u8],
        in_flight: &mut InFlight,
        reader: &mut impl Reader,
    ) -> Result<usize, Violation> {
        let mut used = 0;
        while let Some(count) = self.step(&input[used..], in_flight, reader)? {
            used += count;
        }
        Ok(used)
    }

    /// The data that come next, so that they can be read to where they belong.
    pub fn rest(&self) -> Option<Rest> {
        match self.state {
            State::Data { rest, .. } => Some(rest),
            _ => None,
        }
    }

    /// The first `count` bytes of [`rest`](Self::rest) were put where they belong.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn was_put(&mut self, count: u32, in_flight: &mut InFlight, reader: &mut impl Reader) {
        let State::Data { rest, last } = &mut self.state else { panic!("no data are expected") };
        assert!(count <= rest.len, "{count} of {} bytes", rest.len);
        rest.at += count;
        rest.len -= count;
        if rest.len == 0 {
            let (cookie, last) = (rest.cookie, *last);
            self.state = State::Head;
            if last {
                // It was whole when its last chunk began.
                answer(cookie, in_flight, reader);
            }
        }
    }

    /// Takes one piece; `None` if it is not all there.
    fn step(
        &mut self,
        input: &[u8],
        in_flight: &mut InFlight,
        reader: &mut impl Reader,
    ) -> Result<Option<usize>, Violation> {
        match self.state {
            State::Head => self.head(input, in_flight, reader),
            State::Data { rest, .. } => {
                let count = input.len().min(rest.len as usize);
                if count > 0 {
                    let flight = known(rest.cookie, in_flight)?;
                    reader.put(flight, rest.at, &input[..count]);
                    self.was_put(count as u32, in_flight, reader);
                }
                Ok((count > 0).then_some(count))
            }
            State::Offset { cookie, len, last } => {
                let Some(field) = input.get(..8) else { return Ok(None) };
                let at = Self::arrive(cookie, be64(field, 0), len, last, in_flight)?;
                self.state = State::Data { rest: Rest { cookie, at, len }, last };
                Ok(Some(8))
            }
            State::Hole { cookie, last } => {
                let Some(field) = input.get(..12) else { return Ok(None) };
                let len = be32(field, 8);
                let at = Self::arrive(cookie, be64(field, 0), len, last, in_flight)?;
                reader.zero(known(cookie, in_flight)?, at, len);
                self.end(cookie, last, in_flight, reader)?;
                Ok(Some(12))
            }
            State::Error { cookie, len, last } => {
                let Some(field) = input.get(..4) else { return Ok(None) };
                let flight = in_flight.get_mut(cookie).ok_or(UNKNOWN)?;
                // An error of nothing is an error all the same.
                if !flight.fail(be32(field, 0).max(1)) {
                    return Err(Violation("error after error, without an end"));
                }
                self.state = State::Skip { cookie, len: len - 4, last };
                Ok(Some(4))
            }
            State::Skip { cookie, len: 0, last } => {
                self.end(cookie, last, in_flight, reader)?;
                Ok(Some(0))
            }
            State::Skip { cookie, len, last } => {
                let count = input.len().min(len as usize);
                self.state = State::Skip { cookie, len: len - count as u32, last };
                Ok((count > 0).then_some(count))
            }
        }
    }

    fn head(
        &mut self,
        input: &[u8],
        in_flight: &mut InFlight,
        reader: &mut impl Reader,
    ) -> Result<Option<usize>, Violation> {
        let Some(magic) = input.get(..4) else { return Ok(None) };
        match be32(magic, 0) {
            proto::SIMPLE_REPLY_MAGIC => {
                let Some(head) = input.get(..proto::SIMPLE_REPLY_BYTES) else { return Ok(None) };
                self.simple(head, in_flight, reader)?;
                Ok(Some(head.len()))
            }
            proto::CHUNK_MAGIC if self.dialect == Dialect::Structured => {
                let Some(head) = input.get(..proto::CHUNK_BYTES) else { return Ok(None) };
                self.chunk(head, in_flight, reader)?;
                Ok(Some(head.len()))
            }
            _ => Err(Violation("something that is no reply")),
        }
    }

    fn simple(
        &mut self,
        head: &[u8],
        in_flight: &mut InFlight,
        reader: &mut impl Reader,
    ) -> Result<(), Violation> {
        let (error, cookie) = (be32(head, 4), be64(head, 8));
        let flight = in_flight.get_mut(cookie).filter(|flight| flight.sent).ok_or(UNKNOWN)?;
        let read = flight.command == Command::Read;
        if read && self.dialect == Dialect::Structured {
            return Err(Violation("a simple reply to a read, where chunks were agreed on"));
        }
        if !flight.is_untouched() {
            return Err(Violation("a simple reply amid chunks"));
        }
        if error != 0 {
            flight.error = Some(error);
        } else if read {
            let len = flight.len;
            flight.arrive(0, u64::from(len));
            self.state = State::Data { rest: Rest { cookie, at: 0, len }, last: true };
            return Ok(());
        }
        answer(cookie, in_flight, reader);
        Ok(())
    }

    fn chunk(
        &mut self,
        head: &[u8],
        in_flight: &mut InFlight,
        reader: &mut impl Reader,
    ) -> Result<(), Violation> {
        let (flags, kind) = (be16(head, 4), be16(head, 6));
        let (cookie, len) = (be64(head, 8), be32(head, 16));
        let last = flags & chunk::DONE != 0;
        let flight = in_flight.get(cookie).filter(|flight| flight.sent).ok_or(UNKNOWN)?;
        let read = flight.command == Command::Read;
        self.state = match kind {
            chunk::NONE if len == 0 && last => {
                return self.end(cookie, last, in_flight, reader);
            }
            chunk::NONE => {
                return Err(Violation("an empty chunk that is not the last, or not empty"));
            }
            chunk::OFFSET_DATA | chunk::OFFSET_HOLE if !read => {
                return Err(Violation("data for what was no read"));
            }
            chunk::OFFSET_DATA if len > 8 && len - 8 <= flight.len => {
                State::Offset { cookie, len: len - 8, last }
            }
            chunk::OFFSET_HOLE if len == 12 => State::Hole { cookie, last },
            chunk::OFFSET_DATA | chunk::OFFSET_HOLE => {
                return Err(Violation("a chunk of a wrong length"));
            }
            kind if kind & chunk::ERROR != 0 => {
                if !(6..=ERROR_BYTES_MAX).contains(&len) {
                    return Err(Violation("an error of a wrong length"));
                }
                State::Error { cookie, len, last }
            }
            _ => return Err(Violation("an unknown kind of chunk")),
        };
        Ok(())
    }

    /// Judges a stretch of a read by its place on the disk; its place within the request.
    fn arrive(
        cookie: u64,
        offset: u64,
        len: u32,
        last: bool,
        in_flight: &mut InFlight,
    ) -> Result<u32, Violation> {
        let flight = in_flight.get_mut(cookie).ok_or(UNKNOWN)?;
        let outside = Violation("data that were not asked for, or came before");
        let at = offset.checked_sub(flight.offset).ok_or(outside)?;
        if !flight.arrive(at, u64::from(len)) {
            return Err(outside);
        }
        if last && flight.error.is_none() && !flight.is_whole() {
            return Err(Violation("a read answered in part"));
        }
        Ok(at as u32)
    }

    /// A chunk without data to come has ended.
    fn end(
        &mut self,
        cookie: u64,
        last: bool,
        in_flight: &mut InFlight,
        reader: &mut impl Reader,
    ) -> Result<(), Violation> {
        self.state = State::Head;
        if last {
            let flight = known(cookie, in_flight)?;
            if flight.command == Command::Read && flight.error.is_none() && !flight.is_whole() {
                return Err(Violation("a read answered in part"));
            }
            answer(cookie, in_flight, reader);
        }
        Ok(())
    }
}

const UNKNOWN: Violation = Violation("a reply to nothing that it was asked");

fn known(cookie: u64, in_flight: &InFlight) -> Result<&Flight, Violation> {
    in_flight.get(cookie).ok_or(UNKNOWN)
}

fn answer(cookie: u64, in_flight: &mut InFlight, reader: &mut impl Reader) {
    let flight = in_flight.remove(cookie);
    let error = flight.error;
    reader.answered(flight, error);
}

#[cfg(test)]
mod tests;
