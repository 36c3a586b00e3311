//! A hostile front-end and driver: messages, descriptors, rings, memory and notes of any kind, against
//! a host that answers in any order. No panic, no hang, no lost buffer, and the next guest is served.

use crate::frontend::vhost_script::play;

/// Plays a script; whether a request of its came to the disk.
pub fn run(script: &[u8]) -> bool {
    play(script) > 0
}
