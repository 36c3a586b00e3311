//! Why a text is no hybrid volume.

use cinnabar_hybrid::rados::RadosSpecError;

/// Why a text is no hybrid volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HybridSpecError {
    /// A part of a place in folders.
    #[error(
        "{0:?} is no part of a place (fast=FOLDER, slow=FOLDER, table=FILE; of one on Ceph, \
         \"ceph,\" is first)"
    )]
    Part(String),
    /// A pool that is not there.
    #[error("{0}=FOLDER is missing")]
    Missing(&'static str),
    /// Both pools in one folder.
    #[error("fast and slow are one folder")]
    Same,
    /// Given more than once.
    #[error("{0} is given twice")]
    Twice(String),
    /// A part of a place on Ceph.
    #[error("{0}")]
    Ceph(#[from] RadosSpecError),
    /// An option.
    #[error(
        "{0:?} is no option (planner=benefit|mobbs, round_s=N, horizon_s=N, copy_mib_s=N, budget_mib=N)"
    )]
    Option(String),
    /// A number.
    #[error("{key} is from {min} to {max}")]
    Range {
        /// Of what.
        key: &'static str,
        /// Lowest.
        min: String,
        /// Highest.
        max: String,
    },
}

/// Notes a key, which comes once.
pub(super) fn once<'a>(seen: &mut Vec<&'a str>, key: &'a str) -> Result<(), HybridSpecError> {
    if seen.contains(&key) {
        return Err(HybridSpecError::Twice(key.into()));
    }
    seen.push(key);
    Ok(())
}
