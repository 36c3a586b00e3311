//! Requests cut at the borders of extents, and put together again.

use super::{Kind, Request};
use crate::buffers::{Buffers, part_of};
use cinnabar_placement::Geometry;
use cinnabar_placement::volume::Op;
use rustix::io::Errno;
use slab::Slab;

/// A request under way.
struct Entry {
    request: Box<dyn Request>,
    /// Bytes that parts have begun with.
    begun: u64,
    /// Parts under way.
    parts: u32,
    result: Result<(), Errno>,
}

/// A part of a request, within one extent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) request: usize,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Requests under way.
#[derive(Default)]
pub(super) struct Requests(Slab<Entry>);

impl Requests {
    pub(super) fn add(&mut self, request: Box<dyn Request>) -> usize {
        self.0.insert(Entry { request, begun: 0, parts: 0, result: Ok(()) })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn kind(&self, request: usize) -> Kind {
        self.0[request].request.kind()
    }

    /// The next part that has not begun; it begins. `None`: all have.
    pub(super) fn next_part(&mut self, request: usize, geometry: Geometry) -> Option<Part> {
        let entry = &mut self.0[request];
        let left = entry.request.length() - entry.begun;
        // Once a part has failed, the others are of no use.
        if left == 0 || entry.result.is_err() {
            return None;
        }
        let offset = entry.request.offset() + entry.begun;
        let extent_end = (offset / geometry.extent_bytes() + 1) * geometry.extent_bytes();
        let length = left.min(extent_end - offset);
        entry.begun += length;
        entry.parts += 1;
        Some(Part { request, offset, length })
    }

    /// A flush begins: it has one part, without bytes.
    pub(super) fn begin_flush(&mut self, request: usize) {
        self.0[request].parts += 1;
    }

    pub(super) fn memory(&self, part: Part) -> Buffers {
        let request = &self.0[part.request].request;
        let parts = part_of(request.memory(), part.offset - request.offset(), part.length);
        // SAFETY: the request owns its memory until it is finished, which is when none of its parts is under
        // way; the pools go before the requests.
        unsafe { Buffers::new(parts) }
    }

    /// A part has ended.
    pub(super) fn end_part(&mut self, request: usize, result: Result<(), Errno>) {
        let entry = &mut self.0[request];
        assert!(entry.parts > 0, "a part under way is counted");
        entry.parts -= 1;
        if entry.result.is_ok() {
            entry.result = result;
        }
    }

    /// No part of it begins any more.
    pub(super) fn fail(&mut self, request: usize, errno: Errno) {
        let entry = &mut self.0[request];
        entry.result = entry.result.and(Err(errno));
    }

    /// Takes a request that is at its end, with its outcome.
    pub(super) fn take_ended(
        &mut self,
        request: usize,
    ) -> Option<(Box<dyn Request>, Result<(), Errno>)> {
        let entry = &self.0[request];
        let all = entry.begun == entry.request.length() || entry.result.is_err();
        (entry.parts == 0 && all).then(|| {
            let entry = self.0.remove(request);
            (entry.request, entry.result)
        })
    }
}

/// What a part does to its extent.
pub(super) fn op_of(kind: Kind) -> Op {
    match kind {
        Kind::Read => Op::Read,
        Kind::Write { .. } | Kind::Zero { .. } => Op::Write,
        Kind::Flush => unreachable!("a flush is of no extent"),
    }
}
