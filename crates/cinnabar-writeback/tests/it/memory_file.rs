//! The write memory's file: bytes that outlive the daemon. It may be killed between any two stores, and
//! within one.

use super::memory::Mem;
use cinnabar_engine::Payload;
use cinnabar_writeback::memory::{MemoryFile, bytes_of};
use std::cell::RefCell;

#[derive(Clone, Debug)]
struct State {
    bytes: Vec<u8>,
    /// So many stores happen, and of the next one so many bytes; then the daemon is killed.
    left: Option<(u32, usize)>,
    killed: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct MemFile(RefCell<State>);

impl MemFile {
    pub(crate) fn new(pages: u32) -> Self {
        let bytes = vec![0; bytes_of(pages) as usize];
        Self(RefCell::new(State { bytes, left: None, killed: false }))
    }

    /// The daemon is killed after so many more stores, within the next one.
    pub(crate) fn kill_after(&self, stores: u32, bytes: usize) {
        self.0.borrow_mut().left = Some((stores, bytes));
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.0.borrow().killed
    }

    /// Another daemon has it.
    pub(crate) fn revive(&self) {
        let mut state = self.0.borrow_mut();
        (state.killed, state.left) = (false, None);
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        self.0.borrow().bytes.clone()
    }

    /// It holds something else.
    pub(crate) fn replace(&self, bytes: Vec<u8>) {
        self.0.borrow_mut().bytes = bytes;
    }
}

impl MemoryFile<Mem> for MemFile {
    fn bytes(&self) -> u64 {
        self.0.borrow().bytes.len() as u64
    }

    fn load(&self, at: u64, to: &mut [u8]) {
        let at = at as usize;
        to.copy_from_slice(&self.0.borrow().bytes[at..at + to.len()]);
    }

    fn load_data(&self, at: u64) -> Mem {
        let mem = Mem::alloc(1);
        self.load(at, &mut mem.0.borrow_mut());
        mem
    }

    fn store(&self, at: u64, bytes: &[u8]) {
        let (mut state, at) = (self.0.borrow_mut(), at as usize);
        if state.killed {
            return;
        }
        let mut len = bytes.len();
        match &mut state.left {
            Some((0, some)) => {
                len = len.min(*some);
                state.killed = true;
            }
            Some((left, _)) => *left -= 1,
            None => {}
        }
        state.bytes[at..at + len].copy_from_slice(&bytes[..len]);
    }

    fn store_data(&self, at: u64, data: &Mem, from: u64) {
        self.store(at, &data.bytes(from, 4096));
    }
}
