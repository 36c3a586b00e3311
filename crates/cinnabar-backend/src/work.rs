//! The engine's I/O requests as work for the port: a job of the port, or something that no port
//! does.

use crate::memory::Memory;
use crate::model::OpKind;
use crate::port::JobOp;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::{IoOp, Slices};

/// What an I/O is, for a model and for a log.
#[derive(Clone, Copy, Debug)]
pub struct IoInfo {
    /// What to call it.
    pub name: &'static str,
    /// How a slow device sees it.
    pub kind: OpKind,
    /// First byte.
    pub offset: u64,
    /// Length in bytes; 0 where there is none.
    pub len: u64,
}

/// Who does it.
#[derive(Debug)]
pub enum Work {
    Port(JobOp),
    /// What can flush a backend and ask it for its change proof ([`IoOp::Prove`]).
    Prove,
    /// What keeps the generations ([`IoOp::BumpGeneration`]).
    BumpGeneration {
        /// See there.
        held: u64,
    },
}

/// The engine's operation as work for the port.
pub fn translate(op: IoOp<Memory>) -> (IoInfo, Work) {
    let what = |name, kind, offset, len| IoInfo { name, kind, offset, len };
    let (what, op) = match op {
        IoOp::Read { offset, data } => {
            let what = what("read", OpKind::Read, offset, bytes(&data));
            (what, JobOp::Read { offset, pages: Vec::new(), data })
        }
        IoOp::Write { offset, data, fua } => {
            let what = what("write", OpKind::Write, offset, bytes(&data));
            (what, JobOp::Write { offset, pages: Vec::new(), data, fua })
        }
        IoOp::ReadMeta { offset, pages } => {
            let what = what("metadata read", OpKind::Read, offset, pages.len() as u64 * 4096);
            (what, JobOp::Read { offset, pages, data: Slices::new() })
        }
        IoOp::WriteMeta { offset, pages, data, fua } => {
            let len = pages.len() as u64 * 4096 + bytes(&data);
            let what = what("metadata write", OpKind::Write, offset, len);
            (what, JobOp::Write { offset, pages, data, fua })
        }
        IoOp::Flush => (what("flush", OpKind::Flush, 0, 0), JobOp::Flush),
        IoOp::Prove => return (what("proof", OpKind::Flush, 0, 0), Work::Prove),
        IoOp::BumpGeneration { held } => {
            return (what("new generation", OpKind::Flush, 0, 0), Work::BumpGeneration { held });
        }
        IoOp::Trim { span } => {
            (what("trim", OpKind::Discard, span.offset, span.len), JobOp::Trim { span })
        }
        IoOp::MakeRoom { span } => {
            (what("making room", OpKind::Discard, span.offset, span.len), JobOp::MakeRoom { span })
        }
        IoOp::WriteZeroes { span, may_punch } => {
            let what = what("zeroing", OpKind::Discard, span.offset, span.len);
            (what, JobOp::WriteZeroes { span, may_punch })
        }
    };
    (what, Work::Port(op))
}

/// The pages that an operation came with, to be given back with a completion.
pub fn pages_of(op: IoOp<Memory>) -> Vec<MetaPage> {
    match op {
        IoOp::ReadMeta { pages, .. } | IoOp::WriteMeta { pages, .. } => pages,
        _ => Vec::new(),
    }
}

fn bytes(data: &Slices<Memory>) -> u64 {
    data.iter().map(|slice| slice.len).sum()
}
