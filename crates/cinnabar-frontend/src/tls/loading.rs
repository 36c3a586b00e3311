//! The files, read and read again: the daemon's own certificate with its key, and the authority of clients.
//!
//! Each is replaced apart: an authority that is taken back counts at once, also while the daemon's own
//! certificate can't be used. What can't be used is read again by the next look.

use crate::tls::certificate::Certificate;
use crate::tls::files::{Files, Stamp, TlsError, certificates, content, key};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use std::sync::Arc;
use std::time::SystemTime;

/// TLS 1.2 with AES-GCM has no way to change its keys: a connection ends after 2^24 records, 256 GiB at most.
const HTTP_VERSIONS: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
const NBD_VERSIONS: &[&SupportedProtocolVersion] = &[&TLS13];

/// What new connections are served with.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    /// For clients without a certificate.
    pub(crate) any: Arc<ServerConfig>,
    /// For those with one.
    pub(crate) known: Option<Arc<ServerConfig>>,
    /// The same for clients of volumes.
    pub(crate) volumes: Option<Arc<ServerConfig>>,
}

/// What was read of the files.
#[derive(Debug)]
pub(crate) struct Looked {
    files: Files,
    provider: Arc<CryptoProvider>,
    own: Part<Own>,
    clients: Part<Option<Arc<dyn ClientCertVerifier>>>,
}

/// What is replaced apart from the rest.
#[derive(Debug)]
struct Part<T> {
    value: T,
    /// Of its files when they were read. `None`: they could not be used.
    stamps: Option<[Option<Stamp>; 2]>,
    /// What the log has of that.
    warned: String,
}

/// The daemon's certificate and its key.
#[derive(Debug)]
struct Own {
    key: Arc<SingleCertAndKey>,
    der: CertificateDer<'static>,
    read: Certificate,
}

impl Own {
    /// Whether it is valid at this time.
    fn check_time(&self, files: &Files) -> Result<(), TlsError> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let checked = self.read.check_time(now.as_secs().cast_signed());
        checked.map_err(|why| TlsError::Time { path: files.certificate.clone(), why })
    }
}

impl<T> Part<T> {
    fn new(value: T, stamps: [Option<Stamp>; 2]) -> Self {
        Self { value, stamps: Some(stamps), warned: String::new() }
    }

    /// Reads it again if its files have changed or could not be used, or if `must`; whether it did.
    fn look(
        &mut self,
        stamps: [Option<Stamp>; 2],
        must: bool,
        read: impl FnOnce(&T) -> Result<T, TlsError>,
    ) -> Result<bool, TlsError> {
        if !must && self.stamps == Some(stamps) {
            return Ok(false);
        }
        self.stamps = None;
        self.value = read(&self.value)?;
        self.stamps = Some(stamps);
        self.warned.clear();
        Ok(true)
    }

    /// Warns of what it could not do, once.
    fn warn(&mut self, error: &TlsError) {
        let (text, hint) = (error.to_string(), error.hint());
        if text != self.warned {
            tracing::warn!("{text}: TLS goes on with what it had before; {hint}");
            self.warned = text;
        }
    }
}

impl Looked {
    /// Reads the files. A certificate that is not valid at this time is only warned of.
    pub(crate) fn new(files: Files) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let (own_stamps, client_stamps) = stamps(&files);
        let own = own(&files, &provider)?;
        if let Err(error) = own.check_time(&files) {
            tracing::warn!("{error}: TLS clients will refuse it; {}", error.hint());
        }
        let clients = clients(&files, &provider)?;
        let (own, clients) = (Part::new(own, own_stamps), Part::new(clients, client_stamps));
        Ok(Self { files, provider, own, clients })
    }

    /// Looks for what has changed, or reads all of it if it `must`. What can't be used leaves its own part as
    /// it was. Whether anything was taken, and what could not be.
    pub(crate) fn again(&mut self, must: bool) -> (bool, Result<(), TlsError>) {
        let Self { files, provider, own: own_part, clients: client_part } = self;
        let (own_stamps, client_stamps) = stamps(files);
        let own = own_part.look(own_stamps, must, |before| {
            let new = own(files, provider)?;
            // What is in use stays, and what is no better than that may be replaced, whatever the time.
            if new.der != before.der && before.check_time(files).is_ok() {
                new.check_time(files)?;
            }
            Ok(new)
        });
        let clients = client_part.look(client_stamps, must, |_| clients(files, provider));
        if let Err(error) = &own {
            own_part.warn(error);
        }
        if let Err(error) = &clients {
            client_part.warn(error);
        }
        let taken = [&own, &clients].into_iter().any(|taken| matches!(taken, Ok(true)));
        (taken, own.and(clients).map(|_| ()))
    }

    /// What is made of them.
    pub(crate) fn served(&self) -> Result<Served, TlsError> {
        let verifier = self.clients.value.as_ref();
        let known = |versions| verifier.map(|known| self.config(versions, Some(known))).transpose();
        Ok(Served {
            any: self.config(HTTP_VERSIONS, None)?,
            known: known(HTTP_VERSIONS)?,
            volumes: known(NBD_VERSIONS)?,
        })
    }

    fn config(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        clients: Option<&Arc<dyn ClientCertVerifier>>,
    ) -> Result<Arc<ServerConfig>, TlsError> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider));
        let builder = builder
            .with_protocol_versions(versions)
            .map_err(|error| content(&self.files.certificate, &error))?;
        let builder = match clients {
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::clone(&self.own.value.key) as _);
        // Each connection proves who it is: a client that has lost its right must not resume.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

/// Of the files of each part.
fn stamps(files: &Files) -> ([Option<Stamp>; 2], [Option<Stamp>; 2]) {
    let own = [Stamp::of(&files.certificate), Stamp::of(&files.key)];
    (own, [files.client_ca.as_deref().and_then(Stamp::of), None])
}

fn own(files: &Files, provider: &CryptoProvider) -> Result<Own, TlsError> {
    let path = &files.certificate;
    let chain = certificates(path)?;
    let first = chain.first().and_then(|der| Some((der.clone(), Certificate::read(der)?)));
    let (der, read) = first.ok_or_else(|| content(path, &"it is no certificate of X.509"))?;
    let made = CertifiedKey::from_der(chain, key(&files.key)?, provider);
    let key =
        made.map_err(|error| TlsError::Key { path: files.key.clone(), why: error.to_string() })?;
    Ok(Own { key: Arc::new(SingleCertAndKey::from(key)), der, read })
}

fn clients(
    files: &Files,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let Some(path) = &files.client_ca else { return Ok(None) };
    let mut roots = RootCertStore::empty();
    for authority in certificates(path)? {
        roots.add(authority).map_err(|error| content(path, &error))?;
    }
    let provider = Arc::clone(provider);
    let made = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    made.map(Some).map_err(|error| content(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_used_is_read_again_by_the_next_look() {
        let stamps = [None, None];
        let mut part = Part::new(1, stamps);
        assert!(!part.look(stamps, false, |_| Ok(2)).expect("nothing is read"));
        let gone = || Err(TlsError::NotAFile("key.pem".into()));
        part.look(stamps, true, |_| gone()).expect_err("it is gone");
        part.look(stamps, false, |_| gone()).expect_err("it is read again");
        assert!(
            part.look(stamps, false, |_| Ok(3)).expect("it is there"),
            "the stamps are the same"
        );
        assert_eq!(part.value, 3);
        assert!(!part.look(stamps, false, |_| Ok(4)).expect("nothing is read"));
    }
}
