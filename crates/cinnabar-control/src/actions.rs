//! What an operator does to the cache: another device, none at all, blocks not to be believed.

use super::Control;
use super::api::{Answer, VolumeName, from_json};
use super::describe::{Changes, ChangesNamed};
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Json;
use cinnabar_config::SettingError;
use cinnabar_config::messages::{ByteRange, Message, NewCache};
use cinnabar_config::status::report::{CacheReport, StatusReport};
use cinnabar_config::units::parse_size;
use serde::{Deserialize, Serialize};
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// Longest wait for a volume's writes to reach its back end.
const FLUSH_WAIT_MAX: Duration = Duration::from_hours(24);

/// Body of `POST /v1/cache/replace`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceInput {
    /// File or block device; a relative path is taken from the configuration's folder.
    pub device: String,
    /// Size of a file that is to be made, such as `8GiB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Format it even if it holds something.
    #[serde(default)]
    pub format: bool,
}

/// Body of `POST /v1/cache/resize`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeInput {
    /// The new size, such as `16GiB`: at most the one that the device was made for.
    pub size: String,
}

/// Body of `POST /v1/volumes/{name}/invalidate`: both numbers, or an empty object for all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InvalidateInput {
    /// First byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub len: Option<u64>,
}

/// Use another cache device; answered when it is in use
#[utoipa::path(post, path = "/v1/cache/replace", tag = "cache", operation_id = "replace_cache",
    request_body(content = ReplaceInput, content_type = "application/json"),
    responses((status = 200, description = "It is in use", body = CacheReport), Changes))]
pub(super) async fn replace(
    State(control): State<Arc<Control>>,
    body: Bytes,
) -> Answer<Json<CacheReport>> {
    let new = from_json::<ReplaceInput>(&body)?.check(&control.base)?;
    let _one_at_a_time = control.changes.lock().await;
    let message = |answer| Message::ReplaceCache { new, answer };
    control.ask(control.change_wait_max, message).await?;
    Ok(Json(StatusReport::new(&control.status().await?).cache))
}

/// Give the cache another size; answered when that has begun
///
/// What is cached stays, as far as it fits. `resizing` of the answer, and of the status, says how far it
/// is; when that is gone, `size_bytes` is the new size, or `resize_failed` says why not. Another resize
/// takes the place of one that is under way.
#[utoipa::path(post, path = "/v1/cache/resize", tag = "cache", operation_id = "resize_cache",
    request_body(content = ResizeInput, content_type = "application/json"),
    responses((status = 200, description = "It has begun", body = CacheReport), Changes))]
pub(super) async fn resize(
    State(control): State<Arc<Control>>,
    body: Bytes,
) -> Answer<Json<CacheReport>> {
    let size_bytes = from_json::<ResizeInput>(&body)?.check()?;
    let _one_at_a_time = control.changes.lock().await;
    let message = |answer| Message::ResizeCache { size_bytes, answer };
    control.ask(control.change_wait_max, message).await?;
    control.note(|configured| configured.resized_to = None);
    Ok(Json(StatusReport::new(&control.status().await?).cache))
}

/// Use no cache device any more; answered when it is closed
#[utoipa::path(post, path = "/v1/cache/abandon", tag = "cache", operation_id = "abandon_cache",
    responses((status = 200, description = "It is closed", body = CacheReport), Changes))]
pub(super) async fn abandon(State(control): State<Arc<Control>>) -> Answer<Json<CacheReport>> {
    let _one_at_a_time = control.changes.lock().await;
    control.ask(control.change_wait_max, Message::AbandonCache).await?;
    Ok(Json(StatusReport::new(&control.status().await?).cache))
}

/// Bring everything that was acknowledged to the back end
///
/// Answered when it is there, which takes as long as that does: nothing else waits.
#[utoipa::path(post, path = "/v1/volumes/{name}/flush", tag = "volumes",
    operation_id = "flush_volume",
    params(("name" = String, Path, description = "The volume")),
    responses((status = 204, description = "The back end has everything"), ChangesNamed))]
pub(super) async fn flush(
    State(control): State<Arc<Control>>,
    name: VolumeName,
) -> Answer<StatusCode> {
    let Path(name) = name?;
    let message = |answer| Message::FlushVolume { name, answer };
    control.ask(FLUSH_WAIT_MAX, message).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Drop what is cached of a volume, or of a part of it
#[utoipa::path(post, path = "/v1/volumes/{name}/invalidate", tag = "volumes",
    operation_id = "invalidate_volume",
    params(("name" = String, Path, description = "The volume")),
    request_body(content = InvalidateInput, content_type = "application/json"),
    responses((status = 204, description = "It is dropped"), ChangesNamed))]
pub(super) async fn invalidate(
    State(control): State<Arc<Control>>,
    name: VolumeName,
    body: Bytes,
) -> Answer<StatusCode> {
    let Path(name) = name?;
    let range = from_json::<InvalidateInput>(&body)?.check()?;
    let _one_at_a_time = control.changes.lock().await;
    let message = |answer| Message::Invalidate { name, range, answer };
    control.ask(control.change_wait_max, message).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl ReplaceInput {
    fn check(&self, base: &FilePath) -> Result<NewCache, SettingError> {
        if self.device.is_empty() || self.device.contains('\0') {
            let hint = "name a file or a block device on an SSD";
            return Err(SettingError::new("device", "there is no device", hint));
        }
        let size_bytes =
            self.size.as_deref().map(parse_size).transpose().map_err(|(message, hint)| {
                SettingError::new("size", format!("size: {message}"), hint)
            })?;
        Ok(NewCache { device: base.join(&self.device), size_bytes, format: self.format })
    }
}

impl ResizeInput {
    fn check(&self) -> Result<u64, SettingError> {
        parse_size(&self.size)
            .map_err(|(message, hint)| SettingError::new("size", format!("size: {message}"), hint))
    }
}

impl InvalidateInput {
    fn check(self) -> Result<Option<ByteRange>, SettingError> {
        let wrong = |key, message: &str| {
            Err(SettingError::new(key, message, "give offset and len in bytes, or neither"))
        };
        match (self.offset, self.len) {
            (None, None) => Ok(None),
            (Some(_), Some(0)) => wrong("len", "len is 0"),
            (Some(offset), Some(len)) => match offset.checked_add(len) {
                Some(_) => Ok(Some(ByteRange { offset, len })),
                None => wrong("len", "offset and len are beyond any volume"),
            },
            (Some(_), None) => wrong("len", "there is an offset but no len"),
            (None, Some(_)) => wrong("offset", "there is a len but no offset"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_whole_or_absent() {
        let check = |offset, len| InvalidateInput { offset, len }.check();
        assert_eq!(check(None, None), Ok(None));
        assert_eq!(check(Some(5), Some(7)), Ok(Some(ByteRange { offset: 5, len: 7 })));
        for (offset, len) in
            [(Some(5), None), (None, Some(5)), (Some(0), Some(0)), (Some(u64::MAX), Some(1))]
        {
            let error = check(offset, len).expect_err("not a range");
            assert!(!error.hint.is_empty(), "{error}");
        }
    }

    #[test]
    fn a_new_size_is_readable() {
        let check = |size: &str| ResizeInput { size: size.into() }.check();
        assert_eq!(check("16GiB"), Ok(16 << 30));
        for wrong in ["", "16", "16G", "-1GiB", "99999999999GiB"] {
            let checked = check(wrong);
            let error = checked.err();
            let told = error.is_some_and(|error| !error.hint.is_empty());
            assert!(told || wrong == "16", "{wrong}");
        }
    }

    #[test]
    fn a_device_is_named_and_its_size_readable() {
        let input = |device: &str, size: &str| ReplaceInput {
            device: device.into(),
            size: Some(size.into()),
            format: true,
        };
        let base = FilePath::new("/etc/cinnabar");
        let new = input("new.img", "1GiB").check(base).expect("it is fine");
        assert_eq!(new.device, FilePath::new("/etc/cinnabar/new.img"));
        assert_eq!((new.size_bytes, new.format), (Some(1 << 30), true));
        input("", "1GiB").check(base).expect_err("no device");
        let error = input("a", "1G").check(base).expect_err("no unit");
        assert!(error.message.starts_with("size: "), "{error}");
    }
}
