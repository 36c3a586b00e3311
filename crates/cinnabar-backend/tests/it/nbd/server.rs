//! An NBD server that does what a test wants: forgets, refuses, says nonsense, says nothing.
//!
//! Plain threads and the standard library only. What is written is volatile until a flush; `kill`
//! loses the rest.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const ZEROES: u16 = 6;

/// Flags of an export that can do everything but be read only.
pub(crate) const ALL: u16 = 0x1 | SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_ZEROES | MULTI;
pub(crate) const READ_ONLY: u16 = 1 << 1;
pub(crate) const SEND_FLUSH: u16 = 1 << 2;
pub(crate) const SEND_FUA: u16 = 1 << 3;
pub(crate) const SEND_TRIM: u16 = 1 << 5;
pub(crate) const SEND_ZEROES: u16 = 1 << 6;
pub(crate) const MULTI: u16 = 1 << 8;

/// What the server says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub(crate) size: u64,
    pub(crate) flags: u16,
    pub(crate) structured: bool,
    pub(crate) blocks: Option<[u32; 3]>,
}

impl Manner {
    pub(crate) fn of_size(size: u64) -> Self {
        Self { size, flags: ALL, structured: true, blocks: None }
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) connection: u64,
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

/// What to do with a request.
pub(crate) enum Deed {
    Serve,
    /// Never answered.
    Ignore,
    /// Answered with this error.
    Fail(u32),
    /// The same, and what was not flushed is lost.
    FailAndForget(u32),
    /// These bytes in place of an answer.
    Say(Vec<u8>),
    /// Carried out, and the connection closed in place of an answer.
    ServeAndHangUp,
    /// Closed without.
    HangUp,
}

type Script = Box<dyn FnMut(&Asked) -> Deed + Send>;

struct State {
    manner: Manner,
    volatile: Vec<u8>,
    durable: Vec<u8>,
    asked: Vec<Asked>,
    script: Script,
    streams: Vec<UnixStream>,
    connections: u64,
    /// Of those, the ones that there are.
    live: u64,
    /// Kills so far: what an earlier life began comes to nothing.
    life: u64,
}

/// See the module.
pub(crate) struct Server {
    path: PathBuf,
    state: Arc<Mutex<State>>,
    /// Of the listener that is there, if it is.
    stop: Arc<AtomicBool>,
}

impl Server {
    /// Serves zeros.
    pub(crate) fn start(path: &Path, manner: Manner) -> Self {
        let contents = vec![0; manner.size as usize];
        let state = State {
            manner,
            volatile: contents.clone(),
            durable: contents,
            asked: Vec::new(),
            script: Box::new(|_| Deed::Serve),
            streams: Vec::new(),
            connections: 0,
            live: 0,
            life: 0,
        };
        let stop = Arc::new(AtomicBool::new(true));
        let mut server = Self { path: path.to_owned(), state: Arc::new(Mutex::new(state)), stop };
        server.revive();
        server
    }

    /// What it does from now on.
    pub(crate) fn script(&self, script: impl FnMut(&Asked) -> Deed + Send + 'static) {
        self.state().script = Box::new(script);
    }

    /// All requests since the last time.
    pub(crate) fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state().asked)
    }

    /// Requests since the last time they were taken.
    pub(crate) fn asked(&self) -> usize {
        self.state().asked.len()
    }

    /// Connections ever.
    pub(crate) fn connections(&self) -> u64 {
        self.state().connections
    }

    /// Connections now.
    pub(crate) fn live(&self) -> u64 {
        self.state().live
    }

    /// What it would say after a power cut.
    pub(crate) fn durable(&self) -> Vec<u8> {
        self.state().durable.clone()
    }

    /// What it says.
    pub(crate) fn contents(&self) -> Vec<u8> {
        self.state().volatile.clone()
    }

    /// Says something else of itself from the next connection on.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Manner)) {
        let mut state = self.state();
        change(&mut state.manner);
        let size = state.manner.size as usize;
        state.volatile.resize(size, 0);
        state.durable.resize(size, 0);
    }

    /// Closes all connections; the listener stays.
    pub(crate) fn hang_up(&self) {
        for stream in self.state().streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Ends as in a power cut: connections, listener and what was not flushed are gone.
    pub(crate) fn kill(&mut self) {
        self.stop.store(true, SeqCst);
        let _ = std::fs::remove_file(&self.path);
        let mut state = self.state();
        state.life += 1;
        let State { volatile, durable, .. } = &mut *state;
        volatile.clone_from(durable);
        for stream in state.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Serves again after a kill.
    pub(crate) fn revive(&mut self) {
        let listener = UnixListener::bind(&self.path).expect("a socket");
        listener.set_nonblocking(true).expect("a socket that does not block");
        let stop = Arc::new(AtomicBool::new(false));
        self.stop = Arc::clone(&stop);
        let state = Arc::clone(&self.state);
        thread::spawn(move || {
            while !stop.load(SeqCst) {
                match listener.accept() {
                    Ok((stream, _)) => welcome(stream, &state),
                    Err(_) => thread::sleep(Duration::from_millis(2)),
                }
            }
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn welcome(stream: UnixStream, state: &Arc<Mutex<State>>) {
    stream.set_nonblocking(false).expect("a socket that blocks");
    let state = Arc::clone(state);
    let mut locked = lock(&state);
    (locked.connections, locked.live) = (locked.connections + 1, locked.live + 1);
    let (connection, life) = (locked.connections, locked.life);
    locked.streams.push(stream.try_clone().expect("another handle"));
    drop(locked);
    thread::spawn(move || {
        // Its end is the client's, or a kill.
        let _ = serve(stream, &state, connection, life);
        lock(&state).live -= 1;
    });
}

fn serve(
    mut stream: UnixStream,
    state: &Mutex<State>,
    connection: u64,
    life: u64,
) -> io::Result<()> {
    let manner = lock(state).manner.clone();
    let structured = handshake(&mut stream, &manner)?;
    loop {
        let mut head = [0; 28];
        stream.read_exact(&mut head)?;
        let asked = Asked {
            connection,
            flags: u16::from_be_bytes([head[4], head[5]]),
            kind: u16::from_be_bytes([head[6], head[7]]),
            cookie: number(&head[8..16]),
            offset: number(&head[16..24]),
            len: number(&head[24..]) as u32,
        };
        let mut data = vec![0; if asked.kind == WRITE { asked.len as usize } else { 0 }];
        stream.read_exact(&mut data)?;
        let mut locked = lock(state);
        if locked.life != life || asked.kind == 2 {
            return stream.shutdown(Shutdown::Both);
        }
        locked.asked.push(asked.clone());
        let deed = (locked.script)(&asked);
        if matches!(deed, Deed::Serve | Deed::ServeAndHangUp) {
            data = carry_out(&mut locked, &asked, &data);
        } else if matches!(deed, Deed::FailAndForget(_)) {
            let State { volatile, durable, .. } = &mut *locked;
            volatile.clone_from(durable);
        }
        drop(locked);
        match deed {
            Deed::Serve => reply(&mut stream, structured, &asked, 0, &data)?,
            Deed::Fail(error) | Deed::FailAndForget(error) => {
                reply(&mut stream, structured, &asked, error, &[])?;
            }
            Deed::Say(bytes) => stream.write_all(&bytes)?,
            Deed::Ignore => {}
            Deed::HangUp | Deed::ServeAndHangUp => return stream.shutdown(Shutdown::Both),
        }
    }
}

fn carry_out(state: &mut State, asked: &Asked, data: &[u8]) -> Vec<u8> {
    let range = asked.offset as usize..asked.offset as usize + asked.len as usize;
    let durable = asked.flags & 1 != 0;
    match asked.kind {
        READ => return state.volatile[range].to_vec(),
        WRITE => {
            state.volatile[range.clone()].copy_from_slice(data);
            if durable {
                state.durable[range].copy_from_slice(data);
            }
        }
        FLUSH => {
            let State { volatile, durable, .. } = state;
            durable.clone_from(volatile);
        }
        TRIM | ZEROES => state.volatile[range].fill(0),
        _ => {}
    }
    Vec::new()
}

/// A chunk's or a reply's bytes.
fn reply(
    stream: &mut UnixStream,
    structured: bool,
    asked: &Asked,
    error: u32,
    data: &[u8],
) -> io::Result<()> {
    let bytes = if structured && asked.kind == READ && error == 0 {
        let payload = [&asked.offset.to_be_bytes(), data].concat();
        chunk(asked.cookie, 1, 1, &payload)
    } else if structured && asked.kind == READ {
        chunk(asked.cookie, 1, 0x8001, &[&error.to_be_bytes()[..], &[0, 0]].concat())
    } else {
        [&simple(asked.cookie, error), data].concat()
    };
    stream.write_all(&bytes)
}

pub(crate) fn simple(cookie: u64, error: u32) -> Vec<u8> {
    [&0x6744_6698_u32.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
}

pub(crate) fn chunk(cookie: u64, flags: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = 0x668e_33ef_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// True if structured replies were agreed on.
fn handshake(stream: &mut UnixStream, manner: &Manner) -> io::Result<bool> {
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    stream.read_exact(&mut [0; 4])?;
    let mut structured = false;
    loop {
        let mut head = [0; 16];
        stream.read_exact(&mut head)?;
        let option = number(&head[8..12]) as u32;
        let mut data = vec![0; number(&head[12..]) as usize];
        stream.read_exact(&mut data)?;
        let answer = |kind: u32, data: &[u8]| {
            let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
            for field in [option, kind, data.len() as u32] {
                bytes.extend(field.to_be_bytes());
            }
            bytes.extend(data);
            bytes
        };
        match option {
            8 if manner.structured => {
                structured = true;
                stream.write_all(&answer(1, &[]))?;
            }
            7 => {
                if let Some(blocks) = manner.blocks {
                    let sizes: Vec<u8> =
                        blocks.iter().flat_map(|size| size.to_be_bytes()).collect();
                    stream.write_all(&answer(3, &[&[0, 3][..], &sizes].concat()))?;
                }
                let size = manner.size.to_be_bytes();
                let export = [&[0, 0][..], &size, &manner.flags.to_be_bytes()].concat();
                stream.write_all(&answer(3, &export))?;
                stream.write_all(&answer(1, &[]))?;
                return Ok(structured);
            }
            _ => stream.write_all(&answer((1 << 31) + 1, &[]))?,
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
