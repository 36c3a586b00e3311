//! Exports to try things on.

use cinnabar_frontend::nbd::handshake::Directory;
use cinnabar_frontend::nbd::{Export, ExportId};

/// Size of the exports in these tests: the last block is partial.
pub(crate) const SIZE: u64 = (1 << 20) + 512;

/// A writable export of [`SIZE`] bytes.
pub(crate) fn export(id: u32, name: &str) -> Export {
    Export {
        id: ExportId(id),
        name: name.into(),
        size_bytes: SIZE,
        read_only: false,
        min_block_bytes: 512,
        shared: false,
        description: String::new(),
    }
}

/// Exports for the state machine.
pub(crate) struct Listed(pub(crate) Vec<Export>);

impl Directory for Listed {
    fn find(&self, name: &[u8]) -> Option<&Export> {
        match self.0.as_slice() {
            [only] if name.is_empty() => Some(only),
            exports => exports.iter().find(|export| export.name.as_bytes() == name),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Export> {
        self.0.iter()
    }
}
