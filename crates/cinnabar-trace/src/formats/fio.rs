//! fio's iolog, versions 2 and 3: `file action offset length` behind a header.
//!
//! [`crate::write_fio`] writes it. Version 3 puts microseconds first and has no `wait`; in version 2
//! time passes only by `wait`, whose first number is microseconds since the one before. `sync` and
//! `datasync` are flushes, `trim` is a discard; `add`, `open` and `close` are skipped. A volume is a
//! file.

use super::Text;
use crate::error::Problem;
use crate::fields::Fields;
use crate::record::Op;
use crate::sink::Sink;

/// First lines, of versions 2 and 3.
pub(crate) const HEADERS: [&str; 2] = ["fio version 2 iolog", "fio version 3 iolog"];
const ACTIONS: &str = "read, write, trim, sync, datasync, wait, add, open, close";

#[derive(Debug)]
pub(crate) struct Fio {
    /// Time comes first.
    timed: bool,
    now_us: u64,
}

impl Fio {
    /// Version 3, if `timed`, else 2.
    pub(crate) fn new(timed: bool) -> Self {
        Self { timed, now_us: 0 }
    }
}

impl Text for Fio {
    fn parse(&mut self, line: &[u8], sink: &mut Sink) -> Result<(), Problem> {
        if line == HEADERS[usize::from(self.timed)].as_bytes() {
            return Ok(());
        }
        let mut fields = Fields::blanks(line);
        if self.timed {
            self.now_us = fields.number("timestamp")?;
        }
        let file = fields.text("file")?;
        let op = match fields.text("action")? {
            b"add" | b"open" | b"close" => return fields.end(2 + usize::from(self.timed)),
            b"wait" if !self.timed => {
                let wait_us = fields.number("wait")?;
                let now_us = self.now_us.checked_add(wait_us);
                self.now_us = now_us.ok_or(Problem::Number("wait"))?;
                return Ok(());
            }
            b"sync" | b"datasync" => return sink.push(self.now_us, file, Op::Flush, 0, 0),
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Discard,
            _ => return Err(Problem::OpOf(ACTIONS)),
        };
        let offset = fields.number("offset")?;
        let length = fields.number("length")?;
        fields.end(4 + usize::from(self.timed))?;
        sink.push(self.now_us, file, op, offset, length)
    }
}
