//! A hostile front-end and driver: messages, descriptors, rings, memory and notes of any kind, against
//! a host that answers in any order. No panic, no hang, no lost buffer, and the next guest is served.

#![no_main]

#[path = "../../crates/cinnabar-frontend/tests/it/memory.rs"]
mod memory;
#[path = "../../crates/cinnabar-frontend/tests/it/vhost_guest.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod vhost_guest;
#[path = "../../crates/cinnabar-frontend/tests/it/vhost_host.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod vhost_host;
#[path = "../../crates/cinnabar-frontend/tests/it/vhost_pair.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod vhost_pair;
#[path = "../../crates/cinnabar-frontend/tests/it/vhost_script.rs"]
mod vhost_script;

libfuzzer_sys::fuzz_target!(|script: &[u8]| vhost_script::play(script));
