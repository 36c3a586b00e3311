//! Real guests: stock QEMU, Debian's kernel, ext4, and a daemon that comes and goes under them.
//!
//! Called by `main`. QEMU emulates the processor, for nested virtualisation runs no stock kernel
//! everywhere; that is slow, so one boot serves several checks.

mod disk;
mod golden;
mod initramfs;
mod life;
mod machine;
mod pound;
mod qmp;
mod recipe;
mod two;

use crate::Case;
use e2e::tools::{BUSYBOX, KERNEL, MKE2FS, QEMU, QEMU_IMG, Tool};

const NEEDS: &[Tool] = &[QEMU, QEMU_IMG, BUSYBOX, MKE2FS, KERNEL];

pub(crate) const CASES: [Case; 4] = [
    Case::new("guest_life_nbd", NEEDS, life::nbd),
    Case::new("guest_golden_image", NEEDS, golden::four_overlays),
    Case::new("guest_two_on_one_daemon", NEEDS, two::guests),
    Case::new("recipe_golden_image", NEEDS, recipe::golden_image),
];
