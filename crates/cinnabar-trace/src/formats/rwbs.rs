//! What Linux says a request is, in letters: `R`, `WS`, `FWFSM`, `DS`, `FF` ...
//!
//! First an `F` if a flush goes before it, then the operation, then more letters (`F` force unit
//! access, `A` read-ahead, `S` sync, `M` metadata).

use crate::error::Problem;
use crate::record::Op;
use crate::sink::Sink;

/// A flush first, and the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rwbs {
    pub(super) flush_before: bool,
    /// `None`: no access to the volume.
    pub(super) op: Option<Op>,
}

impl Rwbs {
    pub(super) fn of(text: &[u8]) -> Result<Self, Problem> {
        let (flush_before, rest) = match text {
            // A flush alone: `F`, or `FF` when it is both asked for and the operation.
            [b'F'] | [b'F', b'F', ..] => return Ok(Self { flush_before: true, op: None }),
            [b'F', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let op = match rest {
            [b'R', ..] => Some(Op::Read),
            // Zeroes written out by the device carry no data, and void a cached copy: a discard.
            // Older kernels write `N` for it, and for commands, which have no sectors.
            [b'D' | b'N', ..] | [b'W', b'Z', ..] => Some(Op::Discard),
            [b'W', ..] => Some(Op::Write),
            // `FS` and the like: a flush with attributes. `Z`: zones.
            [b'S' | b'M' | b'A', ..] if flush_before => None,
            [b'Z', ..] => None,
            _ => return Err(Problem::OpOf("R, W, D, F, N and what Linux puts behind them")),
        };
        Ok(Self { flush_before, op })
    }

    /// Puts it into the sink: one request, two, or none if it has neither flush nor length.
    pub(super) fn push(
        self,
        sink: &mut Sink,
        ts_us: u64,
        device: &[u8],
        offset: u64,
        length: u64,
    ) -> Result<(), Problem> {
        if self.flush_before {
            sink.push(ts_us, device, Op::Flush, 0, 0)?;
        }
        match self.op {
            Some(op) if length > 0 => sink.push(ts_us, device, op, offset, length),
            _ => Ok(()),
        }
    }
}

/// `major,minor`, as Linux writes devices.
pub(super) fn is_device(text: &[u8]) -> bool {
    let mut parts = text.split(|&byte| byte == b',');
    let mut number =
        || parts.next().is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit));
    number() && number() && parts.next().is_none()
}
