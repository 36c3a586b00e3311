//! `cinnabar serve --demo`: four machines at work, a slow file server behind their disks, a small cache that the
//! manager divides.

mod load;

pub(super) use load::Load;

use super::lab;
use cinnabar_config::Config;
use cinnabar_text::{Failure, show_size, write_size};
use cinnabar_trace::demo::{GUESTS, Guest};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Not a name that a configuration of the user's is likely to have.
const CONFIG: &str = "demo.toml";
const TOKEN: &str = "token";
/// Less than the machines would like to have.
const CACHE_BYTES: u64 = 64 << 20;
/// So often shares move.
const INTERVAL_S: u64 = 5;
/// A file server that is far away and busy: a read takes 600 us, and one in four 9 ms.
const MODEL: &str = "sim:filer,read=mix/600us/9ms/0.75,write=mix/500us/4ms/0.9,flush=1ms,read_block=20us,write_block=20us";

/// The demonstration's folder; a temporary one is removed when dropped.
#[derive(Debug)]
pub(super) struct Demo {
    path: PathBuf,
    temporary: Option<TempDir>,
}

impl Demo {
    /// Makes the folder, if need be, and in it the disks, the token and the configuration.
    pub(super) fn new(dir: Option<&Path>) -> Result<Self, Failure> {
        let failed = |path: &Path, error: io::Error| {
            let message = format!("can't make the demonstration in {}: {error}", path.display());
            Failure::of_usage(message, "choose another folder with --dir")
        };
        let (path, temporary) = if let Some(dir) = dir {
            std::fs::create_dir_all(dir).map_err(|error| failed(dir, error))?;
            (std::path::absolute(dir).map_err(|error| failed(dir, error))?, None)
        } else {
            let dir = tempfile::Builder::new()
                .prefix("cinnabar-demo-")
                .tempdir()
                .map_err(|error| failed(&std::env::temp_dir(), error))?;
            (dir.path().to_owned(), Some(dir))
        };
        for guest in &GUESTS {
            let disk = path.join(disk(guest));
            let size = guest.disk_bytes;
            make(&disk, 0o644, |file| file.set_len(size)).map_err(|error| failed(&disk, error))?;
        }
        let token = path.join(TOKEN);
        make(&token, 0o600, write_token).map_err(|error| failed(&token, error))?;
        let config = path.join(CONFIG);
        let written = free_port().and_then(|port| std::fs::write(&config, text(port)));
        written.map_err(|error| failed(&config, error))?;
        Ok(Self { path, temporary })
    }

    /// What to serve.
    pub(super) fn config(&self) -> Result<Config, Failure> {
        let mut config = cinnabar_config::load(&self.path.join(CONFIG))?;
        // It is not read again: SIGHUP ends a demonstration, as it ends what was started on a terminal.
        config.path = None;
        Ok(config)
    }

    /// Puts the machines to work, once their disks are served, if the laboratory is installed.
    pub(super) fn work(&self) -> Option<Load> {
        let load = Load::start(&lab::find()?, &self.path);
        load.inspect_err(|error| tracing::error!("the machines can't work: {error}")).ok()
    }

    /// How to look at it.
    pub(super) fn welcome(&self, config: &Config, at_work: bool) -> String {
        let socket = config.control.socket.display();
        let page = config.control.http.map(|http| format!("http://{http}/ui/")).unwrap_or_default();
        let end = match self.temporary {
            Some(_) => "Ctrl-C; the files are removed",
            None => "Ctrl-C; the files stay",
        };
        let mut text = format!(
            "\n\
            Four machines at work, their disks behind a simulated file server, and a cache of {cache} in front.\n\n",
            cache = show_size(CACHE_BYTES),
        );
        if !at_work {
            writeln!(text, "The machines stand still without cinnabar-lab: {}\n", lab::HINT)
                .expect("a string takes it");
        }
        for Guest { name, about, .. } in &GUESTS {
            writeln!(text, "{name:10}{about}").expect("a string takes it");
        }
        write!(
            text,
            "\n\
            page    {page}\n\
            shares  {page}shares: they move every {INTERVAL_S} s, each with its reason\n\
            token   {token}: the page asks for it once, before it changes anything\n\
            watch   cinnabar status --socket {socket} --watch\n\
            why     cinnabar policy explain database --socket {socket}\n\
            end     {end}\n\n",
            token = self.path.join(TOKEN).display(),
        )
        .expect("a string takes it");
        text
    }
}

/// Name of a machine's disk.
fn disk(guest: &Guest) -> String {
    format!("{}.raw", guest.name)
}

/// Makes a file, unless an earlier run did: that one is used again as it is.
fn make(path: &Path, mode: u32, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(mode).open(path) {
        Ok(mut file) => fill(&mut file),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// 32 bytes by chance, in hexadecimal.
fn write_token(file: &mut File) -> io::Result<()> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").map_err(io::Error::other)?;
    }
    file.write_all(text.as_bytes())
}

/// A port of the loopback that was free a moment ago.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The configuration, as a user would write it.
fn text(port: u16) -> String {
    let mut text = format!(
        "# Written by `cinnabar serve --demo` at each start.\n\
        [cache]\n\
        device = \"cache.img\"\n\
        size = \"{size}\"\n\
        state_dir = \"state\"\n\
        lock_wait_s = 5\n\
        \n\
        [control]\n\
        socket = \"control.sock\"\n\
        http = \"127.0.0.1:{port}\"\n\
        api = true\n\
        token_file = \"{TOKEN}\"\n\
        \n\
        # What the model takes, and an SSD: this disk may be anything, and busy.\n\
        [manager]\n\
        interval_s = {INTERVAL_S}\n\
        prices = \"told\"\n\
        backend_read_us = 2700\n\
        backend_write_us = 850\n",
        size = write_size(CACHE_BYTES),
    );
    for (seed, guest) in (1..).zip(&GUESTS) {
        let (name, disk, keys) = (guest.name, disk(guest), guest.keys);
        write!(
            text,
            "\n[[volume]]\nname = \"{name}\"\nbackend = \"{MODEL},seed={seed}:file:{disk}\"\n{keys}"
        )
        .expect("a string takes it");
    }
    text
}
