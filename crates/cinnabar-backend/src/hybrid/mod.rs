//! Hybrid volumes as backends: a disk over a fast and a slow pool.
//!
//! * [`spec`]: `hybrid:fast=PATH,slow=PATH` and what else is written of a volume. `place`: folders, or pools of a cluster. `error`: why a text is none.
//! * `client`: the handle of an open volume, whose thread is `cinnabar-hybrid`'s.
//! * [`manage`]: making, looking at and checking volumes.
//! * `proof`: by which numbers a volume proves that nobody else wrote it.

mod client;
mod error;
pub mod manage;
mod place;
mod proof;
pub mod spec;

pub use cinnabar_hybrid::pools::OpenError as HybridError;
pub use cinnabar_hybrid::runtime::Status as HybridStatus;
pub use error::HybridSpecError;
pub use spec::HybridSpec;

pub(crate) use client::Client;
pub use place::HybridPlace;
pub(crate) use proof::judge;

/// A line that helps.
pub fn hint(error: &HybridError) -> &'static str {
    match error {
        HybridError::NoVolume(_) => {
            "make it first: cinnabar hybrid create --fast FOLDER --slow FOLDER --size SIZE (on Ceph: --ceph NAME)"
        }
        HybridError::MissingPart(_) | HybridError::Foreign(_) => {
            "check the names of both pools, and that file systems of folders are mounted"
        }
        HybridError::Header(_) | HybridError::Record(_) | HybridError::Table(_) => {
            "use the version that wrote it, or restore the table together with both pools"
        }
        HybridError::Exists(_) => "choose other folders, or remove the old volume's first",
        HybridError::InUse(_) => "stop the process that serves it",
        HybridError::Io { .. } => {
            "check owner and mode of the folders; see the kernel log (dmesg) for errors of their devices"
        }
        // It says all that is known.
        HybridError::Other(_) => "",
    }
}
