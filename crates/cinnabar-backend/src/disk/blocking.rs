//! Plain blocking I/O for set-up, before there is a port.

use super::Progress;
use cinnabar_engine::metadata::MetaPage;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::{Errno, pread, preadv, pwrite};
use std::io::IoSliceMut;

/// Pages of one read: 1 MiB.
const PAGES_A_READ: usize = 256;

/// Whether direct I/O of `bytes` bytes works at the start of a file.
pub(super) fn can_read(fd: BorrowedFd<'_>, bytes: u32) -> bool {
    let mut page = Box::new(MetaPage::zeroed());
    pread(fd, &mut page.0[..bytes as usize], 0).is_ok()
}

/// Whether the kernel starts I/O on a file without waiting where it is asked to. Asked with a read
/// behind any end, which touches no medium.
pub(super) fn knows_nowait(fd: BorrowedFd<'_>) -> bool {
    use rustix::io::{ReadWriteFlags, preadv2};
    let mut page = Box::new(MetaPage::zeroed());
    let mut to = [std::io::IoSliceMut::new(&mut page.0)];
    match preadv2(fd, &mut to, 1 << 61, ReadWriteFlags::NOWAIT) {
        Ok(_) | Err(Errno::AGAIN) => true,
        Err(_) => false,
    }
}

/// Reads whole pages at `offset`; what lies past the end reads as zeros.
pub(super) fn read_pages(
    fd: impl AsFd,
    pages: &mut [MetaPage],
    offset: u64,
) -> rustix::io::Result<()> {
    let mut at = 0;
    while at < pages.len() {
        let rest = pages[at..].iter_mut().take(PAGES_A_READ);
        let mut slices: Vec<_> = rest.map(|page| IoSliceMut::new(&mut page.0)).collect();
        let from = offset + at as u64 * 4096;
        match preadv(fd.as_fd(), &mut slices, from) {
            Ok(bytes) if bytes >= 4096 => at += bytes / 4096,
            // The end of a file, which need not be that of a page.
            Ok(_) => {
                read_page(fd.as_fd(), &mut pages[at], from)?;
                at += 1;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn read_page(fd: BorrowedFd<'_>, page: &mut MetaPage, at: u64) -> rustix::io::Result<()> {
    let mut done = 0;
    while done < page.0.len() {
        match pread(fd, &mut page.0[done..], at + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    page.0[done..].fill(0);
    Ok(())
}

/// Writes zeros over a range, whole pages.
pub(super) fn write_zeros(
    fd: impl AsFd,
    offset: u64,
    len: u64,
    progress: &Progress,
) -> rustix::io::Result<()> {
    let zeros = vec![MetaPage::zeroed(); 256];
    let bytes = zeros.len() as u64 * 4096;
    // SAFETY: pages are plain bytes, one behind the other.
    let zeros = unsafe { std::slice::from_raw_parts(zeros.as_ptr().cast::<u8>(), bytes as usize) };
    let mut at = offset;
    let end = offset + len;
    while at < end {
        progress.go_on()?;
        let count = (end - at).min(bytes) as usize;
        match pwrite(fd.as_fd(), &zeros[..count], at) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => {
                at += written as u64;
                progress.step();
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Writes whole pages at `offset`.
pub(super) fn write_pages(
    fd: impl AsFd,
    pages: &[MetaPage],
    offset: u64,
) -> rustix::io::Result<()> {
    for (index, page) in pages.iter().enumerate() {
        let at = offset + index as u64 * 4096;
        let mut done = 0;
        while done < page.0.len() {
            match pwrite(fd.as_fd(), &page.0[done..], at + done as u64) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}
