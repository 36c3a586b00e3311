//! `DiskSim`'s ASCII form: `ms device block blocks flags`, between blanks; blocks of 512 bytes.
//!
//! Milliseconds are decimal, flags hexadecimal, their bit 0 is set for a read. A volume is a device.

use super::Text;
use crate::error::Problem;
use crate::fields::Fields;
use crate::number::number;
use crate::record::Op;
use crate::sink::Sink;

const FIELDS: usize = 5;
const FLAG_READ: u64 = 1;

#[derive(Debug)]
pub(crate) struct DiskSim;

impl Text for DiskSim {
    fn parse(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        let mut fields = Fields::blanks(line);
        let ts_us = fields.time("time", 1000)?;
        let device = fields.text("device")?;
        number(device, "device")?;
        let offset = fields.sectors("block")?;
        let size = fields.sectors("blocks")?;
        let flags = hexadecimal(fields.text("flags")?).ok_or(Problem::Number("flags"))?;
        fields.end(FIELDS)?;
        let op = if flags & FLAG_READ == 0 { Op::Write } else { Op::Read };
        sink.push(ts_us, device, op, offset, size)
    }
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    // The library would take a sign, too.
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let digits = plain.then(|| std::str::from_utf8(digits).ok()).flatten()?;
    u64::from_str_radix(digits, 16).ok()
}
