//! What a guest's front-end can do to memory it shares with us: truncate the file under it.
//!
//! Touching a page behind the end of a file raises SIGBUS, which would end the daemon and with it
//! the disks of all other guests. A file that is sealed against shrinking can't do it, but stock
//! QEMU's `memory-backend-file` is not sealed, huge pages may run out, and memory may fail (a
//! machine check is a SIGBUS, too). So the process has a handler that puts pages of zeros under a
//! guarded mapping when an access faults, records the fault, and returns. The user of the mapping
//! checks the record before it believes what it read, and disconnects the guest.
//!
//! The handler is installed with the first mapping. A SIGBUS elsewhere goes to the handler that was
//! there before. The kernel's own accesses, direct I/O for instance, fail with EFAULT instead.

use super::limits::PLACES_MAX;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, Once, PoisonError};

/// Mappings guarded at a time; `budget` keeps front-ends below it.
const PLACES: usize = PLACES_MAX;

/// A guarded range of addresses; length 0: none.
///
/// The handler of one thread may look while another one puts the next mapping into a place that was
/// given back: half of either would be a range that belongs to neither. So the version is odd while a
/// place changes, and another one afterwards. A thread's own mapping does not change under it.
struct Place {
    version: AtomicUsize,
    start: AtomicUsize,
    len: AtomicUsize,
    broken: AtomicBool,
}

static TABLE: [Place; PLACES] = [const {
    Place {
        version: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        broken: AtomicBool::new(false),
    }
}; PLACES];

impl Place {
    const FREE: (usize, usize) = (0, 0);

    /// Start and length of a mapping. One thread at a time.
    fn set(&self, (start, len): (usize, usize)) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// The same, of one and the same mapping; `None` while that changes. `between` is for tests.
    fn range(&self, between: impl FnOnce()) -> Option<(usize, usize)> {
        let version = self.version.load(Ordering::Acquire);
        let len = self.len.load(Ordering::Relaxed);
        between();
        let start = self.start.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let same = self.version.load(Ordering::Relaxed) == version && version.is_multiple_of(2);
        same.then_some((start, len))
    }
}

/// Which places are free, as far as they were ever used.
static FREE: Mutex<Free> = Mutex::new(Free { returned: Vec::new(), fresh: 0 });

struct Free {
    returned: Vec<usize>,
    fresh: usize,
}

/// Places in use are below this: the handler looks no further.
static USED: AtomicUsize = AtomicUsize::new(0);

static INSTALL: Once = Once::new();
/// The action that was there before; written once, before the handler is installed.
static mut PREVIOUS: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();

/// A guarded mapping. To be dropped before it is unmapped, when nothing uses it any more.
#[derive(Debug)]
pub(super) struct Guard {
    place: usize,
}

impl Guard {
    /// Guards a whole mapping, which has to be private to the caller in the sense that replacing it
    /// by zeros affects no other user. `None`: too many.
    pub(super) fn new(start: *mut u8, len: usize) -> Option<Self> {
        INSTALL.call_once(install);
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let place = free.returned.pop().or_else(|| {
            free.fresh += 1;
            (free.fresh <= PLACES).then(|| free.fresh - 1)
        });
        let Some(place) = place else {
            free.fresh = PLACES;
            return None;
        };
        USED.store(free.fresh, Ordering::Release);
        TABLE[place].broken.store(false, Ordering::Relaxed);
        TABLE[place].set((start.addr(), len));
        Some(Self { place })
    }

    /// Whether its memory is gone: what was read from it may be zeros of our own.
    pub(super) fn is_broken(&self) -> bool {
        TABLE[self.place].broken.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        TABLE[self.place].set(Place::FREE);
        FREE.lock().unwrap_or_else(PoisonError::into_inner).returned.push(self.place);
    }
}

fn install() {
    // SAFETY: all zeros is a valid `sigaction`; the fields that matter are set below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle;
    action.sa_sigaction = handler as libc::sighandler_t;
    // On the alternative stack where a thread has one, as the handler that was there may want it.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `PREVIOUS` is written here alone, once, before our handler can run; the pointers are
    // to valid structures. Both calls can't fail for a signal that may be caught.
    unsafe {
        libc::sigaction(libc::SIGBUS, std::ptr::null(), (&raw mut PREVIOUS).cast());
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

/// The handler: only atomics and system calls, as anything else may be half done in this thread.
extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a valid `siginfo_t`, whose address is set for SIGBUS.
    let address = unsafe { (*info).si_addr() }.addr();
    let used = USED.load(Ordering::Acquire).min(PLACES);
    for place in &TABLE[..used] {
        let Some((start, len)) = place.range(|| {}) else { continue };
        if address.wrapping_sub(start) < len && replace(start, len) {
            place.broken.store(true, Ordering::Relaxed);
            return;
        }
    }
    chain(signal, info, context);
}

/// Puts zeros under a mapping.
fn replace(start: usize, len: usize) -> bool {
    // SAFETY: the address of this thread's errno; it is put back, for the interrupted code may be
    // between a system call and its look at it.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    // SAFETY: the range is a mapping that its owner gave up to be replaced (`Guard::new`); it is in
    // use, because the faulting instruction has just accessed it, so it was not unmapped.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::without_provenance_mut(start),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    // SAFETY: as above.
    unsafe { *errno = before };
    mapped != libc::MAP_FAILED
}

/// Passes a SIGBUS outside all guarded mappings to the handler that was installed before.
fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: written before this handler was installed, and never again.
    let previous = unsafe { (&raw const PREVIOUS).cast::<libc::sigaction>().read() };
    match previous.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: restores the default; the instruction is tried again and ends the process.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: an action with SA_SIGINFO is a function of this type.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: an action without SA_SIGINFO is a function of this type.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vhost::budget::Account;
    use crate::vhost::mapping::Mapping;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::AsFd;
    use std::sync::Arc;

    #[test]
    fn a_place_that_is_reused_in_the_middle_of_a_look_is_no_place() {
        let place = Place {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
        };
        // A large mapping, and a small one in its place: large from the small one's start on, the
        // range would have what others have behind it.
        place.set((1 << 40, 1 << 30));
        assert_eq!(place.range(|| {}), Some((1 << 40, 1 << 30)));
        assert_eq!(place.range(|| place.set((2 << 40, 1 << 12))), None);
        assert_eq!(place.range(|| place.set(Place::FREE)), None);
        let twice = || [(1 << 40, 1 << 30), Place::FREE].into_iter().for_each(|to| place.set(to));
        assert_eq!(place.range(twice), None, "it is as it was, but was another meanwhile");
        assert_eq!(place.range(|| {}), Some(Place::FREE));
    }

    #[test]
    fn a_truncated_file_reads_as_zeros_and_is_noticed() {
        let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&file, 1 << 20).expect("room");
        let other = memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd");
        ftruncate(&other, 1 << 20).expect("room");
        let account = Arc::new(Account::default());
        let broken = Mapping::new(&account, file.as_fd(), 0, 1 << 20).expect("mapped");
        let sound = Mapping::new(&account, other.as_fd(), 0, 1 << 20).expect("mapped");
        for mapping in [&broken, &sound] {
            // SAFETY: within the mapping; nothing else uses it.
            unsafe { mapping.first().add(8192).write_volatile(7) };
        }
        ftruncate(&file, 4096).expect("smaller");
        // SAFETY: within the mapping; what is behind the file's end is what this is about.
        let seen = unsafe { broken.first().add(8192).read_volatile() };
        assert_eq!((seen, broken.is_broken()), (0, true));
        // SAFETY: as above, and it can be written.
        unsafe { broken.first().add(1 << 19).write_volatile(1) };
        // SAFETY: within the mapping.
        let seen = unsafe { sound.first().add(8192).read_volatile() };
        assert_eq!((seen, sound.is_broken()), (7, false));
    }
}
