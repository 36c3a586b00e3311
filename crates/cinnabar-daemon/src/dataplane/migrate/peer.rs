//! Asking the other daemon for a volume, or for something of it, over its control API: one request a
//! connection, with a bound on everything.

use cinnabar_config::messages::Peer;
use cinnabar_control::access::Token;
use cinnabar_control::path::escape;
use cinnabar_driver::ownership::{EPOCH_MAX, PeerAnswer};
use serde::Deserialize;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Longest wait for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Longest wait for the answer: the other host drains the volume meanwhile. It goes on with that, and the
/// next attempt is answered.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(15);
/// Longest wait for who it is, which it knows at once. Its own request waits for that.
const IDENTITY_MAX: Duration = Duration::from_secs(5);
/// Longest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Longest reason that is shown, in characters.
const REASON_CHARS_MAX: usize = 300;
const NOT_FOUND: u16 = 404;

/// As `POST /v1/volumes/{name}/give` answers.
#[derive(Deserialize)]
struct Answer {
    free: bool,
    epoch: u64,
    /// Only beside `free`.
    owned: Option<u64>,
    #[serde(default)]
    reason: String,
}

/// As any route refuses something.
#[derive(Deserialize)]
struct Refused {
    error: String,
}

/// As `GET /v1/identity` answers.
#[derive(Deserialize)]
struct Identity {
    id: String,
}

/// Asks the other host which daemon it has. Blocks for at most some ten seconds, name lookup apart.
pub(super) fn identity(peer: &Peer) -> Result<String, String> {
    let asked = Ask {
        method: "GET",
        path: "/v1/identity".into(),
        body: String::new(),
        answer_bytes_max: ANSWER_BYTES_MAX,
        answer_max: IDENTITY_MAX,
    };
    match exchange(peer, &asked)? {
        (200, body) => serde_json::from_slice::<Identity>(&body)
            .map(|Identity { id }| id)
            .map_err(|_| "it answers something else".into()),
        (code, body) => Err(reason_of(code, &body)),
    }
}

/// Asks for a volume as this daemon, and tells the highest epoch known here. Gives what the other host says, and
/// why if it does not give the volume. Blocks for at most some twenty seconds, name lookup apart.
pub(super) fn ask(peer: &Peer, name: &str, epoch: u64, from: &str) -> (PeerAnswer, String) {
    let asked = Ask {
        method: "POST",
        // Daemons of earlier releases do not look at it.
        path: format!("/v1/volumes/{}/give?from={from}", escape(name)),
        body: format!("{{\"epoch\":{epoch}}}"),
        answer_bytes_max: ANSWER_BYTES_MAX,
        answer_max: ANSWER_MAX,
    };
    match exchange(peer, &asked) {
        Ok((200, body)) => match serde_json::from_slice::<Answer>(&body) {
            Ok(Answer { free: true, epoch, owned, .. }) => match owned {
                Some(owned) if epoch.max(owned) < EPOCH_MAX => {
                    (PeerAnswer::Free { epoch, owned }, String::new())
                }
                _ => {
                    (PeerAnswer::Silent, format!("{} answers an epoch that is none", peer.address))
                }
            },
            Ok(Answer { epoch, reason, .. }) => (PeerAnswer::Refused(epoch), one_line(&reason)),
            Err(_) => (PeerAnswer::Silent, format!("{} answers something else", peer.address)),
        },
        // It is there and says no: it may serve the volume.
        Ok((code, body)) => {
            let reason = format!("{} refuses: {}", peer.address, reason_of(code, &body));
            // It does not serve what it does not know. That is no hand-over, but contradicts no word.
            let knows = code != NOT_FOUND;
            (if knows { PeerAnswer::Refused(0) } else { PeerAnswer::Silent }, reason)
        }
        Err(reason) => (PeerAnswer::Silent, format!("{}: {reason}", peer.address)),
    }
}

/// Another host's words, as logs and terminals can take them.
fn one_line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(REASON_CHARS_MAX).collect()
}

/// Why a request was refused, in one line.
pub(super) fn reason_of(code: u16, body: &[u8]) -> String {
    let refused = serde_json::from_slice::<Refused>(body);
    one_line(&refused.map_or_else(|_| format!("status {code}"), |refused| refused.error))
}

/// A request.
pub(super) struct Ask {
    pub(super) method: &'static str,
    /// With its query; names in it are escaped ([`escape`]).
    pub(super) path: String,
    /// JSON, or nothing.
    pub(super) body: String,
    /// Longest answer, head included.
    pub(super) answer_bytes_max: usize,
    /// Longest wait for it.
    pub(super) answer_max: Duration,
}

/// Sends a request and gives the answer's status and body.
///
/// # Errors
/// Why there is none, in one line.
pub(super) fn exchange(peer: &Peer, asked: &Ask) -> Result<(u16, Vec<u8>), String> {
    let token = Token::read(&peer.token_file)
        .map_err(|error| format!("token {}: {error}", peer.token_file.display()))?;
    let mut stream = connect(&peer.address)?;
    let Ask { method, path, body, answer_bytes_max, answer_max } = asked;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        peer.address,
        token.header(),
        body.len(),
    );
    let until = Instant::now() + *answer_max;
    stream.set_write_timeout(Some(CONNECT_MAX)).map_err(|error| error.to_string())?;
    stream.write_all(request.as_bytes()).map_err(|error| format!("sending: {error}"))?;
    let mut answer = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        if let Some(parsed) = parse(&answer) {
            return Ok(parsed);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("no answer within {} s", answer_max.as_secs()));
        }
        stream.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
        match stream.read(&mut piece) {
            Ok(0) => return Err("the connection ended before the answer did".into()),
            Ok(count) if answer.len() + count > *answer_bytes_max => {
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
}
