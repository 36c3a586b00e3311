//! Virtual machines' images that are not what their guests see.

use super::{Disk, blocking};
use cinnabar_engine::metadata::MetaPage;

/// At which byte what is found, and the format's name. A LUKS header is not here: guests encrypt whole disks.
const KNOWN: [(usize, &[u8], &str); 8] = [
    (0, b"QFI\xfb", "qcow2"),
    (0, b"QED\0", "QED"),
    (0, b"KDMV", "VMDK"),
    (0, b"# Disk DescriptorFile", "VMDK"),
    (0x40, b"\x7f\x10\xda\xbe", "VDI"),
    (0, b"vhdxfile", "VHDX"),
    (0, b"conectix", "VHD"),
    (0, b"WithoutFreeSpace", "Parallels"),
];

impl Disk {
    /// The format of the image that a file or device holds, if its first bytes are those of one. Blocks.
    pub fn image_format(&self) -> Option<&'static str> {
        let mut first = [MetaPage::zeroed()];
        if self.is_remote() || self.size_bytes() < 4096 {
            return None;
        }
        // Its guest meets the error, too.
        blocking::read_pages(self, &mut first, 0).ok()?;
        format_of(&first[0])
    }
}

/// The format of the image that begins with this page, if it is one.
pub(super) fn format_of(first: &MetaPage) -> Option<&'static str> {
    let known = KNOWN.iter().find(|(at, magic, _)| first.0[*at..].starts_with(magic));
    known.map(|(_, _, name)| *name)
}
