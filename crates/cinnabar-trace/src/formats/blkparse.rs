//! The text of `blkparse`: `maj,min cpu seq s pid ACT RWBS sector + n [process]`, and others.
//!
//! A request shows up many times on its way. Queued (`Q`) is what was asked for; if the first lines
//! have none of these, issued (`D`) is counted. Everything else is skipped: messages, plugs, merges,
//! completions. The summary at the end begins with `CPU` or `Total`; nothing comes after it. A
//! volume is a device.

use super::Text;
use super::rwbs::{Rwbs, is_device};
use crate::error::Problem;
use crate::fields::{Fields, SECTOR_BYTES};
use crate::number::number;
use crate::sink::Sink;

#[derive(Debug)]
pub(crate) struct BlkParse {
    action: &'static [u8],
    ended: bool,
}

impl BlkParse {
    /// For a text that begins so.
    pub(crate) fn new(head: &[u8]) -> Self {
        let has = |action: &[u8]| {
            head.split(|&byte| byte == b'\n')
                .any(|line| Fields::blanks(line).nth(5) == Some(action))
        };
        let action: &[u8] = if !has(b"Q") && has(b"D") { b"D" } else { b"Q" };
        Self { action, ended: false }
    }

    /// The line of an event?
    pub(crate) fn fits(line: &[u8]) -> bool {
        let mut fields = Fields::blanks(line);
        fields.next().is_some_and(is_device)
            && fields.number("cpu").is_ok()
            && fields.number("sequence").is_ok()
            && fields.time("time", 1_000_000).is_ok()
            && fields.number("pid").is_ok()
            && fields.next().is_some()
    }
}

impl Text for BlkParse {
    fn parse(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        if self.ended || line.starts_with(b"CPU") || line.starts_with(b"Total") {
            self.ended = true;
            return Ok(());
        }
        let mut fields = Fields::blanks(line);
        let device = fields.text("device")?;
        if !is_device(device) {
            return Err(Problem::Number("device"));
        }
        fields.number("cpu")?;
        fields.number("sequence")?;
        let ts_us = fields.time("time", 1_000_000)?;
        fields.number("pid")?;
        if fields.text("action")? != self.action {
            return Ok(());
        }
        let rwbs = Rwbs::of(fields.text("RWBS")?)?;
        let place = fields.next().unwrap_or_default();
        // A flush has no place; the process's name follows at once.
        let (offset, length) = if place.is_empty() || place.starts_with(b"[") {
            (0, 0)
        } else {
            let sector = number(place, "sector")?;
            if fields.text("+")? != b"+" {
                return Err(Problem::Missing("+"));
            }
            let offset = sector.checked_mul(SECTOR_BYTES).ok_or(Problem::End)?;
            (offset, fields.sectors("sectors")?)
        };
        rwbs.push(sink, ts_us, device, offset, length)
    }
}
