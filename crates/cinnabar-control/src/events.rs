//! Events over the control API, as they come: server-sent events.
//!
//! Each client reads the one log of events at its own pace. Of what it has not taken, two pieces of
//! the answer are kept beside the log; one that falls behind by more than the log has learns that
//! events were skipped.

use super::Control;
use super::api::Answer;
use super::describe::Asks;
use super::life::Life;
use super::observer::{LISTENERS_MAX, Observer, now_ms};
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use cinnabar_config::history::{Batch, EventReport};
use cinnabar_config::messages::{CommandError, CommandErrorKind};
use hyper::body::Frame;
use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Events in a piece of the answer.
const EVENTS_A_PIECE: usize = 64;
/// A client that hears nothing else hears this often that the connection lives.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);
/// A client that takes nothing for so long is let go.
const STALL_MAX: Duration = Duration::from_mins(1);
/// The header in which a client names the last event that it has, when it comes again.
const LAST_EVENT: &str = "last-event-id";
/// What it says there to have all that are kept.
const OLDEST: &str = "oldest";

/// What happens, as it happens
///
/// Server-sent events: `event` is the kind, `data` an `EventReport` in JSON, `id` what a client
/// sends in `Last-Event-ID` to go on where it was; `oldest` there: all that are kept. Without that header it
/// begins with what happens from now on. A comment comes every 15 seconds if nothing else does.
#[utoipa::path(get, path = "/v1/events", tag = "history", operation_id = "events",
    params(("Last-Event-ID" = Option<String>, Header, description = "The last event that the client has")),
    responses(
        (status = 200, description = "Events, until the client goes", body = String,
            content_type = "text/event-stream"),
        (status = 429, description = "There are too many listeners", body = super::api::ErrorBody),
        Asks))]
pub(super) async fn events(
    State(control): State<Arc<Control>>,
    Extension(life): Extension<Life>,
    headers: HeaderMap,
) -> Answer<Response> {
    // A daemon that starts or stops says so.
    control.commands()?;
    let (place, news) = control.observer.listen(life.peer()).ok_or_else(too_many)?;
    life.holds(place);
    let last = headers.get(LAST_EVENT).and_then(|value| value.to_str().ok());
    let begin = Begin::of(&control.observer, last);
    let (pieces, to_send) = mpsc::channel(1);
    tokio::spawn(tell(Arc::clone(&control), begin, news, pieces));
    Ok(Sending::response(to_send, life))
}

fn too_many() -> CommandError {
    CommandError::new(
        CommandErrorKind::Limit,
        format!(
            "too many clients listen to events: {LISTENERS_MAX} may at a time, and of one account or \
             host no more than it leaves free"
        ),
        "end one of them, or ask for the status now and then",
    )
}

/// Where a client begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begin {
    /// With this event.
    number: u64,
    /// It was there in another run of the daemon: what it has missed is not known.
    is_of_another_run: bool,
}

impl Begin {
    fn of(observer: &Observer, last: Option<&str>) -> Self {
        let next = observer.events().next();
        let Some(last) = last else { return Self { number: next, is_of_another_run: false } };
        if last == OLDEST {
            return Self { number: 0, is_of_another_run: false };
        }
        let known = last.split_once('-').and_then(|(run, number)| {
            let is_of_this = run.parse() == Ok(observer.run());
            let number: u64 = number.parse().ok()?;
            is_of_this.then(|| number.saturating_add(1))
        });
        match known {
            Some(number) if number <= next => Self { number, is_of_another_run: false },
            _ => Self { number: next, is_of_another_run: true },
        }
    }
}

/// Puts events into pieces as long as there is a client that takes them.
async fn tell(
    control: Arc<Control>,
    begin: Begin,
    mut news: watch::Receiver<u64>,
    pieces: mpsc::Sender<Bytes>,
) {
    let observer = &control.observer;
    let mut next = begin.number;
    let mut text = String::from("retry: 2000\n\n");
    if begin.is_of_another_run {
        put(&mut text, None, &EventReport::skipped(now_ms(), None));
    }
    loop {
        if text.is_empty() {
            let heard = tokio::time::timeout(HEARTBEAT_EVERY, news.wait_for(|last| *last > next));
            let heard = tokio::select! {
                heard = heard => heard.is_ok(),
                () = pieces.closed() => return,
            };
            if !heard {
                text.push_str(": still there\n\n");
            }
        }
        let batch = observer.events().from(next, EVENTS_A_PIECE);
        next = batch.next();
        render(&mut text, observer.run(), &batch);
        if pieces.send(Bytes::from(std::mem::take(&mut text))).await.is_err() {
            return;
        }
    }
}

/// A batch as server-sent events.
fn render(text: &mut String, run: u64, batch: &Batch) {
    if batch.skipped > 0 {
        let id = (run, batch.first.saturating_sub(1));
        put(text, Some(id), &EventReport::skipped(now_ms(), Some(batch.skipped)));
    }
    for (number, event) in (batch.first..).zip(&batch.events) {
        put(text, Some((run, number)), event);
    }
}

fn put(text: &mut String, id: Option<(u64, u64)>, event: &EventReport) {
    let data = serde_json::to_string(event).expect("events have no keys that fail");
    let kind = serde_json::to_value(event.kind).expect("kinds are words");
    // JSON has no line ends within it. Writing to a string does not fail.
    if let Some((run, number)) = id {
        let _ok = writeln!(text, "id: {run}-{number}");
    }
    let _ok = write!(text, "event: {}\ndata: {data}\n\n", kind.as_str().unwrap_or_default());
}

/// The answer's body. It is asked for more only while the client takes what it gets.
pub(super) struct Sending {
    pieces: mpsc::Receiver<Bytes>,
    life: Life,
}

impl Sending {
    /// Server-sent events made of these pieces, until there are no more.
    pub(super) fn response(pieces: mpsc::Receiver<Bytes>, life: Life) -> Response {
        let headers = [
            (header::CONTENT_TYPE, "text/event-stream"),
            (header::CACHE_CONTROL, "no-store"),
            (header::CONNECTION, "close"),
        ];
        (headers, Body::new(Self { pieces, life })).into_response()
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
        this.pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
