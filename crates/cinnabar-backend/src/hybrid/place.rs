//! Where a hybrid volume lies: in two folders, or in two pools of a Ceph cluster.

use super::HybridError;
use super::error::{HybridSpecError, once};
use cinnabar_hybrid::check::Checked;
use cinnabar_hybrid::local::{LocalPlace, TABLE_NAME};
use cinnabar_hybrid::pools::Place;
use cinnabar_hybrid::rados::{self, RadosSpec};
use std::fmt;
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HybridPlace {
    /// Two folders, and a table in a file.
    Local(LocalPlace),
    /// Two pools of a cluster, with the table beside the slow objects.
    Ceph(RadosSpec),
}

impl HybridPlace {
    /// Parses `fast=FOLDER,slow=FOLDER[,table=FILE]` or `ceph,fast=POOL,slow=POOL,name=NAME[,key=value...]`
    /// (see [`RadosSpec::parse`]). Relative paths are taken from `base`; they hold no comma.
    ///
    /// # Errors
    /// [`HybridSpecError`].
    pub(super) fn parse(text: &str, base: &Path) -> Result<Self, HybridSpecError> {
        if text == "ceph" || text.starts_with("ceph,") {
            return Ok(Self::Ceph(RadosSpec::parse(text, base)?));
        }
        local(text, base).map(Self::Local)
    }

    /// What it is, however the rest is written: equal for two texts that name one table.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Local(LocalPlace { table, .. }) => {
                let table = std::fs::canonicalize(table).unwrap_or_else(|_| table.clone());
                format!("hybrid:{}", table.display())
            }
            Self::Ceph(spec) => spec.place(),
        }
    }

    /// Paths, for those who make them absolute.
    pub(super) fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        match self {
            Self::Local(LocalPlace { fast, slow, table }) => vec![fast, slow, table],
            Self::Ceph(spec) => vec![&mut spec.target.conf],
        }
    }

    /// The volume, not open.
    ///
    /// # Errors
    /// [`HybridError::Other`] of one on a cluster without the Cargo feature `ceph`.
    pub(super) fn volume(&self) -> Result<Box<dyn Place>, HybridError> {
        match self {
            Self::Local(place) => Ok(Box::new(place.clone())),
            Self::Ceph(spec) => rados::place(spec.clone()),
        }
    }

    /// Compares the table with the pools, while nothing serves the volume.
    ///
    /// # Errors
    /// [`HybridError`].
    pub(super) fn check(&self) -> Result<Checked, HybridError> {
        match self {
            Self::Local(place) => place.check(),
            #[cfg(feature = "ceph")]
            Self::Ceph(spec) => rados::RadosPlace::new(spec.clone()).check(),
            #[cfg(not(feature = "ceph"))]
            Self::Ceph(spec) => rados::place(spec.clone()).map(|_| Checked::default()),
        }
    }
}

fn local(text: &str, base: &Path) -> Result<LocalPlace, HybridSpecError> {
    let (mut fast, mut slow, mut table) = (None, None, None);
    let mut seen = Vec::new();
    for part in text.split(',') {
        let wrong = || HybridSpecError::Part(part.into());
        let (key, path) = part.split_once('=').ok_or_else(wrong)?;
        if path.is_empty() || path.contains('\0') {
            return Err(wrong());
        }
        let path = base.join(path);
        once(&mut seen, key)?;
        match key {
            "fast" => fast = Some(path),
            "slow" => slow = Some(path),
            "table" => table = Some(path),
            _ => return Err(wrong()),
        }
    }
    let fast = fast.ok_or(HybridSpecError::Missing("fast"))?;
    let slow = slow.ok_or(HybridSpecError::Missing("slow"))?;
    if fast == slow {
        return Err(HybridSpecError::Same);
    }
    let place = LocalPlace::new(fast, slow);
    Ok(match table {
        Some(table) => LocalPlace { table, ..place },
        None => place,
    })
}

/// As `HybridPlace::parse` reads it.
impl fmt::Display for HybridPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(place) => {
                f.write_str(&place.name())?;
                if place.table != place.fast.join(TABLE_NAME) {
                    write!(f, ",table={}", place.table.display())?;
                }
                Ok(())
            }
            Self::Ceph(spec) => spec.fmt(f),
        }
    }
}
