//! The handshake where TLS is required: nothing is told or granted before it, once it was granted nothing
//! of the plain text is left, and all is the same however the bytes are cut.

use crate::frontend::sample::{Listed, export};
use crate::input::Input;
use cinnabar_frontend::nbd::handshake::{Handshake, Step};

const ACK: [u8; 4] = 1_u32.to_be_bytes();
const ERR_INVALID: [u8; 4] = ((1_u32 << 31) + 3).to_be_bytes();
const ERR_TLS_REQUIRED: [u8; 4] = ((1_u32 << 31) + 5).to_be_bytes();

/// What happens when these pieces arrive in plain text, up to TLS, and what is sent; how many bytes were
/// taken.
fn plain(handshake: &mut Handshake, pieces: &[&[u8]]) -> (Vec<Step>, Vec<u8>, usize) {
    let directory = Listed(vec![export(1, "a"), export(2, "b")]);
    let (mut steps, mut output, mut unread, mut total) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for piece in pieces {
        unread.extend_from_slice(piece);
        loop {
            let before = output.len();
            let (taken, step) = handshake.step(&unread, &directory, &mut output);
            unread.drain(..taken);
            total += taken;
            if step == Step::NeedMore {
                assert_eq!(output.len(), before, "an answer to nothing");
                break;
            }
            assert!(!matches!(step, Step::Enter(_)), "no export is entered in plain text");
            if let Some(reply) = output.get(before..).filter(|reply| !reply.is_empty()) {
                let kind = &reply[12..16];
                let granted = matches!(step, Step::StartTls | Step::Close(_)) && kind == ACK;
                assert!(granted || kind == ERR_INVALID || kind == ERR_TLS_REQUIRED, "{kind:?}");
            }
            steps.push(step);
            if matches!(step, Step::StartTls | Step::Close(_)) {
                return (steps, output, total);
            }
        }
    }
    (steps, output, total)
}

/// Where the connection is cut (`u16`), and its bytes; whether TLS was granted.
///
/// # Panics
/// When it is granted twice, or all is not the same in pieces.
pub fn run(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let (cut, bytes) = (input.u16(), input.rest());
    let (head, tail) = bytes.split_at(usize::from(cut).min(bytes.len()));
    let (mut whole, mut pieces) =
        (Handshake::new(20).requiring_tls(), Handshake::new(20).requiring_tls());
    let seen = plain(&mut whole, &[bytes]);
    assert_eq!(seen, plain(&mut pieces, &[head, tail]));
    if seen.0.last() != Some(&Step::StartTls) {
        return false;
    }
    // What comes now is over TLS: it is not asked for again, whatever comes.
    let directory = Listed(vec![export(1, "a"), export(2, "b")]);
    let (mut rest, mut output) = (&bytes[seen.2..], Vec::new());
    loop {
        let (taken, step) = whole.step(rest, &directory, &mut output);
        rest = &rest[taken..];
        assert_ne!(step, Step::StartTls, "TLS is started once");
        if !matches!(step, Step::Continue) {
            return true;
        }
    }
}
