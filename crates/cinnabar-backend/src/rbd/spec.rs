//! RBD images as they are written: `rbd:pool/image`, `rbd,id=vm:pool/golden@base`.

use std::fmt;
use std::path::{Path, PathBuf};

/// Longest name of a pool, a namespace, an image or a snapshot, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// Ceph's own defaults.
const ID: &str = "admin";
const CONF: &str = "/etc/ceph/ceph.conf";

/// An RBD image, not yet opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RbdSpec {
    pub pool: String,
    /// The namespace within it; empty is the default one.
    pub namespace: String,
    pub image: String,
    /// One of its snapshots.
    pub snap: Option<String>,
    /// The Ceph user, without `client.`.
    pub id: String,
    /// Ceph's configuration file.
    pub conf: PathBuf,
}

/// Why a text is no RBD image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RbdSpecError {
    /// Not a pool and an image.
    #[error("{0:?} is not POOL/IMAGE, POOL/NAMESPACE/IMAGE or one of these with @SNAPSHOT")]
    Place(String),
    #[error("a name has 1 to {NAME_BYTES_MAX} bytes, none of them a control character")]
    Name,
    #[error("{0:?} is no option (id=USER, conf=PATH, namespace=NAME)")]
    Option(String),
}

impl RbdSpec {
    /// Parses what follows `rbd`: `[,key=value...]:POOL/[NAMESPACE/]IMAGE[@SNAPSHOT]`. A relative
    /// `conf` is taken from `base`; it can hold neither a colon nor a comma.
    ///
    /// # Errors
    /// [`RbdSpecError`].
    pub fn parse(text: &str, base: &Path) -> Result<Self, RbdSpecError> {
        let wrong = || RbdSpecError::Place(text.into());
        let (options, place) = text.split_once(':').ok_or_else(wrong)?;
        let (whole, snap) = match place.split_once('@') {
            Some((whole, snap)) => (whole, Some(name(snap)?)),
            None => (place, None),
        };
        let parts: Vec<&str> = whole.split('/').collect();
        let (pool, namespace, image) = match parts[..] {
            [pool, image] => (name(pool)?, String::new(), name(image)?),
            [pool, namespace, image] => (name(pool)?, name(namespace)?, name(image)?),
            _ => return Err(RbdSpecError::Place(place.into())),
        };
        let (id, conf) = (ID.to_owned(), PathBuf::from(CONF));
        let mut spec = Self { pool, namespace, image, snap, id, conf };
        for option in options.split(',').skip(1) {
            spec.set(option, base).ok_or_else(|| RbdSpecError::Option(option.into()))?;
        }
        Ok(spec)
    }

    fn set(&mut self, option: &str, base: &Path) -> Option<()> {
        match option.split_once('=')? {
            ("id", id) => self.id = name(id).ok()?,
            ("conf", path) if !path.is_empty() && !path.contains('\0') => {
                self.conf = base.join(path);
            }
            // Either of the two ways to say it, not both.
            ("namespace", namespace) if self.namespace.is_empty() => {
                self.namespace = name(namespace).ok()?;
            }
            _ => return None,
        }
        Some(())
    }

    /// What it is, however the rest is written: equal for two texts that name one image of the
    /// cluster of one configuration file. Snapshots of one image differ.
    pub fn place(&self) -> String {
        let conf = std::fs::canonicalize(&self.conf).unwrap_or_else(|_| self.conf.clone());
        format!("rbd:{}:{}", conf.display(), self.image_spec())
    }

    /// The pool and the image as Ceph's own tools write them: `pool/namespace/image@snap`.
    pub fn image_spec(&self) -> String {
        let Self { pool, namespace, image, .. } = self;
        let between = if namespace.is_empty() { "" } else { "/" };
        let snap = self.snap.as_ref().map(|snap| format!("@{snap}")).unwrap_or_default();
        format!("{pool}/{namespace}{between}{image}{snap}")
    }
}

/// As a configuration holds it.
impl fmt::Display for RbdSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rbd")?;
        if self.id != ID {
            write!(f, ",id={}", self.id)?;
        }
        if self.conf != Path::new(CONF) {
            write!(f, ",conf={}", self.conf.display())?;
        }
        write!(f, ":{}", self.image_spec())
    }
}

/// A name as Ceph takes it; the characters that stand between names were cut off before.
fn name(text: &str) -> Result<String, RbdSpecError> {
    let fits = (1..=NAME_BYTES_MAX).contains(&text.len());
    if fits && !text.chars().any(|c| c.is_control() || c == '@' || c == '/') {
        Ok(text.to_owned())
    } else {
        Err(RbdSpecError::Name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RbdSpec, RbdSpecError> {
        RbdSpec::parse(text, Path::new("/etc/cinnabar"))
    }

    #[test]
    fn what_is_written_is_shown_again() {
        for text in [
            ":rbd/vm1",
            ":rbd/tenant/vm1",
            ":rbd/golden@base",
            ",id=vm,conf=/etc/ceph/b.conf:rbd/a:b,c=d",
        ] {
            let spec = parse(text).expect(text);
            assert_eq!(spec.to_string(), format!("rbd{text}"));
            assert_eq!(parse(&spec.to_string()[3..]), Ok(spec));
        }
        let spec = parse(",conf=b.conf,namespace=tenant:p/i@s").expect("well-formed");
        assert_eq!(spec.to_string(), "rbd,conf=/etc/cinnabar/b.conf:p/tenant/i@s");
        assert_eq!(spec.id, "admin");
        assert_eq!(spec.place(), "rbd:/etc/cinnabar/b.conf:p/tenant/i@s");
    }

    #[test]
    fn mistakes_are_named() {
        let long = format!(":p/{}", "i".repeat(NAME_BYTES_MAX + 1));
        for text in [
            "p/i",
            ":",
            ":p",
            ":p/",
            ":/i",
            ":p/n//i",
            ":p/a/b/c",
            ":p/i@",
            ":p/i@a@b",
            ":p/i\n",
            ",id:p/i",
            ",id=:p/i",
            ",conf=:p/i",
            // A write that is given up may land later: there is no such option.
            ",give_up_s=30:p/i",
            ",pool=x:p/i",
            ",namespace=n:p/m/i",
            &long,
        ] {
            let error = parse(text).expect_err(text);
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
