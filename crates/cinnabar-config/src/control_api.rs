//! The keys of `[control]` that serve the control API over HTTP.

use super::ApiConfig;
use super::volume::normal;
use cinnabar_text::ConfigError;
use cinnabar_text::toml_reader::{Located, Scalar, Section, Source};
use std::path::Path;

/// Most names in `allowed_hosts`.
const HOSTS_MAX: usize = 64;
/// Longest name that DNS knows.
const HOST_BYTES_MAX: usize = 253;

/// Reads them; `http` tells whether there is an address to serve it at.
pub(super) fn read_api(
    source: Source<'_>,
    section: &mut Section<'_>,
    base: &Path,
    http: bool,
) -> Result<Option<ApiConfig>, ConfigError> {
    let api = section.flag("api")?;
    let token_file = section.string("token_file")?;
    let hosts = section.scalars("allowed_hosts")?;
    let Some(api) = api.filter(|api| api.value) else {
        let found = [
            token_file.map(|file| ("token_file", file.line)),
            hosts.map(|hosts| ("allowed_hosts", hosts.first().map_or(0, |host| host.line))),
        ];
        return match found.into_iter().flatten().next() {
            None => Ok(None),
            Some((key, line)) => {
                let hint = "add api = true, to serve the control API over HTTP";
                let line = (line > 0).then_some(line);
                Err(source.error(line, format!("{key} without api"), hint))
            }
        };
    };
    if !http {
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
    let hosts = hosts.unwrap_or_default();
    if let Some(more) = hosts.get(HOSTS_MAX) {
        let message = format!("allowed_hosts has more than {HOSTS_MAX} names");
        return Err(source.error(Some(more.line), message, "name those that clients use"));
    }
    let allowed_hosts = hosts.iter().map(|host| allowed_host(source, host));
    Ok(Some(ApiConfig {
        token_file: token_file.transpose()?,
        allowed_hosts: allowed_hosts.collect::<Result<_, _>>()?,
    }))
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
