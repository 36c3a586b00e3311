//! What happened, in words, for the report of a failed run; and the digest of it all.
//!
//! Words are kept only in the second run of a failed seed.

use crate::medium::proof::Proof;
use crate::stamp::{Stamp, Stamped, mix};
use crate::violation::Violation;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::{Instant, SECTOR_BYTES};
use cinnabar_engine::volume::ProofToken;
use cinnabar_engine::{Action, Answer, Command, IoOp, IoRequest, Slices, Target};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;

/// A backend and a range of its sectors.
pub(super) type Place = Option<(usize, Range<u64>)>;

/// What a line is about.
#[derive(Debug)]
enum About {
    /// One place, or none in particular.
    Place(Place),
    /// Blocks whose data a cache I/O carries: backend and block.
    Blocks(BTreeSet<(usize, u64)>),
    /// Everything: a start, a crash, a fault.
    Everything,
}

/// Keeps lines and a digest.
#[derive(Debug)]
pub(super) struct Log {
    lines: Option<Vec<(About, String)>>,
    digest: u64,
}

impl Log {
    pub(super) fn new(words: bool) -> Self {
        Self { lines: words.then(Vec::new), digest: 0 }
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    /// Notes a line about a place, or about the whole.
    pub(super) fn note(&mut self, now: Instant, place: Place, words: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push((About::Place(place), format!("{:>12} ns  {}", now.0, words())));
        }
    }

    /// Notes the beginning of an I/O.
    pub(super) fn note_io(&mut self, now: Instant, place: Place, request: &IoRequest<Stamped>) {
        if let Some(lines) = &mut self.lines {
            let about = match &request.op {
                IoOp::Write { data, .. } | IoOp::WriteMeta { data, .. }
                    if request.target == Target::Cache =>
                {
                    About::Blocks(blocks_in(data))
                }
                _ => About::Place(place),
            };
            lines.push((about, format!("{:>12} ns  begin {}", now.0, describe(request))));
        }
    }

    /// Notes what every place's history shows.
    pub(super) fn milestone(&mut self, now: Instant, words: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push((About::Everything, format!("{:>12} ns  * {}", now.0, words())));
        }
    }

    /// The lines that matter for this violation: at most so many of its place's history, and of all.
    pub(super) fn excerpt(&self, violation: &Violation, count: usize) -> String {
        let lines = self.lines.as_deref().unwrap_or_default();
        let mut text = String::new();
        if let Some((backend, sector)) = violation.place {
            let about = lines.iter().filter(|(about, _)| about.shows(backend, sector));
            let about: Vec<_> = about.collect();
            let _ = writeln!(text, "about backend {backend}, block {}:", sector / 8);
            for (_, line) in &about[about.len().saturating_sub(count)..] {
                let _ = writeln!(text, "  {line}");
            }
        }
        let _ = writeln!(text, "last of all:");
        for (_, line) in &lines[lines.len().saturating_sub(count)..] {
            let _ = writeln!(text, "  {line}");
        }
        text
    }

    pub(super) fn word(&mut self, word: u64) {
        self.digest = mix(self.digest ^ word);
    }

    /// Adds an action of the engine to the digest.
    pub(super) fn digest_action(&mut self, now: Instant, action: &Action<Stamped>) {
        self.word(now.0);
        match action {
            Action::Io(io) => {
                let target = match io.target {
                    Target::Cache => u64::MAX,
                    Target::Backend(volume) => u64::from(volume.0),
                };
                self.word(1 << 8 | u64::from(op_code(&io.op)));
                self.word(target);
                self.word(io.id.0);
                self.digest_op(&io.op);
            }
            Action::Reply(reply) => {
                self.word(2 << 8 | u64::from(reply.result.is_ok()));
                self.word(reply.id.0);
                if let Ok(Answer::Data(data)) = &reply.result {
                    self.word(data.sectors() as u64);
                }
            }
            Action::WakeAt(at) => {
                self.word(3 << 8);
                self.word(at.0);
            }
        }
    }

    fn digest_op(&mut self, op: &IoOp<Stamped>) {
        match op {
            IoOp::Read { offset, data } => {
                self.word(*offset);
                self.word(data.iter().map(|slice| slice.len).sum());
            }
            IoOp::Write { offset, data, fua } => {
                self.word(*offset);
                self.word(u64::from(*fua));
                self.word(data.iter().map(|slice| slice.len).sum());
            }
            IoOp::ReadMeta { offset, pages } => {
                self.word(*offset);
                self.word(pages.len() as u64);
            }
            IoOp::WriteMeta { offset, pages, data, fua } => {
                self.word(*offset);
                self.word(u64::from(*fua));
                for page in pages {
                    self.digest_page(page);
                }
                self.word(data.iter().map(|slice| slice.len).sum());
            }
            IoOp::Flush | IoOp::Prove | IoOp::BumpGeneration { .. } => {}
            IoOp::Trim { span } | IoOp::MakeRoom { span } | IoOp::WriteZeroes { span, .. } => {
                self.word(span.offset);
                self.word(span.len);
            }
        }
    }

    fn digest_page(&mut self, page: &MetaPage) {
        for bytes in page.0.chunks_exact(8) {
            self.word(u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
        }
    }
}

impl About {
    fn shows(&self, backend: usize, sector: u64) -> bool {
        let block = sector / 8 * 8..sector / 8 * 8 + 8;
        match self {
            Self::Everything => true,
            Self::Blocks(blocks) => blocks.contains(&(backend, sector / 8)),
            Self::Place(None) => false,
            Self::Place(Some((of, range))) => {
                *of == backend && range.start < block.end && block.start < range.end
            }
        }
    }
}

fn blocks_in(data: &Slices<Stamped>) -> BTreeSet<(usize, u64)> {
    let mut stamps = Vec::new();
    for slice in data {
        let (first, count) = (slice.at / SECTOR_BYTES, slice.len / SECTOR_BYTES);
        slice.data.append_to(first as usize, count as usize, &mut stamps);
    }
    let origins = stamps.into_iter().filter_map(Stamp::origin);
    origins.map(|(volume, sector)| (volume, sector / 8)).collect()
}

/// An I/O in few words: pages are left out.
pub(super) fn describe(request: &IoRequest<Stamped>) -> String {
    let (id, target) = (request.id.0, request.target);
    match &request.op {
        IoOp::ReadMeta { offset, pages } => {
            format!("I/O {id} {target:?} ReadMeta at {offset}, {} pages", pages.len())
        }
        IoOp::WriteMeta { offset, pages, data, fua } => format!(
            "I/O {id} {target:?} WriteMeta at {offset}, {} pages, {} data, fua {fua}",
            pages.len(),
            data.len()
        ),
        op => format!("I/O {id} {target:?} {op:?}"),
    }
}

/// A command in few words: proofs are decoded, superblocks left out.
pub(super) fn describe_command(command: &Command) -> String {
    let decoded = |proof: &Option<ProofToken>| proof.as_ref().map(Proof::decode);
    match command {
        Command::Attach(spec) => format!(
            "attach {}, {:?}, generation {}, exclusive {}, {:?}, {:?}",
            spec.name,
            spec.belief,
            spec.generation,
            spec.exclusive,
            spec.mode,
            decoded(&spec.proof)
        ),
        Command::Seal(volume, proof) => format!("seal {volume:?}, {:?}", decoded(proof)),
        Command::Replace(_) => "replace".to_owned(),
        command => format!("{command:?}"),
    }
}

fn op_code(op: &IoOp<Stamped>) -> u8 {
    match op {
        IoOp::Read { .. } => 0,
        IoOp::Write { .. } => 1,
        IoOp::ReadMeta { .. } => 2,
        IoOp::WriteMeta { .. } => 3,
        IoOp::Flush => 4,
        IoOp::Trim { .. } => 5,
        IoOp::WriteZeroes { .. } => 6,
        IoOp::Prove => 7,
        IoOp::BumpGeneration { .. } => 8,
        IoOp::MakeRoom { .. } => 9,
    }
}

/// The sectors of a span; none if the span is nonsense.
pub(super) fn sectors_of(span: cinnabar_engine::units::ByteSpan) -> Range<u64> {
    span.offset / SECTOR_BYTES..span.offset.saturating_add(span.len) / SECTOR_BYTES
}
