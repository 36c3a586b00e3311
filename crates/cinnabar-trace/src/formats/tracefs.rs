//! The text of tracefs: `comm-pid [cpu] flags ts: block_rq_issue: maj,min RWBS bytes () sector + n ...`
//!
//! What a host without tools can record, by `events/block/block_rq_issue`. Other events and comments
//! are skipped. `FF` is a flush. A volume is a device.

use super::Text;
use super::rwbs::{Rwbs, is_device};
use crate::error::Problem;
use crate::fields::{Fields, SECTOR_BYTES};
use crate::number::number;
use crate::sink::Sink;

const EVENT: &[u8] = b": block_rq_issue: ";
const COMMENT: &[u8] = b"#";
/// How recordings begin.
const HEADER: &[u8] = b"# tracer:";

#[derive(Debug)]
pub(crate) struct TraceFs;

impl TraceFs {
    /// A line that no other format has?
    pub(crate) fn fits(line: &[u8]) -> bool {
        line.starts_with(HEADER) || split(line).is_some()
    }
}

impl Text for TraceFs {
    fn parse(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        if line.starts_with(COMMENT) {
            return Ok(());
        }
        let Some((before, after)) = split(line) else { return skipped(line) };
        // The process's name may have blanks; time is the last word before the event.
        let time = before.rsplit(u8::is_ascii_whitespace).next().unwrap_or_default();
        let ts_us = Fields::blanks(time).time("timestamp", 1_000_000)?;
        let mut fields = Fields::blanks(after);
        let device = fields.text("device")?;
        if !is_device(device) {
            return Err(Problem::Number("device"));
        }
        let rwbs = Rwbs::of(fields.text("RWBS")?)?;
        fields.number("bytes")?;
        // A command's bytes stand in the parentheses, with blanks between them.
        let behind = fields.position(|field| field.ends_with(b")"));
        behind.ok_or(Problem::Missing("()"))?;
        let sector = fields.text("sector")?;
        if fields.text("+")? != b"+" {
            return Err(Problem::Missing("+"));
        }
        let length = fields.sectors("sectors")?;
        // A request without a place has -1 for it.
        let offset = if length == 0 { 0 } else { number(sector, "sector")? };
        let offset = offset.checked_mul(SECTOR_BYTES).ok_or(Problem::End)?;
        rwbs.push(sink, ts_us, device, offset, length)
    }
}

/// What is before and after the event's name, from the time on.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let place = line.windows(EVENT.len()).position(|window| window == EVENT)?;
    Some((&line[..place], &line[place + EVENT.len()..]))
}

/// A line without our event: another event, or a note of the kernel that some were lost.
fn skipped(line: &[u8]) -> Result<(), Problem> {
    // Every event has a name between colons, every note of loss begins with the CPU.
    let is_event = line.windows(2).filter(|pair| pair == b": ").count() >= 1;
    if is_event || line.starts_with(b"CPU:") {
        return Ok(());
    }
    Err(Problem::Missing("block_rq_issue"))
}
