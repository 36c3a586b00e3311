//! Recordings over the control API: what a volume's guests ask for, as an answer that goes on until
//! it is ended.
//!
//! The answer is text: requests as in a canonical trace, and between them lines of JSON, the
//! [`Word`]s. The first is always `began`; an answer that does not end with `ended` was cut off.

use super::api::{Answer, from_json};
use super::describe::ChangesNamed;
use super::life::Life;
use super::{Control, STATUS_WAIT_MAX};
use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use cinnabar_config::SettingError;
use cinnabar_config::messages::recording::{Ending, Intervals, Look, RecordStream, Recording};
use cinnabar_config::messages::{CommandError, CommandErrorKind, Message};
use cinnabar_config::volume::check_name;
use cinnabar_engine::seam::units::BLOCK_BYTES;
use cinnabar_trace::Record;
use cinnabar_trace::write::Writer;
use hyper::body::Frame;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior};
use utoipa::ToSchema;

/// How often the buffer is looked into. A full one lasts for three of these at a million requests a
/// second; an idle recording costs fifty looks a second.
const EVERY: Duration = Duration::from_millis(20);
/// Requests sent at a time, 30 bytes each or so.
const REQUESTS_A_PIECE: usize = 2048;
/// A reader that takes nothing for so long is let go.
const STALL_MAX: Duration = Duration::from_mins(1);

/// Body of `POST /v1/recordings`: the names of volumes, or all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RecordInput {
    /// Names; a volume's number in the trace is its place here.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// All that are served now.
    #[serde(default)]
    pub all: bool,
}

/// What a recording says beside the requests. Words and keys are only ever added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "word", rename_all = "snake_case")]
pub enum Word {
    /// The first line.
    Began {
        /// The recording's number, for `DELETE /v1/recordings/{id}`.
        id: u64,
        /// The volumes' names in the order of their numbers.
        volumes: Vec<String>,
        /// The manager's intervals, if there is one; time 0 is the beginning of the first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        intervals: Option<Intervals>,
        /// The size of the cache in bytes, for plans of it; only with a manager.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cache_bytes: Option<u64>,
    },
    /// The reader is too slow.
    Dropped {
        /// Requests that are missing so far.
        requests: u64,
    },
    /// A volume was removed.
    Removed {
        /// Its number.
        volume: u32,
    },
    /// The last line.
    Ended {
        /// Why.
        reason: Ending,
    },
}

/// Record what guests ask for
///
/// The answer goes on until the recording ends: lines of a canonical trace, and between them lines
/// of JSON, each a `Word`. The first is `began`; an answer whose last is not `ended` was cut off.
#[utoipa::path(post, path = "/v1/recordings", tag = "recordings", operation_id = "begin_recording",
    request_body(content = RecordInput, content_type = "application/json"),
    responses(
        (status = 200, description = "Requests and words, line by line", body = String,
            content_type = "text/plain; charset=utf-8"),
        ChangesNamed))]
pub(super) async fn begin(
    State(control): State<Arc<Control>>,
    Extension(life): Extension<Life>,
    body: Bytes,
) -> Answer<Response> {
    let names = from_json::<RecordInput>(&body)?.check()?;
    let place = Arc::clone(&control.recordings)
        .try_acquire_owned()
        .map_err(|_| CommandError::too_many_recordings())?;
    let message = |answer| Message::Record { names, answer };
    let recording = control.ask(STATUS_WAIT_MAX, message).await?;
    let cache_bytes = match recording.intervals {
        Some(_) => Some(control.status().await?.cache.counters.capacity_blocks * BLOCK_BYTES),
        None => None,
    };
    life.holds(place);
    let body = Body::new(Sending::new(recording, cache_bytes, life));
    // Closed behind the last line: so it is known when all of it was taken.
    let headers =
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CONNECTION, "close")];
    Ok((headers, body).into_response())
}

/// End a recording, whose reader gets the rest
#[utoipa::path(delete, path = "/v1/recordings/{id}", tag = "recordings",
    operation_id = "end_recording",
    params(("id" = u64, Path, description = "The number in its first line")),
    responses((status = 204, description = "It ends"), ChangesNamed))]
pub(super) async fn end(
    State(control): State<Arc<Control>>,
    id: Result<Path<String>, PathRejection>,
) -> Answer<StatusCode> {
    let id = id.ok().and_then(|Path(id)| id.parse().ok()).ok_or_else(|| {
        let hint = "its number stands in its first line";
        CommandError::new(CommandErrorKind::NotFound, "there is no such recording", hint)
    })?;
    control.ask(STATUS_WAIT_MAX, |answer| Message::EndRecording { id, answer }).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl RecordInput {
    /// The names; `None`: all.
    fn check(self) -> Result<Option<Vec<String>>, SettingError> {
        let wrong = |message: String| {
            let hint = "give the names of volumes, each once, or all";
            Err(SettingError::new("volumes", message, hint))
        };
        match (self.all, self.volumes.as_slice()) {
            (true, []) => return Ok(None),
            (true, _) => return wrong("all volumes and some of them".into()),
            (false, []) => return wrong("no volume is named".into()),
            (false, _) => {}
        }
        let mut seen = BTreeSet::new();
        for name in &self.volumes {
            check_name(name)?;
            if !seen.insert(name) {
                return wrong(format!("volume {name:?} is named twice"));
            }
        }
        Ok(Some(self.volumes))
    }
}

/// The answer's body. It is asked for more only while the client takes what it gets.
struct Sending {
    feed: RecordStream,
    life: Life,
    looks: Interval,
    /// The buffer had more than a piece.
    hurries: bool,
    over: bool,
    records: Vec<Record>,
    text: Vec<u8>,
    /// Dropped by the buffer, as told to the client, and of what no trace can hold.
    told: u64,
    unfit: u64,
}

impl Sending {
    fn new(recording: Recording, cache_bytes: Option<u64>, life: Life) -> Self {
        let Recording { id, volumes, intervals, feed } = recording;
        let mut looks = tokio::time::interval(EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let records = Vec::with_capacity(REQUESTS_A_PIECE);
        let mut new = Self {
            feed,
            life,
            looks,
            hurries: false,
            over: false,
            records,
            text: Vec::new(),
            told: 0,
            unfit: 0,
        };
        new.say(&Word::Began { id, volumes, intervals, cache_bytes });
        new
    }

    fn say(&mut self, word: &Word) {
        serde_json::to_writer(&mut self.text, word).expect("words have no keys that fail");
        self.text.push(b'\n');
    }

    /// Puts what there is into words.
    fn look(&mut self) {
        let look = self.feed.take(REQUESTS_A_PIECE, &mut self.records);
        let mut writer = Writer::new(std::mem::take(&mut self.text));
        for record in self.records.drain(..) {
            // Writing to memory does not fail, but a volume may be larger than any trace's.
            self.unfit += u64::from(writer.write(&record).is_err());
        }
        self.text = writer.into_inner();
        let dropped = self.feed.dropped() + self.unfit;
        if dropped > self.told {
            self.told = dropped;
            self.say(&Word::Dropped { requests: dropped });
        }
        self.hurries = look == Look::Filled;
        // One that leaves with requests in the buffer is told behind them.
        if !self.hurries {
            for volume in self.feed.left() {
                self.say(&Word::Removed { volume });
            }
        }
        if let Look::Over(reason) = look {
            self.say(&Word::Ended { reason });
            self.over = true;
        }
    }
}

impl hyper::body::Body for Sending {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        this.life.lasts(STALL_MAX);
        loop {
            if this.over {
                return Poll::Ready(None);
            }
            if !this.hurries {
                ready!(this.looks.poll_tick(context));
            }
            this.look();
            if !this.text.is_empty() {
                let text = std::mem::take(&mut this.text);
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from(text)))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_named_once_or_all_at_once() {
        let input = |volumes: &[&str], all| RecordInput {
            volumes: volumes.iter().map(|name| (*name).to_owned()).collect(),
            all,
        };
        assert_eq!(input(&[], true).check(), Ok(None));
        let names = Some(vec!["b".to_owned(), "a".to_owned()]);
        assert_eq!(input(&["b", "a"], false).check(), Ok(names), "in this order");
        for (volumes, all) in
            [(&[][..], false), (&["a"], true), (&["a", "b", "a"], false), (&["a/b"], false)]
        {
            let error = input(volumes, all).check().expect_err("not a choice");
            assert!(!error.hint.is_empty(), "{error}");
        }
    }

    #[test]
    fn words_are_as_documented() {
        let line = |word: &Word| serde_json::to_string(word).expect("it is JSON");
        let (intervals, cache_bytes) = (None, None);
        let began = Word::Began { id: 3, volumes: vec!["vm1".into()], intervals, cache_bytes };
        assert_eq!(line(&began), r#"{"word":"began","id":3,"volumes":["vm1"]}"#);
        let ended = Word::Ended { reason: Ending::Stopping };
        assert_eq!(line(&ended), r#"{"word":"ended","reason":"stopping"}"#);
    }
}
