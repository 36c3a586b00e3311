//! QEMU's control socket: commands, answers, events.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_mins(1);

/// A connection to one QEMU.
#[derive(Debug)]
pub(super) struct Qmp {
    stream: BufReader<UnixStream>,
    events: Vec<Value>,
}

impl Qmp {
    /// Connects and leaves the negotiation behind.
    pub(super) fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).context("connecting to QEMU")?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        let mut qmp = Self { stream: BufReader::new(stream), events: Vec::new() };
        let greeting = qmp.read()?;
        ensure!(greeting["QMP"].is_object(), "no greeting: {greeting}");
        qmp.execute("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Runs a command and hands back what it returns.
    pub(super) fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let line = json!({ "execute": command, "arguments": arguments });
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes())?;
        loop {
            let mut answer = self.read().with_context(|| command.to_owned())?;
            if answer["event"].is_string() {
                self.events.push(answer);
            } else if answer["error"].is_object() {
                bail!("{line}: {}", answer["error"]);
            } else {
                return Ok(answer["return"].take());
            }
        }
    }

    /// Waits for an event with this field of its data.
    pub(super) fn wait(&mut self, event: &str, key: &str, value: &str) -> Result<()> {
        let start = Instant::now();
        let is_it = |seen: &Value| seen["event"] == event && seen["data"][key] == value;
        loop {
            if let Some(index) = self.events.iter().position(is_it) {
                self.events.remove(index);
                return Ok(());
            }
            ensure!(start.elapsed() < LIMIT, "no {event} of {value}, but {:?}", self.events);
            let seen = self.read().with_context(|| format!("waiting for {event} of {value}"))?;
            self.events.push(seen);
        }
    }

    fn read(&mut self) -> Result<Value> {
        let mut line = String::new();
        ensure!(self.stream.read_line(&mut line)? > 0, "QEMU closed its control socket");
        Ok(serde_json::from_str(&line)?)
    }
}
