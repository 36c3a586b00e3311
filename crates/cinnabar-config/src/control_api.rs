//! The keys of `[control]` that serve HTTP: the names of the address, the control API there, and what other
//! daemons ask.

use super::section_keys::ControlKeys;
use super::values::normal;
use super::{ApiConfig, PeersConfig};
use cinnabar_text::ConfigError;
use cinnabar_text::toml_reader::{Located, Scalar, Source};
use std::net::SocketAddr;
use std::path::Path;

/// Most names in `allowed_hosts`.
const HOSTS_MAX: usize = 64;
/// Longest name that DNS knows.
const HOST_BYTES_MAX: usize = 253;

/// Reads how the control API is served.
pub(super) fn read_api(
    source: Source<'_>,
    keys: &ControlKeys,
    base: &Path,
) -> Result<Option<ApiConfig>, ConfigError> {
    let (token_file, page) = (keys.token_file.as_ref(), keys.page.as_ref());
    let Some(api) = keys.api.as_ref().filter(|api| api.value) else {
        let found = [
            token_file.map(|file| ("token_file", file.line)),
            page.filter(|page| page.value).map(|page| ("page", page.line)),
        ];
        return match found.into_iter().flatten().next() {
            None => Ok(None),
            Some((key, line)) => {
                let hint = "add api = true, to serve the control API over HTTP";
                Err(source.error(Some(line), format!("{key} without api"), hint))
            }
        };
    };
    if keys.http.is_none() {
        let hint = "add http = \"127.0.0.1:9320\"";
        return Err(source.error(Some(api.line), "api without http", hint));
    }
    let token_file = token_file.map(|file| {
        if file.value.is_empty() || file.value.contains('\0') {
            let hint = "name a file with mode 0600: (umask 077; openssl rand -hex 32 > FILE)";
            return Err(source.error(Some(file.line), "token_file is not a path", hint));
        }
        Ok(normal(&base.join(&file.value)))
    });
    let page = page.is_none_or(|page| page.value);
    Ok(Some(ApiConfig { token_file: token_file.transpose()?, page }))
}

/// Reads the names under which the HTTP address is served.
pub(super) fn read_allowed_hosts(
    source: Source<'_>,
    keys: &ControlKeys,
) -> Result<Vec<String>, ConfigError> {
    let Some(hosts) = &keys.allowed_hosts else { return Ok(Vec::new()) };
    if keys.http.is_none() {
        let hint = "add http = \"127.0.0.1:9320\"";
        let line = hosts.first().map(|host| host.line);
        return Err(source.error(line, "allowed_hosts without http", hint));
    }
    if let Some(more) = hosts.get(HOSTS_MAX) {
        let message = format!("allowed_hosts has more than {HOSTS_MAX} names");
        return Err(source.error(Some(more.line), message, "name those that clients use"));
    }
    hosts.iter().map(|host| allowed_host(source, host)).collect()
}

/// Reads where daemons on other hosts may ask for volumes, and the file of the token that they bring: both,
/// or neither.
pub(super) fn read_peers(
    source: Source<'_>,
    keys: &ControlKeys,
    base: &Path,
) -> Result<Option<PeersConfig>, ConfigError> {
    let error = |line, message: String, hint: &str| Err(source.error(Some(line), message, hint));
    let (address, token_file) = match (&keys.peers, &keys.peers_token_file) {
        (None, None) => return Ok(None),
        (Some(address), Some(token_file)) => (address, token_file),
        (Some(Located { line, .. }), None) => {
            let hint = "name a file with mode 0600: (umask 077; openssl rand -hex 32 > FILE)";
            return error(*line, "peers without peers_token_file".into(), hint);
        }
        (None, Some(Located { line, .. })) => {
            let hint = "add peers = \"ADDRESS:9321\", an address that the other hosts reach";
            return error(*line, "peers_token_file without peers".into(), hint);
        }
    };
    let Ok(at) = address.value.parse::<SocketAddr>() else {
        let message = format!("peers: {:?} is not an address and port", address.value);
        return error(address.line, message, "write for example \"10.0.0.1:9321\"");
    };
    if at.port() == 0 {
        let message = "peers: the port is 0, other hosts could not find it";
        return error(address.line, message.into(), "write for example \"10.0.0.1:9321\"");
    }
    if token_file.value.is_empty() || token_file.value.contains('\0') {
        let hint = "name a file with mode 0600: (umask 077; openssl rand -hex 32 > FILE)";
        return error(token_file.line, "peers_token_file is not a path".into(), hint);
    }
    Ok(Some(PeersConfig { address: at, token_file: normal(&base.join(&token_file.value)) }))
}

fn allowed_host(source: Source<'_>, host: &Located<Vec<Scalar>>) -> Result<String, ConfigError> {
    let fits = |name: &str| {
        (1..=HOST_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    match host.value.as_slice() {
        [Scalar::Text(name)] if fits(name) => Ok(name.to_ascii_lowercase()),
        _ => {
            let message = "allowed_hosts has something that is not the name of a host";
            let hint = "write names without ports: allowed_hosts = [\"cache.example\"]";
            Err(source.error(Some(host.line), message, hint))
        }
    }
}
