//! How a volume on a cluster is written: `ceph,fast=ssd,slow=hdd,name=vm1`.

use crate::librados::target::{CONF, ID, Target};
use std::fmt;
use std::path::Path;

/// Longest name of a pool, a namespace, a user or a volume, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// A hybrid volume on a Ceph cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RadosSpec {
    /// The cluster.
    pub target: Target,
    /// Name of the SSD pool.
    pub fast: String,
    /// Name of the HDD pool.
    pub slow: String,
    /// Name of the replicated pool with the table; `None`: the slow one.
    pub table: Option<String>,
    /// Namespace within the pools; empty is the default one.
    pub namespace: String,
    /// The volume's name.
    pub name: String,
    /// The operator vouches that a former owner is dead: it is fenced off though its lock still holds. Not written
    /// with the rest.
    pub by_force: bool,
}

/// Why a text is no hybrid volume on a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RadosSpecError {
    /// A part.
    #[error(
        "{0:?} is no part of a hybrid volume on Ceph (fast=POOL, slow=POOL, name=NAME, table=POOL, \
         namespace=NAME, id=USER, conf=PATH)"
    )]
    Part(String),
    /// A name.
    #[error(
        "{0} has 1 to {NAME_BYTES_MAX} bytes, none of them a control character, a comma or a slash"
    )]
    Name(&'static str),
    /// What has to be there.
    #[error("{0}=... is missing")]
    Missing(&'static str),
    /// Given more than once.
    #[error("{0} is given twice")]
    Twice(&'static str),
    /// One pool for both.
    #[error("fast and slow are one pool")]
    Same,
}

/// The parts, in the order in which they are shown.
const KEYS: [&str; 7] = ["fast", "slow", "name", "table", "namespace", "id", "conf"];

impl RadosSpec {
    /// Parses what follows `hybrid:`: `ceph,fast=POOL,slow=POOL,name=NAME[,key=value...]`. A relative `conf` is
    /// taken from `base`; it holds no comma.
    ///
    /// # Errors
    /// [`RadosSpecError`].
    pub fn parse(text: &str, base: &Path) -> Result<Self, RadosSpecError> {
        let mut values: [Option<&str>; KEYS.len()] = [None; KEYS.len()];
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        if first != "ceph" {
            return Err(RadosSpecError::Part(first.into()));
        }
        for part in parts {
            let wrong = || RadosSpecError::Part(part.into());
            let (key, value) = part.split_once('=').ok_or_else(wrong)?;
            let at = KEYS.iter().position(|known| *known == key).ok_or_else(wrong)?;
            if values[at].replace(value).is_some() {
                return Err(RadosSpecError::Twice(KEYS[at]));
            }
        }
        let named = |at: usize| values[at].map(|value| name(KEYS[at], value)).transpose();
        let needed = |at: usize| named(at)?.ok_or(RadosSpecError::Missing(KEYS[at]));
        let (fast, slow) = (needed(0)?, needed(1)?);
        if fast == slow {
            return Err(RadosSpecError::Same);
        }
        let conf = values[6].unwrap_or(CONF);
        if conf.is_empty() || conf.chars().any(char::is_control) {
            return Err(RadosSpecError::Name("conf"));
        }
        let id = named(5)?.unwrap_or_else(|| ID.to_owned());
        Ok(Self {
            target: Target { id, conf: base.join(conf) },
            fast,
            slow,
            name: needed(2)?,
            table: named(3)?,
            namespace: named(4)?.unwrap_or_default(),
            by_force: false,
        })
    }

    /// What it is, however the rest is written: equal for two texts that name one table of the cluster of one
    /// configuration file.
    pub fn place(&self) -> String {
        let conf = &self.target.conf;
        let conf = std::fs::canonicalize(conf).unwrap_or_else(|_| conf.clone());
        let table = self.table.as_ref().unwrap_or(&self.slow);
        format!("hybrid:ceph:{}:{table}/{}/{}", conf.display(), self.namespace, self.name)
    }
}

/// As [`RadosSpec::parse`] reads it.
impl fmt::Display for RadosSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ceph,fast={},slow={},name={}", self.fast, self.slow, self.name)?;
        if let Some(table) = &self.table {
            write!(f, ",table={table}")?;
        }
        if !self.namespace.is_empty() {
            write!(f, ",namespace={}", self.namespace)?;
        }
        if self.target.id != ID {
            write!(f, ",id={}", self.target.id)?;
        }
        if self.target.conf != Path::new(CONF) {
            write!(f, ",conf={}", self.target.conf.display())?;
        }
        Ok(())
    }
}

fn name(key: &'static str, text: &str) -> Result<String, RadosSpecError> {
    let fits = (1..=NAME_BYTES_MAX).contains(&text.len());
    if fits && !text.chars().any(|c| c.is_control() || c == '/') {
        Ok(text.to_owned())
    } else {
        Err(RadosSpecError::Name(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RadosSpec, RadosSpecError> {
        RadosSpec::parse(text, Path::new("/etc/cinnabar"))
    }

    #[test]
    fn what_is_written_is_shown_again() {
        for text in [
            "ceph,fast=ssd,slow=hdd,name=vm1",
            "ceph,fast=a,slow=b,name=c,table=d,namespace=e,id=f,conf=/g",
            "ceph,fast=a=1,slow=b:2,name=c@3",
        ] {
            let spec = parse(text).expect(text);
            assert_eq!(spec.to_string(), text);
        }
        let spec = parse("ceph,conf=b.conf,name=vm1,slow=hdd,fast=ssd").expect("any order");
        assert_eq!(spec.target.conf, Path::new("/etc/cinnabar/b.conf"));
        assert_eq!((spec.target.id.as_str(), spec.by_force), ("admin", false));
        assert_eq!(spec.place(), "hybrid:ceph:/etc/cinnabar/b.conf:hdd//vm1");
        let elsewhere =
            parse("ceph,conf=b.conf,name=vm1,slow=x,fast=ssd,table=hdd").expect("a table");
        assert_eq!(spec.place(), elsewhere.place());
    }

    #[test]
    fn mistakes_are_named() {
        let long = format!("ceph,fast=a,slow=b,name={}", "n".repeat(NAME_BYTES_MAX + 1));
        for (text, part) in [
            ("fast=a,slow=b,name=c", "no part"),
            ("", "no part"),
            ("ceph,fast=a,slow=b", "name=... is missing"),
            ("ceph,slow=b,name=c", "fast=... is missing"),
            ("ceph,fast=a,slow=a,name=c", "one pool"),
            ("ceph,fast=a,slow=b,name=c,fast=d", "fast is given twice"),
            ("ceph,fast=a,slow=b,name=c,pool=d", "\"pool=d\" is no part"),
            ("ceph,fast=a,slow=b,name=", "name has 1 to"),
            ("ceph,fast=a,slow=b,name=c/d", "name has 1 to"),
            ("ceph,fast=a\n,slow=b,name=c", "fast has 1 to"),
            ("ceph,fast=a,slow=b,name=c,conf=", "conf has 1 to"),
            (&long, "name has 1 to"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
