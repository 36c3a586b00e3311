//! The outside programs that tests, demo and benchmarks use, and where Debian keeps them.
//!
//! Called by the tests (skip what is missing) and by `xtask` (install what is missing).

use std::path::PathBuf;

/// An outside program.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// Its command.
    pub command: &'static str,
    /// Debian's package.
    pub package: &'static str,
    /// What we use it for, to be shown before it is installed.
    pub purpose: &'static str,
}

/// C compiler and linker, needed before anything of ours can be built.
pub const CC: Tool =
    Tool { command: "cc", package: "build-essential", purpose: "links every Rust program" };
/// Load generator.
pub const FIO: Tool =
    Tool { command: "fio", package: "fio", purpose: "load and verification over NBD" };
/// QEMU's image tool.
pub const QEMU_IMG: Tool =
    Tool { command: "qemu-img", package: "qemu-utils", purpose: "convert and compare over NBD" };
/// QEMU's I/O exerciser.
pub const QEMU_IO: Tool =
    Tool { command: "qemu-io", package: "qemu-utils", purpose: "patterns through QEMU's client" };
/// QEMU's NBD server.
pub const QEMU_NBD: Tool =
    Tool { command: "qemu-nbd", package: "qemu-utils", purpose: "a peer to compare speed with" };
/// QEMU's storage daemon.
pub const QEMU_STORAGE_DAEMON: Tool = Tool {
    command: "qemu-storage-daemon",
    package: "qemu-system-common",
    purpose: "a peer to compare speed with",
};
/// nbdkit.
pub const NBDKIT: Tool =
    Tool { command: "nbdkit", package: "nbdkit", purpose: "a peer to compare speed with" };
/// libnbd's inspector.
pub const NBDINFO: Tool =
    Tool { command: "nbdinfo", package: "libnbd-bin", purpose: "what our exports advertise" };
/// libnbd's copier.
pub const NBDCOPY: Tool =
    Tool { command: "nbdcopy", package: "libnbd-bin", purpose: "round trips with many requests" };

/// Every tool above.
pub const ALL: &[Tool] =
    &[CC, FIO, QEMU_IMG, QEMU_IO, QEMU_NBD, QEMU_STORAGE_DAEMON, NBDKIT, NBDINFO, NBDCOPY];

/// Where `command` lies on the search path.
pub fn find(command: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(command)).find(|file| file.is_file())
}

impl Tool {
    /// Whether it can be started.
    pub fn is_present(&self) -> bool {
        find(self.command).is_some()
    }
}
