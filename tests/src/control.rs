//! The control socket as a client sees it: readiness and status.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

/// Fetches `path` over the control socket: the HTTP status and the body.
pub fn get(socket: &Path, path: &str) -> Result<(u16, String)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    // Version 1.0: the answer is neither chunked nor followed by another one.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of the HTTP headers")?;
    let code = head.split_whitespace().nth(1).context("no HTTP status")?.parse()?;
    Ok((code, body.to_owned()))
}

/// Whether `GET /v1/ready` says yes.
pub fn is_ready(socket: &Path) -> bool {
    matches!(get(socket, "/v1/ready"), Ok((200, _)))
}

/// What `cinnabar status --json` printed.
#[derive(Clone, Debug)]
pub struct Status(pub Value);

impl Status {
    /// Reads the JSON text.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(Self(serde_json::from_str(text).with_context(|| format!("status is no JSON: {text}"))?))
    }

    /// The object of the volume `name`.
    pub fn volume(&self, name: &str) -> Result<&Value> {
        self.0["volumes"]
            .as_array()
            .and_then(|volumes| volumes.iter().find(|volume| volume["name"] == name))
            .with_context(|| format!("no volume {name} in {}", self.0))
    }

    /// A counter of the volume `name`.
    pub fn count(&self, name: &str, key: &str) -> Result<u64> {
        number(self.volume(name)?, key)
    }

    /// A counter of the cache.
    pub fn cache(&self, key: &str) -> Result<u64> {
        number(&self.0["cache"], key)
    }

    /// Whether the index is still being loaded.
    pub fn is_loading(&self) -> Result<bool> {
        let health = self.0["cache"]["health"]["state"].as_str();
        let health =
            health.with_context(|| format!("no health of the cache in {}", self.0["cache"]))?;
        Ok(health == "opening" || health == "loading")
    }

    /// Checks what must hold of every volume at any time: hits and misses sum to the blocks read.
    pub fn check_sums(&self) -> Result<()> {
        for volume in self.0["volumes"].as_array().context("no list of volumes")? {
            let (hits, misses) = (number(volume, "read_hits")?, number(volume, "misses")?);
            let read = number(volume, "blocks_read")?;
            if hits + misses != read {
                bail!("{hits} hits and {misses} misses, but {read} blocks read: {volume}");
            }
        }
        Ok(())
    }
}

fn number(object: &Value, key: &str) -> Result<u64> {
    object[key].as_u64().with_context(|| format!("no number {key:?} in {object}"))
}
