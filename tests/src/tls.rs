//! Certificates made by openssl, as `docs/guide/tls.md` shows.

use crate::daemon::Site;
use crate::process::output;
use anyhow::Result;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An authority, in a folder of its own.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
}

/// Whom a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// A server, which is also reached at 127.0.0.1.
    Server,
    Client,
}

impl Authority {
    /// A new one, in the folder `name` of a site.
    pub fn new(site: &Site, name: &str) -> Result<Self> {
        let folder = site.path(name);
        std::fs::create_dir(&folder)?;
        let mut command = Command::new("openssl");
        command.current_dir(&folder);
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
        command.args(["-nodes", "-days", "3650", "-subj"]).arg(format!("/CN={name}"));
        command.args(["-addext", "keyUsage=critical,keyCertSign,cRLSign"]);
        output(command.args(["-keyout", "ca-key.pem", "-out", "ca-cert.pem"]))?;
        Ok(Self { folder })
    }

    pub fn certificate(&self) -> PathBuf {
        self.folder.join("ca-cert.pem")
    }

    /// Signs a certificate of this name; gives a folder as QEMU and libnbd want it: `ca-cert.pem` of
    /// `trusts`, `client-cert.pem` and `client-key.pem`, or those of a server.
    pub fn sign(&self, name: &str, whom: For, trusts: &Self) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        std::fs::create_dir(&folder)?;
        let (role, usage, names) = match whom {
            For::Server => ("server", "serverAuth", format!("DNS:{name},IP:127.0.0.1")),
            For::Client => ("client", "clientAuth", format!("DNS:{name}")),
        };
        let (key, request) = (format!("{role}-key.pem"), format!("{role}.csr"));
        let mut command = Command::new("openssl");
        command.current_dir(&folder);
        command.args(["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
        command.args(["-nodes", "-subj"]).arg(format!("/CN={name}"));
        command.arg("-addext").arg(format!("subjectAltName={names}"));
        command.args(["-addext", "keyUsage=critical,digitalSignature"]);
        command.arg("-addext").arg(format!("extendedKeyUsage={usage}"));
        output(command.args(["-keyout", &key, "-out", &request]))?;
        let mut command = Command::new("openssl");
        command.current_dir(&folder);
        command.args(["x509", "-req", "-copy_extensions", "copy", "-days", "365"]);
        command.args(["-CA", "../ca-cert.pem", "-CAkey", "../ca-key.pem", "-CAcreateserial"]);
        output(command.args(["-in", &request, "-out", &format!("{role}-cert.pem")]))?;
        std::fs::set_permissions(folder.join(key), Permissions::from_mode(0o600))?;
        std::fs::copy(trusts.certificate(), folder.join("ca-cert.pem"))?;
        Ok(folder)
    }

    /// The section `[tls]` of a daemon with the server's certificate in `folder`, and clients of this
    /// authority.
    pub fn section(&self, folder: &Path) -> String {
        format!(
            "[tls]\ncertificate = \"{0}/server-cert.pem\"\nkey = \"{0}/server-key.pem\"\n\
             client_ca = \"{1}\"\n",
            folder.display(),
            self.certificate().display()
        )
    }
}
