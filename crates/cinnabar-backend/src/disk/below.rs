//! Which disks lie below a file or device, as sysfs tells: two partitions of one SSD fail together, and
//! so do volumes of LVM on them.

use rustix::fs::{FileType, major, minor, stat};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Devices upon devices that are followed at most.
const DEPTH_MAX: u32 = 8;

/// Whether two files, folders or block devices lie on a common disk, as far as can be told. Of what is
/// not there yet, the folder that it would be made in counts.
pub fn share_a_disk(one: &Path, other: &Path) -> bool {
    let below = |path: &Path| {
        path.ancestors().find_map(device_of).map(|device| disks(Path::new("/sys"), device))
    };
    let (Some(one), Some(other)) = (below(one), below(other)) else { return false };
    !one.is_disjoint(&other)
}

/// Numbers of the device that this is, or lies on.
fn device_of(path: &Path) -> Option<(u32, u32)> {
    // An empty path is what is left of a relative one.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let found = stat(path).ok()?;
    let is_device = FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice;
    let device = if is_device { found.st_rdev } else { found.st_dev };
    Some((major(device), minor(device)))
}

/// The disks below a device. What sysfs does not know (btrfs, NFS) counts as one of its own.
fn disks(sys: &Path, (major, minor): (u32, u32)) -> BTreeSet<PathBuf> {
    let name = format!("{major}:{minor}");
    let mut found = BTreeSet::new();
    match sys.join("dev/block").join(&name).canonicalize() {
        Ok(device) => collect(&device, DEPTH_MAX, &mut found),
        Err(_) => drop(found.insert(PathBuf::from(name))),
    }
    found
}

fn collect(device: &Path, depth: u32, found: &mut BTreeSet<PathBuf>) {
    let slaves = std::fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let slaves: Vec<PathBuf> =
        slaves.filter_map(|slave| slave.path().canonicalize().ok()).collect();
    if depth > 0 && !slaves.is_empty() {
        return slaves.iter().for_each(|slave| collect(slave, depth - 1, found));
    }
    // A partition is a folder of its disk's.
    let is_partition = device.join("partition").exists();
    let disk = device.parent().filter(|_| is_partition).unwrap_or(device);
    found.insert(disk.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A disk with two partitions, another disk, and a device of LVM upon the second partition.
    fn sysfs() -> tempfile::TempDir {
        let sys = tempfile::tempdir().expect("a folder");
        let at = |path: &str| sys.path().join(path);
        for folder in ["nvme0n1/nvme0n1p1", "nvme0n1/nvme0n1p2", "sda", "dm-0/slaves"] {
            std::fs::create_dir_all(at("devices").join(folder)).expect("a folder");
        }
        std::fs::create_dir_all(at("dev/block")).expect("a folder");
        for part in ["p1", "p2"] {
            let file = at(&format!("devices/nvme0n1/nvme0n1{part}/partition"));
            std::fs::write(file, "1").expect("a file");
        }
        for (number, device) in [
            ("259:0", "nvme0n1"),
            ("259:1", "nvme0n1/nvme0n1p1"),
            ("259:2", "nvme0n1/nvme0n1p2"),
            ("8:0", "sda"),
            ("253:0", "dm-0"),
        ] {
            let target = at("devices").join(device);
            symlink(target, at("dev/block").join(number)).expect("a link");
        }
        symlink(at("devices/nvme0n1/nvme0n1p2"), at("devices/dm-0/slaves/nvme0n1p2"))
            .expect("a link");
        sys
    }

    #[test]
    fn partitions_and_what_is_upon_them_lie_on_their_disk() {
        let sys = sysfs();
        let of = |device| disks(sys.path(), device);
        let nvme = of((259, 0));
        for device in [(259, 1), (259, 2), (253, 0)] {
            assert_eq!(of(device), nvme, "{device:?}");
        }
        assert!(of((8, 0)).is_disjoint(&nvme));
        assert!(of((0, 44)).is_disjoint(&of((0, 45))), "sysfs does not know them");
        assert_eq!(of((0, 44)), of((0, 44)));
    }

    #[test]
    fn what_is_not_there_yet_lies_where_its_folder_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let (cache, state) = (folder.path().join("cache.img"), folder.path().join("a/b/state"));
        assert!(share_a_disk(&cache, &state));
        assert!(!share_a_disk(&cache, Path::new("/proc/self")), "another file system");
    }
}
