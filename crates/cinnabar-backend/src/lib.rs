//! Where bytes really live: memory for the kernel, an I/O port that waits for everything at once,
//! files, block devices and NBD servers.
//!
//! * [`memory`]: [`Memory`], the payload of the daemon.
//! * [`port`]: [`Port`], one object that carries out file I/O and watches sockets, over `io_uring`
//!   or over threads.
//! * [`disk`]: [`Disk`], an open and locked file or block device, or a server's export; cache device
//!   set-up.
//! * [`nbd`]: the client of NBD servers. [`rbd`]: images of Ceph's RBD. [`hybrid`]: volumes over two pools.
//! * [`proof`]: [`Proof`], what a backend can say of who wrote it last.
//! * [`returning`]: what others have changed of a back end since a snapshot that was left.
//! * [`lineage`]: [`Lineage`](lineage::Lineage), of which snapshot a back end is a clone.
//! * [`claim`]: [`Claim`](claim::Claim), which says beside a back end that a write log has writes for it.
//! * [`generations`]: [`Ledger`], what must be known of volumes outside of any cache device.
//! * [`work`]: the engine's I/O requests as jobs; [`format`](mod@format): a fresh cache device.
//! * [`write_memory`]: where writes are acknowledged from memory that outlives the daemon.
//! * [`spec`]: [`BackendSpec`], the strings `file:vm1.raw`, `nbd:unix:vm1.sock`, `rbd:pool/image`,
//!   `hybrid:fast=PATH,slow=PATH` and `sim:filer,seed=1:file:vm1.raw`. The models that the last one names are `cinnabar-backend`'s;
//!   nothing here applies them.

pub mod claim;
mod closing;
pub mod disk;
pub mod entropy;
pub mod format;
pub mod generations;
pub mod hybrid;
pub mod lineage;
pub mod memory;
pub mod model;
pub mod nbd;
pub mod port;
pub mod proof;
pub mod rbd;
pub mod returning;
pub mod spec;
pub mod work;
pub mod write_memory;

pub use closing::finish_closing;
pub use disk::{Disk, DiskError, DiskKind};
pub use generations::Ledger;
pub use memory::Memory;
pub use port::{Done, FileId, Interest, Job, JobOp, Port, PortEvent, Waker};
pub use proof::{Proof, ProofError};
pub use spec::BackendSpec;
