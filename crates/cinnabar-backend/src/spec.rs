//! Backends as they are written: `file:vm1.raw`, `nbd:unix:vm1.sock`,
//! `sim:filer,seed=1:file:vm1.raw`.
//!
//! Called by the configuration and by the control plane, before anything is opened.

use crate::nbd::{NbdSpec, NbdSpecError};
use crate::sim::{SettingError, SimSpec};
use std::path::{Path, PathBuf};

/// Longest text.
const TEXT_BYTES_MAX: usize = 8192;
/// Models in front of one another.
const LAYERS_MAX: usize = 4;
/// What a backend can start with.
const SCHEMES: [&str; 3] = ["file:", "nbd:", "sim:"];

/// A backend, not yet opened.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendSpec {
    /// Where the bytes live.
    pub place: Place,
    /// Models in front of it, outermost first.
    pub layers: Vec<SimSpec>,
}

/// Where bytes live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file or block device.
    File(PathBuf),
    /// A server's export.
    Nbd(NbdSpec),
}

/// Why a text is not a backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// It starts with nothing known.
    #[error("{got:?} is not a backend (known: {})", SCHEMES.join(", "))]
    Scheme {
        /// The part that was to be a backend.
        got: String,
    },
    /// Nothing after `file:`.
    #[error("a path is missing after \"file:\"")]
    Path,
    /// A NUL byte, or too long.
    #[error("a backend is at most {TEXT_BYTES_MAX} bytes and none of them is zero")]
    Text,
    /// `sim:` without a backend behind it.
    #[error("\"sim:{settings}\" lacks the backend behind it, such as \"sim:{settings}:file:PATH\"")]
    Inner {
        /// What stands after `sim:`.
        settings: String,
    },
    /// Too many models.
    #[error("at most {LAYERS_MAX} models can stand in front of one another")]
    Layers,
    /// The settings of a model.
    #[error("in \"sim:\"")]
    Setting(#[from] SettingError),
    /// The server.
    #[error("in \"nbd:\"")]
    Nbd(#[from] NbdSpecError),
}

impl SpecError {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Scheme { .. } | Self::Path | Self::Text => {
                "write \"file:PATH\" for a file or block device, \"nbd:unix:PATH:EXPORT\" or \
                 \"nbd:tcp:HOST:PORT:EXPORT\" for a server"
            }
            Self::Nbd(_) => {
                "write \"nbd[,connections=N][,give_up_s=N]:unix:PATH[:EXPORT]\" or \
                 \"nbd:tcp:HOST:PORT[:EXPORT]\""
            }
            Self::Inner { .. } | Self::Layers | Self::Setting(_) => {
                "write \"sim:PRESET[,key=value...]:file:PATH\", \
                 for example \"sim:filer,seed=1:file:vm1.raw\""
            }
        }
    }
}

impl BackendSpec {
    /// Parses `file:PATH`, `nbd:ADDRESS` (see [`NbdSpec::parse`]) or
    /// `sim:PRESET[,key=value...]:INNER`. A relative path is taken from `base`. A file's path may
    /// hold colons and commas.
    ///
    /// # Errors
    /// [`SpecError`], whose [`hint`](SpecError::hint) shows the right form.
    pub fn parse(text: &str, base: &Path) -> Result<Self, SpecError> {
        if text.len() > TEXT_BYTES_MAX || text.contains('\0') {
            return Err(SpecError::Text);
        }
        let mut layers = Vec::new();
        let mut rest = text;
        while let Some(settings) = rest.strip_prefix("sim:") {
            let inner = || SpecError::Inner { settings: settings.into() };
            let (settings, behind) = settings.split_once(':').ok_or_else(inner)?;
            if layers.len() == LAYERS_MAX {
                return Err(SpecError::Layers);
            }
            layers.push(SimSpec::parse(settings)?);
            rest = behind;
        }
        let place = match rest.strip_prefix("file:") {
            Some("") => return Err(SpecError::Path),
            Some(path) => Place::File(base.join(path)),
            None => match rest.strip_prefix("nbd") {
                Some(server) if server.starts_with([':', ',']) => {
                    Place::Nbd(NbdSpec::parse(server, base)?)
                }
                _ => return Err(SpecError::Scheme { got: rest.into() }),
            },
        };
        Ok(Self { place, layers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<BackendSpec, SpecError> {
        BackendSpec::parse(text, Path::new("/etc/cinnabar"))
    }

    #[test]
    fn paths_are_taken_from_the_base() {
        let place = |text| parse(text).expect("well-formed").place;
        assert_eq!(place("file:vm1.raw"), Place::File("/etc/cinnabar/vm1.raw".into()));
        assert_eq!(place("file:/dev/sdb"), Place::File("/dev/sdb".into()));
        assert_eq!(place("file:a:b,c=d"), Place::File("/etc/cinnabar/a:b,c=d".into()));
        let Place::Nbd(server) = place("nbd:unix:vm1.sock:a:b") else { panic!("a server") };
        assert_eq!(server.to_string(), "nbd:unix:/etc/cinnabar/vm1.sock:a:b");
    }

    #[test]
    fn models_stand_in_front() {
        let spec = parse("sim:network,packet=1ms:sim:hdd:file:x").expect("well-formed");
        let presets: Vec<_> = spec.layers.iter().map(|layer| layer.preset).collect();
        assert_eq!(presets, ["network", "hdd"]);
        assert_eq!(spec.place, Place::File("/etc/cinnabar/x".into()));
        let spec = parse("sim:network:nbd,connections=1:tcp:[::1]:10809").expect("well-formed");
        assert_eq!(spec.layers.len(), 1);
        assert!(matches!(spec.place, Place::Nbd(server) if server.connections == 1));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, part) in [
            ("", "known: file:, nbd:, sim:"),
            ("vm1.raw", "\"vm1.raw\" is not a backend"),
            ("nfs:x", "is not a backend"),
            ("nbdx:unix:a", "is not a backend"),
            ("nbd:vm1.sock", "in \"nbd:\""),
            ("file:", "path is missing"),
            ("sim:filer", "lacks the backend behind it"),
            ("sim:filer:vm1.raw", "\"vm1.raw\" is not a backend"),
            ("sim:filer,x=1:file:a", "in \"sim:\""),
            ("sim:ssd:sim:ssd:sim:ssd:sim:ssd:sim:ssd:file:a", "at most 4 models"),
            ("file:a\0b", "none of them is zero"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.to_string().contains(part), "{text}: {error}");
            assert!(!error.hint().is_empty());
        }
    }
}
