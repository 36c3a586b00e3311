//! What background threads do for blocks that move from cache to cache: asking the other daemon for them,
//! and reading those that it asks for. One request of a volume is under way at a time.

use super::super::peer::{Ask, exchange, reason_of};
use super::wire::{self, Received};
use crate::dataplane::writes::Subject;
use cinnabar_backend::{Disk, Memory};
use cinnabar_config::messages::{AnswerTo, Peer};
use cinnabar_control::path::escape;
use cinnabar_engine::Payload;
use cinnabar_engine::metadata::MetaPage;
use cinnabar_engine::units::BLOCK_BYTES;
use serde::Deserialize;
use std::sync::Weak;
use std::time::Duration;

/// Blocks on a page of the list.
pub(super) const PAGE_BLOCKS: usize = 1024;
/// Longest page, in bytes: a block's number has at most 20 digits.
const PAGE_BYTES_MAX: usize = 64 << 10;
/// Longest wait for an answer: one that takes longer is no quicker than the back end.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// "Too many requests": other hosts are being answered.
const BUSY: u16 = 429;
/// Room for the head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;

pub(in super::super::super) enum WarmStep {
    /// The next page of the list.
    List { peer: Peer, name: String, epoch: u64, after: u64 },
    /// These blocks, in ascending order.
    Fetch { peer: Peer, name: String, epoch: u64, blocks: Vec<u64> },
    /// For the other host: reads these from the cache device.
    Read(Box<Reading>),
}

/// Blocks that the other host wants.
pub(in super::super::super) struct Reading {
    pub(super) epoch: u64,
    pub(super) disk: Option<Weak<Disk>>,
    /// Room for all of them; those that were in RAM are there.
    pub(super) data: Memory,
    /// Those: the block, and its place in `data`.
    pub(super) found: Vec<(u64, u64)>,
    /// Those that have to be read.
    pub(super) wanted: Vec<Wanted>,
    pub(super) answer: AnswerTo<Vec<u8>>,
}

/// A block on the cache device.
pub(super) struct Wanted {
    pub(super) block: u64,
    /// Its place in the data.
    pub(super) at: u64,
    /// Its place on the device.
    pub(super) offset: u64,
    pub(super) seed: u64,
    pub(super) checksum: u32,
}

/// What came of it.
pub(in super::super::super) enum WarmDone {
    Listed(Result<Page, Refused>),
    /// With the blocks that were asked for.
    Fetched(Vec<u64>, Result<Received, Refused>),
    Read(Vec<u8>, AnswerTo<Vec<u8>>),
}

/// Why there is no answer.
pub(in super::super::super) struct Refused {
    pub(super) reason: String,
    /// It may be otherwise in a moment.
    pub(super) again: bool,
    /// It will: others are being served.
    pub(super) busy: bool,
}

impl Refused {
    const fn for_good(reason: String) -> Self {
        Self { reason, again: false, busy: false }
    }
}

/// As `GET /v1/volumes/{name}/hot` answers.
#[derive(Debug, Deserialize)]
pub(in super::super::super) struct Page {
    pub(super) epoch: u64,
    pub(super) size_bytes: u64,
    #[serde(default)]
    pub(super) proof: Option<String>,
    pub(super) blocks: Vec<u64>,
    #[serde(default)]
    pub(super) next: Option<u64>,
}

impl WarmStep {
    /// Does it; blocks.
    pub(in super::super::super) fn run(self) -> WarmDone {
        match self {
            Self::List { peer, name, epoch, after } => {
                WarmDone::Listed(list(&peer, &name, epoch, after))
            }
            Self::Fetch { peer, name, epoch, blocks } => {
                let answer = fetch(&peer, &name, epoch, &blocks);
                WarmDone::Fetched(blocks, answer)
            }
            Self::Read(reading) => reading.run(),
        }
    }
}

impl WarmStep {
    /// There is nobody to do it.
    pub(in super::super::super) fn give_up(self) -> WarmDone {
        let reason = || "there is no thread for it here".into();
        let refused = || Refused { reason: reason(), again: true, busy: false };
        match self {
            Self::List { .. } => WarmDone::Listed(Err(refused())),
            Self::Fetch { blocks, .. } => WarmDone::Fetched(blocks, Err(refused())),
            // What is in RAM is there.
            Self::Read(reading) => Reading { disk: None, ..*reading }.run(),
        }
    }
}

fn list(peer: &Peer, name: &str, epoch: u64, after: u64) -> Result<Page, Refused> {
    let query = format!("epoch={epoch}&after={after}&limit={PAGE_BLOCKS}");
    let body = ask(
        peer,
        &Ask {
            method: "GET",
            path: format!("/v1/volumes/{}/hot?{query}", escape(name)),
            body: String::new(),
            answer_bytes_max: PAGE_BYTES_MAX,
            answer_max: ANSWER_MAX,
        },
    )?;
    let wrong = |what: &str| Refused::for_good(format!("{} {what}", peer.address));
    let page: Page = serde_json::from_slice(&body).map_err(|_| wrong("answers something else"))?;
    if page.epoch != epoch {
        return Err(wrong("answers for another epoch"));
    }
    if page.blocks.len() > PAGE_BLOCKS {
        return Err(wrong("lists more blocks than were asked for"));
    }
    // So the list ends.
    if page.next.is_some_and(|next| next <= after) {
        return Err(wrong("lists the same blocks again"));
    }
    Ok(page)
}

fn fetch(peer: &Peer, name: &str, epoch: u64, blocks: &[u64]) -> Result<Received, Refused> {
    let numbers: Vec<String> = blocks.iter().map(u64::to_string).collect();
    let body = ask(
        peer,
        &Ask {
            method: "POST",
            path: format!("/v1/volumes/{}/hot", escape(name)),
            body: format!("{{\"epoch\":{epoch},\"blocks\":[{}]}}", numbers.join(",")),
            answer_bytes_max: HEAD_BYTES_MAX + wire::BYTES_MAX,
            answer_max: ANSWER_MAX,
        },
    )?;
    wire::decode(&body, epoch, blocks)
        .map_err(|what| Refused::for_good(format!("{}: {what}", peer.address)))
}

fn ask(peer: &Peer, asked: &Ask) -> Result<Vec<u8>, Refused> {
    match exchange(peer, asked) {
        Ok((200, body)) => Ok(body),
        // Too much is under way there, or it starts: not a word on what it has.
        Ok((code @ (BUSY | 500 | 503), body)) => {
            Err(Refused { reason: reason_of(code, &body), again: true, busy: code == BUSY })
        }
        Ok((code, body)) => Err(Refused::for_good(reason_of(code, &body))),
        Err(reason) => {
            let reason = format!("{}: {reason}", peer.address);
            Err(Refused { reason, again: true, busy: false })
        }
    }
}

impl Reading {
    fn run(mut self) -> WarmDone {
        self.wanted.sort_unstable_by_key(|wanted| wanted.offset);
        let disk = self.disk.as_ref().and_then(Weak::upgrade);
        let mut rest = &self.wanted[..];
        while let (Some(first), Some(disk)) = (rest.first(), &disk) {
            let follows = |(at, next): (usize, &Wanted)| {
                next.offset == first.offset + at as u64 * BLOCK_BYTES
            };
            let count = rest.iter().enumerate().take_while(|one| follows(*one)).count();
            let (run, others) = rest.split_at(count);
            rest = others;
            let mut pages = vec![MetaPage::zeroed(); count];
            // A block that can't be read is not there; the next read of the engine's own counts the error.
            if disk.read_pages(first.offset, &mut pages).is_err() {
                continue;
            }
            for (wanted, page) in run.iter().zip(&pages) {
                self.data.write_at(wanted.at, &page.0);
                // The place may have been used for another block meanwhile.
                if self.data.checksum(wanted.at, wanted.seed) == wanted.checksum {
                    self.found.push((wanted.block, wanted.at));
                }
            }
        }
        // Before the loop hears of it: it may mean to close the device.
        drop(disk);
        self.found.sort_unstable();
        let bytes = wire::encode(self.epoch, &self.data, &self.found);
        WarmDone::Read(bytes, self.answer)
    }
}

/// What a step is for: an answer to an arrival that is over must not be taken for one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super::super) struct Arrival {
    pub(super) subject: Subject,
    pub(super) epoch: u64,
    pub(super) number: u64,
}

/// A step, for a background thread.
pub(in super::super::super) struct WarmTask {
    pub(in super::super::super) of: Arrival,
    pub(in super::super::super) step: WarmStep,
}
