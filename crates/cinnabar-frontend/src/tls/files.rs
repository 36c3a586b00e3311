//! The files that the operator names: a certificate, its key, the authority of clients.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Longest file: some hundreds of certificates.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where they are; paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The daemon's certificate, and behind it those up to its authority's; PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM: a file of the daemon's account, or root, that no other may use.
    pub key: PathBuf,
    /// Certificates of authorities, PEM: those that clients' certificates are signed by. `None`: no client
    /// can show who it is.
    pub client_ca: Option<PathBuf>,
}

/// Why certificates can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("{} can't be read: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a folder, a pipe, a device, or too long.
    #[error("{} is not a file with certificates or a key", .0.display())]
    NotAFile(PathBuf),
    /// Other accounts may use the key.
    #[error("the mode of the key {} is {mode:04o}: other accounts may use it", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        mode: u32,
    },
    /// Another account could change it.
    #[error("the key {} belongs to account {owner}", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// There is nothing in it.
    #[error("there is no {what} in {}", path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
    },
    /// Its content can't be used.
    #[error("{}: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        why: String,
    },
    /// The key can't be used, or is that of another certificate.
    #[error("{}: {why}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        why: String,
    },
    /// There is no room for a thread that looks at the files.
    #[error("no thread can be started: {0}")]
    Thread(io::Error),
    /// It is too late, or too early.
    #[error("{}: {why}", path.display())]
    Time {
        /// The file.
        path: PathBuf,
        why: String,
    },
}

impl TlsError {
    /// Whether it may go by itself: files that are being replaced, one after the other, or storage that fails.
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::Key { .. } | Self::Thread(_))
    }

    /// A line that helps.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } | Self::NotAFile(_) => {
                "check the paths in [tls], and that the daemon's account may read the files"
            }
            Self::Mode { .. } => "chmod 0600 it; if others may have read it, make another key",
            Self::Owner { .. } => "chown it to the daemon's account or root",
            Self::Thread(_) => "check the limits of the process: ulimit -a",
            Self::Nothing { .. } | Self::Content { .. } | Self::Key { .. } => {
                "files are PEM: certificate has the daemon's own first, and key is the key of that one"
            }
            Self::Time { .. } => "put a certificate in its place that is valid now",
        }
    }
}

/// What of a file shows that it is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    place: (u64, u64),
    len: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// Of the file that a path names now; `None` of one that can't be looked at.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        let place = (found.dev(), found.ino());
        // The change time, not that of the content: `cp -p` and `mv` keep that one.
        let changed = (found.ctime(), found.ctime_nsec());
        Some(Self { place, len: found.len(), changed })
    }
}

/// Reads certificates; at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(path, false)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| content(path, &error))?;
    if all.is_empty() {
        return Err(TlsError::Nothing { path: path.to_owned(), what: "certificate" });
    }
    Ok(all)
}

/// Reads a private key that no other account may use.
pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    use rustls::pki_types::pem::Error;
    match PrivateKeyDer::from_pem_slice(&read(path, true)?) {
        Ok(key) => Ok(key),
        Err(Error::NoItemsFound) => {
            Err(TlsError::Nothing { path: path.to_owned(), what: "private key" })
        }
        Err(error) => Err(content(path, &error)),
    }
}

pub(crate) fn content(path: &Path, error: &dyn std::fmt::Display) -> TlsError {
    TlsError::Content { path: path.to_owned(), why: error.to_string() }
}

fn read(path: &Path, private: bool) -> Result<Vec<u8>, TlsError> {
    let failed = |source| TlsError::Io { path: path.to_owned(), source };
    // A pipe without a writer would be waited for.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    // Of the very file that is read, whatever the path names by now.
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(TlsError::NotAFile(path.to_owned()));
    }
    let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
    if private && mode & 0o077 != 0 {
        return Err(TlsError::Mode { path: path.to_owned(), mode });
    }
    if private && owner != rustix::process::geteuid().as_raw() && owner != 0 {
        return Err(TlsError::Owner { path: path.to_owned(), owner });
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
    Ok(text)
}
