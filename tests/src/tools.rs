//! The outside programs that tests, demo and benchmarks use, and where Debian keeps them.

use crate::{kernel, unpacked};
use anyhow::{Result, bail};
use std::path::PathBuf;

/// An outside program, or files of a package.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// Its command, or the path of a file; of what is unpacked, what it is.
    pub command: &'static str,
    /// Debian's package.
    pub package: &'static str,
    /// What we use it for, to be shown before it is installed.
    pub purpose: &'static str,
    /// How it comes here.
    pub how: How,
}

/// How a tool comes to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The package is installed.
    Installed,
    /// The package is only unpacked, by [`Tool::unpack`].
    Unpacked,
}

/// C compiler and linker, needed to build the project.
pub const CC: Tool = Tool::new("cc", "build-essential", "links every Rust program");
/// The same for C++.
pub const CXX: Tool = Tool::new("c++", "g++", "builds the daemon with hybrid volumes on Ceph");
/// Load generator.
pub const FIO: Tool = Tool::new("fio", "fio", "load and verification over NBD");
/// QEMU's image tool.
pub const QEMU_IMG: Tool = Tool::new("qemu-img", "qemu-utils", "convert and compare over NBD");
/// QEMU's I/O exerciser.
pub const QEMU_IO: Tool = Tool::new("qemu-io", "qemu-utils", "patterns through QEMU's client");
/// QEMU's NBD server.
pub const QEMU_NBD: Tool = Tool::new("qemu-nbd", "qemu-utils", "a peer to compare speed with");
/// QEMU's storage daemon.
pub const QEMU_STORAGE_DAEMON: Tool =
    Tool::new("qemu-storage-daemon", "qemu-system-common", "a peer to compare speed with");
/// NBD server with plugins.
pub const NBDKIT: Tool = Tool::new("nbdkit", "nbdkit", "a peer to compare speed with");
/// libnbd's inspector.
pub const NBDINFO: Tool = Tool::new("nbdinfo", "libnbd-bin", "what our exports advertise");
/// libnbd's copier.
pub const NBDCOPY: Tool = Tool::new("nbdcopy", "libnbd-bin", "round trips with many requests");
/// An NBD export as a file.
pub const NBDFUSE: Tool =
    Tool::new("nbdfuse", "libnbd-bin", "a device that fails when it is told to");
/// Mounts file systems of programs, and ends them.
pub const FUSE: Tool = Tool::new("fusermount3", "fuse3", "a device that fails when it is told to");
/// A client of HTTP.
pub const CURL: Tool = Tool::new("curl", "curl", "the guide's look at the metrics");
/// Makes certificates.
pub const OPENSSL: Tool = Tool::new("openssl", "openssl", "certificates for TLS");
/// QEMU itself.
pub const QEMU: Tool = Tool::new("qemu-system-x86_64", "qemu-system-x86", "guests");
/// What guests have for a user space.
pub const BUSYBOX: Tool = Tool::new("busybox", "busybox-static", "programs in guests");
/// Makes ext4, in guests and for them.
pub const MKE2FS: Tool = Tool::new("mke2fs", "e2fsprogs", "file systems of guests");
/// Checks ext4.
pub const E2FSCK: Tool = Tool::new("e2fsck", "e2fsprogs", "file systems after a power cut");
/// Reads files of ext4 without mounting it.
pub const DEBUGFS: Tool = Tool::new("debugfs", "e2fsprogs", "file systems after a power cut");
/// A database, in guests and to check what they leave behind.
pub const SQLITE: Tool = Tool::new("sqlite3", "sqlite3", "databases after a power cut");
/// QEMU's own iSCSI initiator: not a command, but a file that its programs load.
pub const QEMU_ISCSI: Tool = Tool::new(
    "/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so",
    "qemu-block-extra",
    "a volume on an iSCSI target",
);
/// What an iSCSI target offers.
pub const ISCSI_LS: Tool = Tool::new("iscsi-ls", "libiscsi-bin", "looks at an iSCSI target");
/// An iSCSI target.
pub const TGTD: Tool = Tool::new("tgtd", "tgt", "a volume on an iSCSI target");
/// libvirt's schema and what checks against it.
pub const VIRT_XML_VALIDATE: Tool =
    Tool::new("virt-xml-validate", "libvirt-clients", "checks the guide's XML for libvirt");
/// What libvirt's checker calls.
pub const XMLLINT: Tool = Tool::new("xmllint", "libxml2-utils", "checks XML against a schema");
/// Python, which can make environments for packages. `python3` alone would say nothing: Debian has it
/// without that.
pub const PYTHON: Tool = Tool::new(
    "/usr/share/doc/python3-venv/copyright",
    "python3-venv",
    "packages of PyPI: libCacheSim to compare speed with, a client of the control API",
);
/// Makes a Debian in a folder.
pub const MMDEBSTRAP: Tool =
    Tool::new("mmdebstrap", "mmdebstrap", "a bare Debian for the package to be installed on");
/// Checks Debian packages.
pub const LINTIAN: Tool = Tool::new("lintian", "lintian", "checks the Debian package");
/// Python itself.
pub const PYTHON3: Tool = Tool::new("python3", "python3", "scripts that lead a browser");
/// A browser.
pub const CHROMIUM: Tool = Tool::new("chromium", "chromium", "the daemon's page as people see it");
/// Prometheus' checker of its files.
pub const PROMTOOL: Tool = Tool {
    command: "promtool",
    package: "prometheus",
    purpose: "checks the alert rules; its package would start a server, and is unpacked below the target folder",
    how: How::Unpacked,
};
/// Rules for packets.
pub const NFT: Tool = Tool::new("nft", "nftables", "a daemon that is cut off from its cluster");
/// Ceph's monitor.
pub const CEPH_MON: Tool = Tool::new("ceph-mon", "ceph-mon", "a throw-away Ceph cluster");
/// Ceph's storage daemon.
pub const CEPH_OSD: Tool = Tool::new("ceph-osd", "ceph-osd", "a throw-away Ceph cluster");
/// Ceph's tools; `rbd`, `rados` and `ceph-authtool` come with it.
pub const CEPH: Tool = Tool::new("ceph", "ceph-common", "a throw-away Ceph cluster");
/// What a program that opens RBD images is linked with.
pub const LIBRBD: Tool =
    Tool::new("/usr/include/rbd/librbd.h", "librbd-dev", "builds the daemon with RBD images");
/// The library below it.
pub const LIBRADOS: Tool =
    Tool::new("/usr/include/rados/librados.h", "librados-dev", "builds the daemon with RBD images");
/// The same for C++, which alone has copies among servers.
pub const LIBRADOSPP: Tool = Tool::new(
    "/usr/include/rados/librados.hpp",
    "libradospp-dev",
    "builds the daemon with hybrid volumes on Ceph",
);
/// The kernel of guests.
pub const KERNEL: Tool = Tool {
    command: "a kernel for guests",
    package: kernel::PACKAGE,
    purpose: "unpacked below the target folder",
    how: How::Unpacked,
};

/// Every tool above that may be fetched.
pub const ALL: &[Tool] = &[
    CC,
    FIO,
    QEMU_IMG,
    QEMU_IO,
    QEMU_NBD,
    QEMU_STORAGE_DAEMON,
    NBDKIT,
    NBDINFO,
    NBDCOPY,
    NBDFUSE,
    FUSE,
    CURL,
    OPENSSL,
    QEMU,
    BUSYBOX,
    MKE2FS,
    E2FSCK,
    DEBUGFS,
    SQLITE,
    QEMU_ISCSI,
    ISCSI_LS,
    TGTD,
    VIRT_XML_VALIDATE,
    XMLLINT,
    PYTHON,
    MMDEBSTRAP,
    LINTIAN,
    PYTHON3,
    CHROMIUM,
    NFT,
    CEPH_MON,
    CEPH_OSD,
    CEPH,
    LIBRBD,
    LIBRADOS,
    LIBRADOSPP,
    CXX,
    PROMTOOL,
    KERNEL,
];

/// What the quick tests need: `cargo xtask test`.
pub const QUICK: &[Tool] = &[CC, FIO, QEMU_IMG, QEMU_IO, QEMU_NBD, NBDKIT, NBDINFO, NBDCOPY, FUSE];

/// Where `command` lies on the search path.
pub fn find(command: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(command)).find(|file| file.exists())
}

impl Tool {
    const fn new(command: &'static str, package: &'static str, purpose: &'static str) -> Self {
        Self { command, package, purpose, how: How::Installed }
    }

    /// Whether it can be used.
    pub fn is_present(&self) -> bool {
        match self.how {
            How::Installed => find(self.command).is_some(),
            How::Unpacked if self.package == kernel::PACKAGE => kernel::find().is_some(),
            How::Unpacked => self.unpacked().is_some(),
        }
    }

    /// Fetches a package that is only unpacked.
    ///
    /// # Errors
    /// When it can't be had, or has no such program.
    pub fn unpack(&self) -> Result<()> {
        if self.package == kernel::PACKAGE {
            return kernel::fetch();
        }
        unpacked::fetch(self.package, self.package)?;
        if !self.is_present() {
            bail!("{} has no {}", self.package, self.command);
        }
        Ok(())
    }

    /// The program of a package that was unpacked, or one that was installed by others.
    pub fn unpacked(&self) -> Option<PathBuf> {
        let program = unpacked::folder(self.package).ok()?.join("usr/bin").join(self.command);
        if program.exists() { Some(program) } else { find(self.command) }
    }
}
