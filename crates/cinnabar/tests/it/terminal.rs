//! A terminal of any width. The tests of both programs use it.

use super::rig::Site;
use rustix::fd::OwnedFd;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::process::Stdio;

/// What a command writes to a terminal of so many columns.
pub(crate) fn on_terminal(site: &Site, columns: u16, args: &[&str]) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).expect("it is ours");
    unlockpt(&master).expect("it is ours");
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&master, size).expect("a size");
    let name = ptsname(&master, Vec::new()).expect("a name");
    let open = || -> OwnedFd {
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty()).expect("its other end")
    };
    let mut child =
        site.command(args).stdout(open()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut text = Vec::new();
    let mut master = File::from(master);
    let mut piece = [0; 4096];
    // At the end of all writers a terminal fails to be read.
    while let Ok(read @ 1..) = master.read(&mut piece) {
        text.extend_from_slice(&piece[..read]);
    }
    assert!(child.wait().expect("it is our child").success(), "{args:?}");
    String::from_utf8(text).expect("text").replace('\r', "")
}
