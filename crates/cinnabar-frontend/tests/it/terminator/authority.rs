//! Certificates for tests: an authority, and what it signs.

use cinnabar_frontend::tls::Files;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate and its key.
pub(crate) struct Signed {
    pub(crate) pem: String,
    pub(crate) key: String,
}

/// When a certificate is valid.
#[derive(Clone, Copy)]
pub(crate) enum Valid {
    Now,
    Past,
    Future,
}

impl Authority {
    pub(crate) fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        // Each has a name of its own, as authorities do.
        let name = format!("authority {}", MADE.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate of a name, for servers or for clients.
    pub(crate) fn sign(&self, name: &str, server: bool, valid: Valid) -> Signed {
        let mut names = vec![name.to_owned()];
        if server {
            names.push("127.0.0.1".to_owned());
        }
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages = vec![if server {
            ExtendedKeyUsagePurpose::ServerAuth
        } else {
            ExtendedKeyUsagePurpose::ClientAuth
        }];
        (params.not_before, params.not_after) = match valid {
            Valid::Now => (date_time_ymd(2020, 1, 1), date_time_ymd(2090, 1, 1)),
            Valid::Past => (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1)),
            Valid::Future => (date_time_ymd(2089, 1, 1), date_time_ymd(2090, 1, 1)),
        };
        let key = KeyPair::generate().expect("a key");
        let pem = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Signed { pem, key: key.serialize_pem() }
    }
}

/// Writes what a daemon needs.
pub(crate) fn install(folder: &Path, server: &Signed, clients: &Authority) -> Files {
    let path = |name: &str| folder.join(name);
    let place = |name: &str, text: &str| {
        // Renamed to its place, as certificates are replaced.
        write(path("new"), text).expect("a folder of ours");
        set_permissions(path("new"), Permissions::from_mode(0o600)).expect("it is ours");
        std::fs::rename(path("new"), path(name)).expect("a folder of ours");
    };
    place("server.pem", &server.pem);
    place("server.key", &server.key);
    place("clients.pem", &clients.pem);
    Files {
        certificate: path("server.pem"),
        key: path("server.key"),
        client_ca: Some(path("clients.pem")),
    }
}

/// A client that trusts `authority` and shows `own`.
pub(crate) fn client(authority: &Authority, own: Option<&Signed>) -> Arc<ClientConfig> {
    client_of(authority, own, rustls::DEFAULT_VERSIONS)
}

/// The same, of these versions of TLS.
pub(crate) fn client_of(
    authority: &Authority,
    own: Option<&Signed>,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("PEM");
    roots.add(root).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("there are some")
        .with_root_certificates(roots);
    Arc::new(match own {
        None => builder.with_no_client_auth(),
        Some(Signed { pem, key }) => {
            let chain = vec![CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
            builder.with_client_auth_cert(chain, key).expect("they fit")
        }
    })
}
