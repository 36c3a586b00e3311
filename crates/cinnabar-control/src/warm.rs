//! Blocks of a volume that was handed over, for the daemon that has it now: the list of them, and what
//! they hold.

use super::Control;
use super::api::{Answer, VolumeName, from_json};
use super::describe::{Asks, ChangesNamed};
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Json};
use cinnabar_config::SettingError;
use cinnabar_config::messages::{HotPage, Message};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use utoipa::{IntoParams, ToSchema};

/// Longest wait for an answer: blocks are read from the cache device, one after the other.
const WAIT_MAX: Duration = Duration::from_secs(15);
/// Blocks on a page, at most.
const PAGE_BLOCKS_MAX: usize = 1024;
/// Blocks of one request, at most: 1 MiB.
const FETCH_BLOCKS_MAX: usize = 256;

/// Query of `GET /v1/volumes/{name}/hot`.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HotQuery {
    /// The epoch that the hand-over was answered with.
    epoch: u64,
    /// Where to go on, as the last page says; absent: at the hottest block.
    #[serde(default)]
    after: u64,
    /// Blocks on the page at most, 1 to 1024; absent: 1024.
    limit: Option<usize>,
}

/// A page of the blocks that are kept of a volume which was handed over, hottest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HotBody {
    /// The epoch that was asked for.
    pub epoch: u64,
    /// Size of the volume at the hand-over, in bytes.
    pub size_bytes: u64,
    /// The back end's change proof of the hand-over, in hexadecimal; absent if it proves nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
    /// Numbers of blocks of 4 KiB. There may be none on a page that is not the last.
    pub blocks: Vec<u64>,
    /// `after` of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Body of `POST /v1/volumes/{name}/hot`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HotInput {
    /// The epoch that the hand-over was answered with.
    pub epoch: u64,
    /// Numbers of blocks of 4 KiB, 1 to 256 of them.
    pub blocks: Vec<u64>,
}

/// Whether a path is that of blocks that are fetched.
pub(super) fn is_fetch(path: &str) -> bool {
    path.strip_prefix("/v1/volumes/").is_some_and(|rest| rest.ends_with("/hot"))
}

/// The blocks that are cached of a volume that was handed over, hottest first
///
/// Other daemons ask this. 409 if nothing is kept of that epoch.
#[utoipa::path(get, path = "/v1/volumes/{name}/hot", tag = "volumes", operation_id = "list_hot_blocks",
    params(("name" = String, Path, description = "The volume"), HotQuery),
    responses((status = 200, description = "A page of them", body = HotBody), Asks))]
pub(super) async fn list(
    State(control): State<Arc<Control>>,
    name: VolumeName,
    query: Result<Query<HotQuery>, QueryRejection>,
) -> Answer<Json<HotBody>> {
    let Path(name) = name?;
    let Query(HotQuery { epoch, after, limit }) = query?;
    let limit = limit.unwrap_or(PAGE_BLOCKS_MAX);
    check_count("limit", limit, PAGE_BLOCKS_MAX)?;
    let message = |answer| Message::Hot { name, epoch, after, limit, answer };
    let HotPage { blocks, next, proof, size_bytes } = control.ask(WAIT_MAX, message).await?;
    Ok(Json(HotBody { epoch, size_bytes, proof: proof.map(|proof| hex(&proof)), blocks, next }))
}

/// What blocks of a volume that was handed over hold
///
/// Other daemons ask this. Only what is in the cache is sent; the back end is not read. The form is the
/// daemons' own (docs/design/migration.md).
#[utoipa::path(post, path = "/v1/volumes/{name}/hot", tag = "volumes", operation_id = "fetch_hot_blocks",
    params(("name" = String, Path, description = "The volume")),
    request_body(content = HotInput, content_type = "application/json"),
    responses((status = 200, description = "Those of them that are cached", body = Vec<u8>,
        content_type = "application/octet-stream"), ChangesNamed))]
pub(super) async fn fetch(
    State(control): State<Arc<Control>>,
    name: VolumeName,
    body: Bytes,
) -> Answer<impl IntoResponse> {
    let Path(name) = name?;
    let HotInput { epoch, blocks } = from_json(&body)?;
    check_count("blocks", blocks.len(), FETCH_BLOCKS_MAX)?;
    let message = |answer| Message::HotBlocks { name, epoch, blocks, answer };
    let bytes: Vec<u8> = control.ask(WAIT_MAX, message).await?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], bytes))
}

fn check_count(key: &'static str, count: usize, most: usize) -> Result<(), SettingError> {
    if (1..=most).contains(&count) {
        return Ok(());
    }
    let message = format!("{key}: {count} is not within bounds");
    Err(SettingError::new(key, message, format!("ask for 1 to {most} blocks")))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string does not fail.
        let _ok = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_bounds_and_proofs_are_hexadecimal() {
        assert!(check_count("limit", 1, 2).is_ok() && check_count("limit", 2, 2).is_ok());
        assert!(check_count("limit", 0, 2).is_err() && check_count("limit", 3, 2).is_err());
        assert_eq!(hex(&[0, 255, 16]), "00ff10");
        assert!(is_fetch("/v1/volumes/a/hot") && !is_fetch("/v1/volumes/a/give"));
    }
}
