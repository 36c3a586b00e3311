//! Names of volumes: how many, how long, and how they are shown.

/// Most volumes with names; the largest published traces have some thousands. It bounds memory.
pub(crate) const VOLUMES_MAX: usize = 1 << 20;
/// Longest name of a volume, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 256;

/// A name as it can be shown on a terminal: what does not belong there is escaped.
pub(crate) fn shown(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => name.escape_ascii().to_string(),
    }
}
