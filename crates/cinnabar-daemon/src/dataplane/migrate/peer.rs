//! Asking the other daemon for a volume, over its control API: one request, with a bound on everything.

use cinnabar_api::Token;
use cinnabar_driver::ownership::PeerAnswer;
use cinnabar_messages::Peer;
use serde::Deserialize;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Longest wait for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Longest wait for the answer: the other host drains the volume meanwhile. It goes on with that, and the
/// next attempt is answered.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(15);
/// Longest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// As `POST /v1/volumes/{name}/give` answers.
#[derive(Deserialize)]
struct Answer {
    free: bool,
    epoch: u64,
    #[serde(default)]
    reason: String,
}

/// As any route refuses something.
#[derive(Deserialize)]
struct Refused {
    error: String,
}

/// Asks for a volume, and tells the highest epoch known here. Gives what the other host says, and why if it
/// does not give the volume. Blocks for at most some twenty seconds, name lookup apart.
pub(super) fn ask(peer: &Peer, name: &str, epoch: u64) -> (PeerAnswer, String) {
    match exchange(peer, name, epoch) {
        Ok((200, body)) => match serde_json::from_slice::<Answer>(&body) {
            Ok(Answer { free: true, epoch, .. }) => (PeerAnswer::Free(epoch), String::new()),
            Ok(Answer { epoch, reason, .. }) => (PeerAnswer::Refused(epoch), reason),
            Err(_) => (PeerAnswer::Silent, format!("{} answers something else", peer.address)),
        },
        // It is there and says no: it may serve the volume.
        Ok((code, body)) => {
            let refused = serde_json::from_slice::<Refused>(&body);
            let reason = refused.map_or_else(|_| format!("status {code}"), |refused| refused.error);
            let reason: String = reason.chars().filter(|c| !c.is_control()).take(300).collect();
            (PeerAnswer::Refused(0), format!("{} refuses: {reason}", peer.address))
        }
        Err(reason) => (PeerAnswer::Silent, format!("{}: {reason}", peer.address)),
    }
}

fn exchange(peer: &Peer, name: &str, epoch: u64) -> Result<(u16, Vec<u8>), String> {
    let token = Token::read(&peer.token_file)
        .map_err(|error| format!("token {}: {error}", peer.token_file.display()))?;
    let mut stream = connect(&peer.address)?;
    let body = format!("{{\"epoch\":{epoch}}}");
    let request = format!(
        "POST /v1/volumes/{}/give HTTP/1.1\r\nHost: {}\r\nAuthorization: {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        escape(name),
        peer.address,
        token.header(),
        body.len(),
    );
    let until = Instant::now() + ANSWER_MAX;
    stream.set_write_timeout(Some(CONNECT_MAX)).map_err(|error| error.to_string())?;
    stream.write_all(request.as_bytes()).map_err(|error| format!("sending: {error}"))?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        if let Some(parsed) = parse(&answer) {
            return Ok(parsed);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("no answer within {} s", ANSWER_MAX.as_secs()));
        }
        stream.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
        match stream.read(&mut piece) {
            Ok(0) => return Err("the connection ended before the answer did".into()),
            Ok(count) if answer.len() + count > ANSWER_BYTES_MAX => {
                return Err("the answer is too long".into());
            }
            Ok(count) => answer.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error)
                if [std::io::ErrorKind::WouldBlock, std::io::ErrorKind::TimedOut]
                    .contains(&error.kind()) => {}
            Err(error) => return Err(format!("receiving: {error}")),
        }
    }
}

fn connect(address: &str) -> Result<TcpStream, String> {
    let all = address.to_socket_addrs().map_err(|error| format!("no such host: {error}"))?;
    let mut last = "no such host".to_owned();
    for one in all.take(4) {
        match TcpStream::connect_timeout(&one, CONNECT_MAX) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

/// Status and body, once all of the body is there.
fn parse(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let code = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    let body = &answer[end + 4..];
    (body.len() >= length).then(|| (code, body[..length].to_vec()))
}

/// A name as one segment of a path.
fn escape(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ok = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_when_all_of_it_is_there() {
        let whole = b"HTTP/1.1 409 Conflict\r\nContent-Length: 3\r\nx: y\r\n\r\nabcd";
        assert_eq!(parse(whole), Some((409, b"abc".to_vec())));
        for end in 0..whole.len() - 1 {
            assert_eq!(parse(&whole[..end]), None, "{end}");
        }
        for bad in [
            &b"HTTP/2 200\r\nContent-Length: 0\r\n\r\n"[..],
            b"HTTP/1.1 2\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"\xff\xff\r\n\r\n",
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escape("vm 1/\u{e9}?"), "vm%201%2F%C3%A9%3F");
    }
}
