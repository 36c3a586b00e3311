//! Backends as they are written: `file:vm1.raw`, `nbd:unix:vm1.sock`, `rbd:pool/image`,
//! `sim:filer,seed=1:file:vm1.raw`.

use crate::hybrid::{HybridSpec, HybridSpecError};
use crate::model::{SettingError, SimSpec};
use crate::nbd::{NbdSpec, NbdSpecError, NbdUriError, uri};
use crate::rbd::{RbdSpec, RbdSpecError};
use std::path::{Path, PathBuf};

/// Longest text.
const TEXT_BYTES_MAX: usize = 8192;
/// Models in front of one another.
const LAYERS_MAX: usize = 4;
/// What a backend can start with.
const SCHEMES: [&str; 5] = ["file:", "hybrid:", "nbd:", "rbd:", "sim:"];

/// What QEMU and others have in front of other kinds of storage.
const FOREIGN: [&str; 4] = ["iscsi:", "nfs:", "ssh:", "gluster:"];

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
    /// An image of Ceph's RBD.
    Rbd(RbdSpec),
    /// A volume over two pools.
    Hybrid(HybridSpec),
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
    /// The image.
    #[error("in \"rbd:\"")]
    Rbd(#[from] RbdSpecError),
    /// The volume.
    #[error("in \"hybrid:\"")]
    Hybrid(#[from] HybridSpecError),
    /// The server, written as a URI.
    #[error("in the NBD URI")]
    Uri(#[from] NbdUriError),
    /// Nothing at all.
    #[error("a path, a backend or an NBD URI is missing")]
    Empty,
}

impl SpecError {
    /// A line that helps.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Scheme { .. } | Self::Path | Self::Text => {
                "write \"file:PATH\" for a file or block device, \"nbd:unix:PATH:EXPORT\" or \
                 \"nbd:tcp:HOST:PORT:EXPORT\" for a server, \"rbd:POOL/IMAGE\" for an RBD image"
            }
            Self::Rbd(_) => {
                "write \"rbd[,id=USER][,conf=PATH][,namespace=NAME]:POOL/[NAMESPACE/]IMAGE[@SNAPSHOT]\""
            }
            Self::Hybrid(_) => {
                "write \"hybrid[,planner=P][,round_s=N][,horizon_s=N][,copy_mib_s=N][,budget_mib=N]\
                 :fast=FOLDER,slow=FOLDER[,table=FILE]\""
            }
            Self::Nbd(_) => {
                "write \"nbd[,connections=N][,give_up_s=N]:unix:PATH[:EXPORT]\" or \
                 \"nbd:tcp:HOST:PORT[:EXPORT]\""
            }
            Self::Uri(_) => {
                "write \"nbd://HOST[:PORT]/EXPORT\" or \"nbd+unix:///EXPORT?socket=PATH\""
            }
            Self::Empty => {
                "write PATH or \"file:PATH\" for a file or block device, \"nbd:unix:PATH:EXPORT\" \
                 or \"nbd+unix:///EXPORT?socket=PATH\" for a server"
            }
            Self::Setting(SettingError::File(_)) => {
                "write \"sim:@FILE[,key=value...]:file:PATH\"; docs/guide/configuration.md says what is in \
                 FILE"
            }
            Self::Inner { .. } | Self::Layers | Self::Setting(_) => {
                "write \"sim:PRESET[,key=value...]:file:PATH\", \
                 for example \"sim:filer,seed=1:file:vm1.raw\""
            }
        }
    }
}

impl BackendSpec {
    /// Parses `file:PATH`, `nbd:ADDRESS` (see [`NbdSpec::parse`]), `rbd:POOL/IMAGE` (see
    /// [`RbdSpec::parse`]), `hybrid:fast=FOLDER,slow=FOLDER` (see [`HybridSpec::parse`]) or `sim:PRESET[,key=value...]:INNER`. A relative path is taken from `base`. A file's path may
    /// hold colons and commas; that of a preset (`sim:@FILE`) can't, and is absolute, for what is
    /// read here may be read again elsewhere.
    ///
    /// # Errors
    /// [`SpecError`], whose [`hint`](SpecError::hint) shows the right form.
    pub fn parse(text: &str, base: &Path) -> Result<Self, SpecError> {
        let (layers, rest) = layers(text, None)?;
        Ok(Self { place: place(rest, base)?, layers })
    }

    /// What a user may name on a command line: all that [`parse`](Self::parse) knows, an NBD URI
    /// (also behind `sim:`), and a plain path, which is whatever starts with none of the schemes. A
    /// preset's path may be relative.
    ///
    /// # Errors
    /// As `parse`.
    pub fn of_user(text: &str, base: &Path) -> Result<Self, SpecError> {
        let (layers, rest) = layers(text, Some(base))?;
        let place = if uri::is_uri(rest) {
            Place::Nbd(uri::parse(rest, base)?)
        } else if !layers.is_empty() || has_scheme(rest) || is_foreign(rest) {
            place(rest, base)?
        } else if rest.is_empty() {
            return Err(SpecError::Empty);
        } else {
            Place::File(base.join(rest))
        };
        Ok(Self { place, layers })
    }
}

/// The models in front, outermost first, and what is behind them.
fn layers<'a>(text: &'a str, base: Option<&Path>) -> Result<(Vec<SimSpec>, &'a str), SpecError> {
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
        layers.push(SimSpec::parse(settings, base)?);
        rest = behind;
    }
    Ok((layers, rest))
}

fn place(text: &str, base: &Path) -> Result<Place, SpecError> {
    match text.strip_prefix("file:") {
        Some("") => Err(SpecError::Path),
        Some(path) => Ok(Place::File(base.join(path))),
        None => {
            let of = |scheme| text.strip_prefix(scheme).filter(|rest| rest.starts_with([':', ',']));
            if let Some(server) = of("nbd") {
                Ok(Place::Nbd(NbdSpec::parse(server, base)?))
            } else if let Some(image) = of("rbd") {
                Ok(Place::Rbd(RbdSpec::parse(image, base)?))
            } else if let Some(volume) = of("hybrid") {
                Ok(Place::Hybrid(HybridSpec::parse(volume, base)?))
            } else {
                Err(SpecError::Scheme { got: text.into() })
            }
        }
    }
}

/// Whether a text names storage of a kind that others know and we don't: "no such file" would be
/// true, and of no help.
fn is_foreign(text: &str) -> bool {
    text.contains("://") || FOREIGN.iter().any(|scheme| text.starts_with(scheme))
}

/// Whether a text is a backend rather than a path. A file called `nbd,a` is none.
fn has_scheme(text: &str) -> bool {
    let has_options =
        |scheme| text.strip_prefix(scheme).is_some_and(|options: &str| options.contains(':'));
    ["hybrid,", "nbd,", "rbd,"].into_iter().any(has_options)
        || SCHEMES.iter().any(|scheme| text.starts_with(scheme))
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
        let presets: Vec<_> = spec.layers.iter().map(|layer| layer.preset.as_str()).collect();
        assert_eq!(presets, ["network", "hdd"]);
        assert_eq!(spec.place, Place::File("/etc/cinnabar/x".into()));
        let spec = parse("sim:network:nbd,connections=1:tcp:[::1]:10809").expect("well-formed");
        assert_eq!(spec.layers.len(), 1);
        assert!(matches!(spec.place, Place::Nbd(server) if server.connections == 1));
    }

    #[test]
    fn a_user_may_also_give_a_path_or_a_uri() {
        let of_user = |text| BackendSpec::of_user(text, Path::new("/here")).expect(text);
        for (text, path) in [
            ("vm1.raw", "/here/vm1.raw"),
            ("/dev/sdb", "/dev/sdb"),
            ("a:b,c", "/here/a:b,c"),
            ("nbd", "/here/nbd"),
            ("nbd,1.raw", "/here/nbd,1.raw"),
            ("./nbd:x", "/here/./nbd:x"),
            ("file:nbd://x", "/here/nbd://x"),
            ("file:vm1.raw", "/here/vm1.raw"),
        ] {
            assert_eq!(of_user(text).place, Place::File(path.into()), "{text}");
        }
        for (text, shown, layers) in [
            ("nbd+unix:///vm1?socket=a.sock", "nbd:unix:/here/a.sock:vm1", 0),
            ("nbd:unix:a.sock:vm1", "nbd:unix:/here/a.sock:vm1", 0),
            ("nbd,connections=1:tcp:h:1", "nbd,connections=1:tcp:h:1", 0),
            ("sim:hdd:sim:network:nbd://h/vm1", "nbd:tcp:h:10809:vm1", 2),
        ] {
            let spec = of_user(text);
            assert!(matches!(spec.place, Place::Nbd(server) if server.to_string() == shown));
            assert_eq!(spec.layers.len(), layers, "{text}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("p.toml"), "version = 1\n[sim]\ndepth = 3\n")
            .expect("it");
        let text = "sim:@p.toml,seed=2:file:x";
        let spec = BackendSpec::of_user(text, folder.path()).expect("well-formed");
        assert_eq!((spec.layers[0].depth, spec.layers[0].seed), (3, 2));
        // Where it might be read again from another folder, the whole path is asked for.
        let error = BackendSpec::parse(text, folder.path()).expect_err(text);
        assert!(error.hint().contains("sim:@FILE"), "{error:?}");
        let whole = format!("sim:@{}/p.toml:file:x", folder.path().display());
        assert!(BackendSpec::parse(&whole, Path::new("/")).is_ok());
        assert_eq!(of_user("sim:hdd:file:x").place, Place::File("/here/x".into()));
    }

    #[test]
    fn a_users_mistakes_are_named() {
        for (text, part) in [
            ("", "a path, a backend or an NBD URI is missing"),
            ("file:", "path is missing"),
            ("nbd:vm1.sock", "in \"nbd:\""),
            ("nbds://h/vm1", "in the NBD URI"),
            ("sim:hdd:vm1.raw", "\"vm1.raw\" is not a backend"),
            ("sim:hdd", "lacks the backend behind it"),
            ("rbd:image", "in \"rbd:\""),
            ("hybrid:vm1", "in \"hybrid:\""),
            ("iscsi:x", "\"iscsi:x\" is not a backend"),
            ("http://h/disk", "is not a backend"),
            ("a\0b", "none of them is zero"),
        ] {
            let error = BackendSpec::of_user(text, Path::new("/")).expect_err(text);
            assert!(error.to_string().contains(part), "{text}: {error}");
            assert!(!error.hint().is_empty());
        }
        // In files, where no shell completes paths, what is meant is said.
        assert!(parse("nbd://h/vm1").is_err());
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, part) in [
            ("", "known: file:, hybrid:, nbd:, rbd:, sim:"),
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
