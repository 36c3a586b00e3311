//! Real guests: stock QEMU, Debian's kernel, ext4, and a daemon that comes and goes under them.
//!
//! QEMU emulates the processor, for nested virtualisation runs no stock kernel everywhere; that is
//! slow, so one boot serves several checks.

mod disk;
mod golden;
mod hosts;
mod initramfs;
mod life;
mod machine;
mod migrate;
mod pound;
mod power_cut;
mod qmp;
mod recipe;
mod two;

use crate::Case;
use e2e::tools::{
    BUSYBOX, CURL, DEBUGFS, E2FSCK, ISCSI_LS, KERNEL, MKE2FS, NBDINFO, QEMU, QEMU_IMG, QEMU_ISCSI,
    QEMU_NBD, QEMU_STORAGE_DAEMON, SQLITE, TGTD, Tool, VIRT_XML_VALIDATE, XMLLINT,
};

const NEEDS: &[Tool] = &[QEMU, QEMU_IMG, BUSYBOX, MKE2FS, KERNEL];
const ISCSI: &[Tool] =
    &[QEMU, BUSYBOX, MKE2FS, KERNEL, QEMU_STORAGE_DAEMON, QEMU_ISCSI, ISCSI_LS, TGTD];
const STARTED: &[Tool] = &[QEMU, QEMU_IMG, BUSYBOX, MKE2FS, KERNEL, NBDINFO, CURL];
const LIBVIRT: &[Tool] = &[VIRT_XML_VALIDATE, XMLLINT, KERNEL];
const POWER_CUT: &[Tool] = &[QEMU, QEMU_NBD, BUSYBOX, MKE2FS, KERNEL, E2FSCK, DEBUGFS, SQLITE];

pub(crate) const CASES: [Case; 16] = [
    Case::new("guest_life_vhost_user", NEEDS, life::vhost_user),
    Case::new("guest_life_nbd", NEEDS, life::nbd),
    Case::new("guest_migrates_nbd", NEEDS, hosts::nbd),
    Case::new("guest_migrates_vhost_user", NEEDS, hosts::vhost_user),
    Case::new("guest_golden_image", NEEDS, golden::four_overlays),
    Case::new("guest_two_on_one_daemon", NEEDS, two::guests),
    Case::new("guest_migration_vhost_user", NEEDS, migrate::vhost_user),
    Case::new("guest_power_cut_images", POWER_CUT, power_cut::images),
    Case::new("flush_after_a_kill", &[QEMU_NBD, MKE2FS, SQLITE], power_cut::flush_after_a_kill),
    Case::new("recipe_readme_five_minutes", &[QEMU, BUSYBOX, MKE2FS, KERNEL], recipe::five_minutes)
        .ci(),
    Case::new("recipe_getting_started", STARTED, recipe::getting_started),
    Case::new("recipe_golden_image", NEEDS, recipe::golden_image),
    Case::new("recipe_qemu", NEEDS, recipe::qemu).ci(),
    Case::new("recipe_libvirt", LIBVIRT, recipe::libvirt),
    Case::new("recipe_iscsi", ISCSI, recipe::iscsi),
    Case::new("recipe_proxy", &[QEMU, BUSYBOX, MKE2FS, KERNEL, QEMU_NBD], recipe::proxy),
];
