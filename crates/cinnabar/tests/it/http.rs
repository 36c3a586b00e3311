//! Just enough HTTP to ask the control socket and the metrics' port.

use super::rig::PATIENCE;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

/// Fetches a path over a unix socket.
pub(crate) fn get(socket: &Path, path: &str) -> io::Result<Answer> {
    send(socket, "GET", path, "")
}

/// The same, for one who wants it as `accept` says.
pub(crate) fn get_tcp_as(port: u16, path: &str, accept: &str) -> io::Result<Answer> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    exchange(stream, ("GET", path, accept), "")
}

/// Sends a request over a unix socket.
pub(crate) fn send(socket: &Path, method: &str, path: &str, body: &str) -> io::Result<Answer> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    exchange(stream, (method, path, "*/*"), body)
}

/// Fetches a path over TCP.
pub(crate) fn get_tcp(port: u16, path: &str) -> io::Result<Answer> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    exchange(stream, ("GET", path, "*/*"), "")
}

/// Sends a request over TCP with these headers, each with its line's end.
pub(crate) fn send_tcp(
    port: u16,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> io::Result<Answer> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let len = body.len();
    let head = format!("{method} {path} HTTP/1.0\r\n{headers}content-length: {len}\r\n\r\n");
    answered(stream, &head, body)
}

fn exchange(
    stream: impl Read + Write,
    (method, path, accept): (&str, &str, &str),
    body: &str,
) -> io::Result<Answer> {
    // Version 1.0: the answer is neither chunked nor followed by another one.
    let len = body.len();
    let head = format!(
        "{method} {path} HTTP/1.0\r\nhost: localhost\r\naccept: {accept}\r\ncontent-length: {len}\r\n\r\n"
    );
    answered(stream, &head, body)
}

fn answered(mut stream: impl Read + Write, head: &str, body: &str) -> io::Result<Answer> {
    stream.write_all(head.as_bytes())?;
    // A body that is refused early may break the pipe; the answer counts.
    let _refused_early = stream.write_all(body.as_bytes());
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let broken = || io::Error::other(format!("no HTTP: {text:?}"));
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(broken)?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(broken)?;
    Ok(Answer { code, head: head.to_lowercase(), body: body.to_owned() })
}
