//! TLS in the configuration: the section `[tls]`, and the keys of volumes and of `[control]` that use it.

use super::error::SettingError;
use super::section_keys::{ControlKeys, TlsKeys};
use super::values::{normal, up_to};
use super::{HttpTls, TlsConfig};
use crate::settings::{NbdAddress, TlsAccess};
use cinnabar_text::ConfigError;
use cinnabar_text::toml_reader::{Located, Scalar, Section, Source};
use std::path::Path;

/// Most names in a list of certificates' names.
const NAMES_MAX: usize = 256;
/// Longest of them, as DNS has it.
const NAME_BYTES_MAX: usize = 253;
/// Most threads that end TLS.
const THREADS_MAX: u64 = 64;
/// Unless the configuration says otherwise.
const THREADS: u64 = 2;
const NAMES_HINT: &str = "write DNS names of certificates: tls_allow = [\"host-a.example\"]";

/// Reads `[tls]`.
pub(super) fn read_tls(
    source: Source<'_>,
    section: Option<Section<'_>>,
    base: &Path,
) -> Result<Option<TlsConfig>, ConfigError> {
    let Some(section) = section else { return Ok(None) };
    let TlsKeys { line, certificate, key, client_ca, threads } = TlsKeys::read(section)?;
    let path = |name: &str, found: &Located<String>| {
        if found.value.is_empty() || found.value.contains('\0') {
            let hint = "name a file in PEM; docs/guide/tls.md shows how to make them";
            return Err(source.error(Some(found.line), format!("{name} is not a path"), hint));
        }
        Ok(normal(&base.join(&found.value)))
    };
    let needed = |name: &str, found: Option<Located<String>>| {
        let Some(found) = found else {
            let hint =
                format!("add {name} = \"{name}.pem\"; docs/guide/tls.md shows how to make it");
            return Err(source.error(Some(line), format!("[tls] has no {name}"), hint));
        };
        path(name, &found)
    };
    Ok(Some(TlsConfig {
        certificate: needed("certificate", certificate)?,
        key: needed("key", key)?,
        client_ca: client_ca.map(|found| path("client_ca", &found)).transpose()?,
        threads: threads
            .map_or(Ok(THREADS), |threads| up_to(source, "threads", &threads, 1, THREADS_MAX))?
            as usize,
    }))
}

/// Reads `http_tls` and `http_tls_allow` of `[control]`.
pub(super) fn read_http_tls(
    source: Source<'_>,
    keys: &ControlKeys,
    tls: Option<&TlsConfig>,
) -> Result<Option<HttpTls>, ConfigError> {
    let allow = keys.http_tls_allow.as_ref();
    let wrong = |line, message: &str, hint: &str| Err(source.error(Some(line), message, hint));
    let Some(mode) = &keys.http_tls else {
        let Some(line) = allow.map(|allow| allow.first().map_or(keys.line, |one| one.line)) else {
            return Ok(None);
        };
        return wrong(line, "http_tls_allow without http_tls", "add http_tls = \"require\"");
    };
    if keys.http.is_none() {
        return wrong(mode.line, "http_tls without http", "add http = \"ADDRESS:9320\"");
    }
    let clients_known = match mode.value.as_str() {
        "none" => return Ok(None),
        "server" => false,
        "require" => true,
        other => {
            let message = format!("http_tls: unknown value {other:?}");
            let hint = "write \"server\" (clients need no certificate), \"require\" or \"none\"";
            return Err(source.error(Some(mode.line), message, hint));
        }
    };
    check_files("http_tls", tls, clients_known)
        .map_err(|error| source.error(Some(mode.line), error.message, error.hint))?;
    if allow.is_some() && !clients_known {
        let hint = "set http_tls = \"require\": without certificates clients have no names";
        return wrong(mode.line, "http_tls_allow with http_tls = \"server\"", hint);
    }
    let allow = allow.map(|allow| names(source, "http_tls_allow", allow)).transpose()?;
    Ok(Some(HttpTls { clients_known, allow: allow.unwrap_or_default() }))
}

/// Reads `tls_allow` of a volume, which is checked with it.
pub(super) fn read_allow(
    source: Source<'_>,
    found: Option<Vec<Located<Vec<Scalar>>>>,
) -> Result<Option<Located<Vec<String>>>, ConfigError> {
    let Some(found) = found else { return Ok(None) };
    let line = found.first().map_or(0, |one| one.line);
    // An empty list is found wrong with the volume, which has a line.
    let value = if found.is_empty() { Vec::new() } else { names(source, "tls_allow", &found)? };
    Ok(Some(Located { value, line }))
}

fn names(
    source: Source<'_>,
    key: &'static str,
    found: &[Located<Vec<Scalar>>],
) -> Result<Vec<String>, ConfigError> {
    let name = |one: &Located<Vec<Scalar>>| {
        if let [Scalar::Text(name)] = one.value.as_slice() {
            return Ok(name.clone());
        }
        let message = format!("{key} has something that is not a name");
        Err(source.error(Some(one.line), message, NAMES_HINT))
    };
    let all = found.iter().map(name).collect::<Result<Vec<_>, _>>()?;
    check_names(key, &all).map_err(|error| {
        let line = found.first().map(|one| one.line);
        source.error(line, error.message, error.hint)
    })?;
    Ok(all)
}

fn check_names(key: &'static str, names: &[String]) -> Result<(), SettingError> {
    let fits = |name: &String| {
        (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
    };
    if names.is_empty() {
        let hint = "leave it out to take every certificate of client_ca, or name some";
        return Err(SettingError::new(key, format!("{key} is empty"), hint));
    }
    if names.len() > NAMES_MAX {
        let message = format!("{key} has more than {NAMES_MAX} names");
        return Err(SettingError::new(key, message, "have an authority of its own sign them"));
    }
    match names.iter().find(|name| !fits(name)) {
        Some(name) => {
            Err(SettingError::new(key, format!("{key}: {name:?} is no name"), NAMES_HINT))
        }
        None => Ok(()),
    }
}

/// Checks how a volume's clients use TLS: `nbd_tls` and `tls_allow`.
///
/// # Errors
/// What can't be used.
pub fn volume_tls(
    mode: Option<&str>,
    allow: Option<&[String]>,
    nbd: Option<&NbdAddress>,
) -> Result<Option<TlsAccess>, SettingError> {
    match mode {
        None | Some("none") => {
            return allow.map_or(Ok(None), |_| {
                let message = "tls_allow without nbd_tls: clients without TLS have no names";
                Err(SettingError::new("tls_allow", message, "add nbd_tls = \"require\""))
            });
        }
        Some("require") => {}
        Some(other) => {
            let message = format!("nbd_tls: unknown value {other:?}");
            return Err(SettingError::new("nbd_tls", message, "write \"require\" or \"none\""));
        }
    }
    if !matches!(nbd, Some(NbdAddress::Tcp(_))) {
        let message = "nbd_tls is for NBD over TCP";
        let hint =
            "set nbd = \"tcp:ADDRESS:10809\"; a unix socket is guarded by its mode and group";
        return Err(SettingError::new("nbd_tls", message, hint));
    }
    if let Some(allow) = allow {
        check_names("tls_allow", allow)?;
    }
    Ok(Some(TlsAccess { allow: allow.unwrap_or_default().to_vec() }))
}

/// Checks that there are the files that a volume, or HTTP, needs.
///
/// # Errors
/// If not.
pub fn check_files(
    key: &'static str,
    tls: Option<&TlsConfig>,
    clients_known: bool,
) -> Result<(), SettingError> {
    let hint = "docs/guide/tls.md shows what it needs";
    match tls {
        None => Err(SettingError::new(key, format!("{key} needs a section [tls]"), hint)),
        Some(tls) if clients_known && tls.client_ca.is_none() => {
            let message = format!("{key} needs client_ca in [tls], to know clients by");
            Err(SettingError::new(key, message, hint))
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
