//! A server with one volume that needs TLS, and clients of it.

use crate::host::Host;
use crate::running::{Running, memory};
use crate::sample::export;
use crate::terminator::authority::{Authority, Valid, install};
use cinnabar_frontend::nbd::{Address, ExportId, Limits};
use cinnabar_frontend::tls::{Terminator, Tls};
use cinnabar_frontend::{SocketAccess, TlsAccess};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// The server, what ends TLS for it, who signs.
pub(crate) struct World {
    pub(crate) running: Running,
    pub(crate) tls: Arc<Tls>,
    pub(crate) terminator: Arc<Terminator>,
    /// Of the server's certificate and of clients'.
    pub(crate) authority: Authority,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) at: SocketAddr,
}

impl World {
    /// With clients of these names.
    pub(crate) fn new(allow: &[&str]) -> Self {
        let authority = Authority::new();
        let folder = tempfile::tempdir().expect("a folder");
        let server = authority.sign("cache.example", true, Valid::Now);
        let tls = Tls::load(install(folder.path(), &server, &authority)).expect("they fit");
        let tls = Arc::new(tls);
        let terminator = Terminator::start(&tls, 2).expect("threads");
        let running = Running::start_host(|| Host::new(Limits::default()), Vec::new(), memory);
        let allow = allow.iter().map(|name| (*name).to_owned()).collect();
        let access = SocketAccess { tls: Some(TlsAccess { allow }), ..SocketAccess::default() };
        let ends_tls = Arc::clone(&terminator);
        let at = running.run(move |host| {
            let served = export(1, "vm1");
            let disk = memory(&served);
            host.add(served, disk);
            host.server.set_tls(ends_tls);
            let any = "tcp:127.0.0.1:0".parse().expect("an address");
            match host.server.listen_with(&any, &access, &[ExportId(1)]).expect("a port") {
                Address::Tcp(at) => at,
                Address::Unix(_) => unreachable!("it is none"),
            }
        });
        Self { running, tls, terminator, authority, folder, at }
    }

    /// A connection in plain text, greeted.
    pub(crate) fn connect(&self) -> TcpStream {
        Self::greeted(TcpStream::connect(self.at).expect("it listens"))
    }

    fn greeted(mut stream: TcpStream) -> TcpStream {
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        stream.set_write_timeout(Some(Duration::from_secs(20))).expect("a time");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).expect("it greets");
        stream.write_all(&3_u32.to_be_bytes()).expect("it reads");
        stream
    }

    /// The same after STARTTLS.
    pub(crate) fn starttls(&self) -> TcpStream {
        granted(self.connect())
    }

    /// The same from another address of this host.
    pub(crate) fn starttls_from(&self, address: [u8; 4]) -> TcpStream {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let fd = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&fd, &SocketAddr::from((address, 0))).expect("an address of this host");
        connect(&fd, &self.at).expect("it listens");
        granted(Self::greeted(TcpStream::from(fd)))
    }

    /// And over TLS.
    pub(crate) fn secure(&self, config: Arc<ClientConfig>) -> Secure {
        secure(config, self.starttls())
    }
}

fn granted(mut stream: TcpStream) -> TcpStream {
    send(&mut stream, 5, &[]).expect("it reads");
    assert_eq!(reply(&mut stream).expect("an answer").0, ACK);
    stream
}

/// TLS over a connection that is ready for it.
pub(crate) fn secure(config: Arc<ClientConfig>, stream: TcpStream) -> Secure {
    let name = ServerName::try_from("cache.example").expect("a name");
    let connection = ClientConnection::new(config, name).expect("it is possible");
    StreamOwned::new(connection, stream)
}

pub(crate) type Secure = StreamOwned<ClientConnection, TcpStream>;

pub(crate) const ACK: u32 = 1;
const INFO: u32 = 3;
pub(crate) const ERR_POLICY: u32 = (1 << 31) + 2;

/// Sends an option.
pub(crate) fn send(to: &mut impl Write, option: u32, data: &[u8]) -> io::Result<()> {
    let len = u32::try_from(data.len()).expect("short");
    to.write_all(&[&b"IHAVEOPT"[..], &option.to_be_bytes(), &len.to_be_bytes(), data].concat())?;
    to.flush()
}

/// Reads an answer to an option: its kind and data.
pub(crate) fn reply(from: &mut impl Read) -> io::Result<(u32, Vec<u8>)> {
    let mut head = [0; 20];
    from.read_exact(&mut head)?;
    let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("4 bytes"));
    let mut data = vec![0; number(16) as usize];
    from.read_exact(&mut data)?;
    Ok((number(12), data))
}

/// Asks for the volume; the last answer.
pub(crate) fn go(stream: &mut (impl Read + Write)) -> io::Result<(u32, Vec<u8>)> {
    send(stream, 7, b"\0\0\0\x03vm1\0\0")?;
    loop {
        let (kind, data) = reply(stream)?;
        if kind != INFO {
            return Ok((kind, data));
        }
    }
}

fn request(kind: u16, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([9; 8]);
    bytes.extend(offset.to_be_bytes());
    bytes.extend(u32::try_from(len).expect("short").to_be_bytes());
    bytes
}

fn answered(stream: &mut impl Read) -> io::Result<()> {
    let mut head = [0; 16];
    stream.read_exact(&mut head)?;
    assert_eq!(head[4..], [&[0; 4][..], &[9; 8]].concat(), "it succeeded");
    Ok(())
}

pub(crate) fn write(stream: &mut (impl Read + Write), at: u64, data: &[u8]) -> io::Result<()> {
    stream.write_all(&[request(1, at, data.len()).as_slice(), data].concat())?;
    stream.flush()?;
    answered(stream)
}

pub(crate) fn read(stream: &mut (impl Read + Write), at: u64, len: usize) -> io::Result<Vec<u8>> {
    stream.write_all(&request(0, at, len))?;
    stream.flush()?;
    answered(stream)?;
    let mut data = vec![0; len];
    stream.read_exact(&mut data)?;
    Ok(data)
}
