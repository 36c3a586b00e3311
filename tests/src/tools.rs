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

/// Declares tools, and `ALL` of them: those that may be fetched.
macro_rules! tools {
    ($($(#[$doc:meta])* $name:ident = $tool:expr;)+) => {
        $($(#[$doc])* pub const $name: Tool = $tool;)+
        /// Every tool that may be fetched.
        pub const ALL: &[Tool] = &[$($name),+];
    };
}

tools! {
    /// C compiler and linker, needed to build the project.
    CC = Tool::new("cc", "build-essential", "links every Rust program");
    /// The same for C++.
    CXX = Tool::new("c++", "g++", "builds the daemon with hybrid volumes on Ceph");
    /// Load generator.
    FIO = Tool::new("fio", "fio", "load and verification over NBD");
    /// QEMU's image tool.
    QEMU_IMG = Tool::new("qemu-img", "qemu-utils", "convert and compare over NBD");
    /// QEMU's I/O exerciser.
    QEMU_IO = Tool::new("qemu-io", "qemu-utils", "patterns through QEMU's client");
    /// QEMU's NBD server.
    QEMU_NBD = Tool::new("qemu-nbd", "qemu-utils", "a peer to compare speed with");
    /// QEMU's storage daemon.
    QEMU_STORAGE_DAEMON = Tool::new("qemu-storage-daemon", "qemu-system-common", "a peer to compare speed with");
    /// NBD server with plugins.
    NBDKIT = Tool::new("nbdkit", "nbdkit", "a peer to compare speed with");
    /// libnbd's inspector.
    NBDINFO = Tool::new("nbdinfo", "libnbd-bin", "what our exports advertise");
    /// libnbd's copier.
    NBDCOPY = Tool::new("nbdcopy", "libnbd-bin", "round trips with many requests");
    /// An NBD export as a file.
    NBDFUSE = Tool::new("nbdfuse", "libnbd-bin", "a device that fails when it is told to");
    /// Mounts file systems of programs, and ends them.
    FUSE = Tool::new("fusermount3", "fuse3", "a device that fails when it is told to");
    /// A client of HTTP.
    CURL = Tool::new("curl", "curl", "the guide's look at the metrics");
    /// Makes certificates.
    OPENSSL = Tool::new("openssl", "openssl", "certificates for TLS");
    /// QEMU itself.
    QEMU = Tool::new("qemu-system-x86_64", "qemu-system-x86", "guests");
    /// What guests have for a user space.
    BUSYBOX = Tool::new("busybox", "busybox-static", "programs in guests");
    /// Makes ext4, in guests and for them.
    MKE2FS = Tool::new("mke2fs", "e2fsprogs", "file systems of guests");
    /// Checks ext4.
    E2FSCK = Tool::new("e2fsck", "e2fsprogs", "file systems after a power cut");
    /// Reads files of ext4 without mounting it.
    DEBUGFS = Tool::new("debugfs", "e2fsprogs", "file systems after a power cut");
    /// A database, in guests and to check what they leave behind.
    SQLITE = Tool::new("sqlite3", "sqlite3", "databases after a power cut");
    /// QEMU's own iSCSI initiator: not a command, but a file that its programs load.
    QEMU_ISCSI = Tool::new(
        "/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so", "qemu-block-extra", "a volume on an iSCSI target"
    );
    /// What an iSCSI target offers.
    ISCSI_LS = Tool::new("iscsi-ls", "libiscsi-bin", "looks at an iSCSI target");
    /// An iSCSI target.
    TGTD = Tool::new("tgtd", "tgt", "a volume on an iSCSI target");
    /// libvirt's schema and what checks against it.
    VIRT_XML_VALIDATE = Tool::new("virt-xml-validate", "libvirt-clients", "checks the guide's XML for libvirt");
    /// What libvirt's checker calls.
    XMLLINT = Tool::new("xmllint", "libxml2-utils", "checks XML against a schema");
    /// Python, which can make environments for packages. `python3` alone would say nothing: Debian has it
    /// without that.
    PYTHON = Tool::new(
        "/usr/share/doc/python3-venv/copyright",
        "python3-venv",
        "packages of PyPI: libCacheSim to compare speed with, a client of the control API"
    );
    /// Makes a Debian in a folder.
    MMDEBSTRAP = Tool::new("mmdebstrap", "mmdebstrap", "a bare Debian for the package to be installed on");
    /// Checks Debian packages.
    LINTIAN = Tool::new("lintian", "lintian", "checks the Debian package");
    /// Python itself.
    PYTHON3 = Tool::new("python3", "python3", "scripts that lead a browser");
    /// A browser.
    CHROMIUM = Tool::new("chromium", "chromium", "the daemon's page as people see it");
    /// Prometheus' checker of its files.
    PROMTOOL = Tool { how: How::Unpacked, ..Tool::new(
        "promtool",
        "prometheus",
        "checks the alert rules; its package would start a server, and is unpacked below the target folder"
    ) };
    /// Rules for packets.
    NFT = Tool::new("nft", "nftables", "a daemon that is cut off from its cluster");
    /// Ceph's monitor.
    CEPH_MON = Tool::new("ceph-mon", "ceph-mon", "a throw-away Ceph cluster");
    /// Ceph's storage daemon.
    CEPH_OSD = Tool::new("ceph-osd", "ceph-osd", "a throw-away Ceph cluster");
    /// Ceph's tools; `rbd`, `rados` and `ceph-authtool` come with it.
    CEPH = Tool::new("ceph", "ceph-common", "a throw-away Ceph cluster");
    /// What a program that opens RBD images is linked with.
    LIBRBD = Tool::new("/usr/include/rbd/librbd.h", "librbd-dev", "builds the daemon with RBD images");
    /// The library below it.
    LIBRADOS = Tool::new("/usr/include/rados/librados.h", "librados-dev", "builds the daemon with RBD images");
    /// The same for C++, which alone has copies among servers.
    LIBRADOSPP = Tool::new(
        "/usr/include/rados/librados.hpp", "libradospp-dev", "builds the daemon with hybrid volumes on Ceph"
    );
    /// The kernel of guests.
    KERNEL = Tool { how: How::Unpacked, ..Tool::new(
        "a kernel for guests", kernel::PACKAGE, "unpacked below the target folder"
    ) };
}

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
