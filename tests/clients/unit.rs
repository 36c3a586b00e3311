//! The shipped service file: the daemon under its restrictions gives sockets to a group, whose
//! members reach them.
//!
//! Needs root, as systemd does; elsewhere it says that it was left out.

use crate::Case;
use anyhow::{Context, Result, ensure};
use e2e::unit::Unit;
use e2e::{Config, MIB, Site, Volume, nbd::Client};
use rustix::process::{Gid, Uid};
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;

pub(crate) const CASES: [Case; 2] = [
    Case::new("unit_socket_group_as_root", &[], as_root).ci(),
    Case::new("unit_socket_group_as_user", &[], as_user),
];

/// The user `nobody`, and a group that no account has.
const USER: u32 = 65_534;
const GROUP: u32 = 48_211;

fn shipped() -> Result<Unit> {
    Unit::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/cinnabar.service"))
}

pub(crate) fn is_root(case: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: {case} needs root");
    }
    root
}

/// As it is shipped.
fn as_root() -> Result<()> {
    if is_root("unit_socket_group_as_root") { serves_a_group(None) } else { Ok(()) }
}

/// With `User=` and `SupplementaryGroups=`, as the unit's comment advises.
fn as_user() -> Result<()> {
    if is_root("unit_socket_group_as_user") { serves_a_group(Some(USER)) } else { Ok(()) }
}

fn serves_a_group(user: Option<u32>) -> Result<()> {
    let unit = shipped()?;
    let site = Site::new()?;
    let folder = site.path("run");
    let all = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode));
    // What is around the folders of systemd's making is of no account.
    all(folder.parent().context("it is within the site")?, 0o777)?;
    std::fs::create_dir(&folder)?;
    let disk = site.sparse("disk.raw", 8 * MIB)?;
    let other = site.sparse("other.raw", 8 * MIB)?;
    all(&disk, 0o666)?;
    all(&other, 0o666)?;

    let group = format!("socket_group = \"{GROUP}\"");
    let config = Config::new(32 * MIB)
        .volume(Volume::new("vm1", "file:disk.raw").at("unix:run/vm1.sock").key(&group))
        .volume(
            Volume::new("vm2", "file:other.raw").vhost_user(Path::new("run/vm2.vhost")).key(&group),
        );
    // systemd makes the folder for the account that the daemon runs under.
    std::os::unix::fs::chown(&folder, user, user)?;
    all(&folder, unit.mode("RuntimeDirectoryMode")?)?;
    let mut filtered = false;
    let daemon = site.serve_under(&config, |command| {
        // The account first: the filter forbids to change it.
        if let Some(user) = user {
            // SAFETY: system calls only.
            unsafe { command.pre_exec(move || Ok(become_user(user, &[GROUP])?)) };
        }
        filtered = unit.confine(command)?;
        Ok(())
    })?;
    if !filtered {
        eprintln!("left out: system calls are not filtered, for nothing here knows their names");
    }
    for socket in ["vm1.sock", "vm2.vhost"] {
        let path = folder.join(socket);
        connect_as(&path, &[GROUP]).with_context(|| format!("{socket}: a member of the group"))?;
        let stranger = connect_as(&path, &[]).expect_err("it is not in the group");
        ensure!(stranger.kind() == ErrorKind::PermissionDenied, "{socket}: {stranger}");
    }
    let client = Client::connect(&folder.join("vm1.sock"), "vm1")?;
    ensure!(client.size() == 8 * MIB, "size {}", client.size());
    drop(client);
    daemon.stop()
}

/// Makes this thread another account's: what the kernel is asked from now on, it judges by that.
fn become_user(user: u32, groups: &[u32]) -> rustix::io::Result<()> {
    // The groups first: the account may not set them.
    let groups: [Gid; 1] = [Gid::from_raw(groups.first().copied().unwrap_or(user))];
    rustix::thread::set_thread_groups(&groups)?;
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(user));
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)
}

/// Connects as a guest's account that is a member of these groups.
pub(crate) fn connect_as(socket: &Path, groups: &[u32]) -> std::io::Result<UnixStream> {
    std::thread::scope(|scope| {
        let connect = || {
            // Not the account of the daemon: its owner may connect in any case.
            become_user(USER - 1, groups)?;
            UnixStream::connect(socket)
        };
        scope.spawn(connect).join().expect("it does not panic")
    })
}
