//! A connection that entered an export: no panic, no lost buffer, and the same however it is cut.

#![no_main]

#[path = "../../crates/cinnabar-frontend/tests/it/life.rs"]
mod life;
#[path = "../../crates/cinnabar-frontend/tests/it/memory.rs"]
mod memory;
#[path = "../../crates/cinnabar-frontend/tests/it/sample.rs"]
mod sample;

use cinnabar_frontend::nbd::handshake::Agreed;

libfuzzer_sys::fuzz_target!(|input: (bool, bool, u16, &[u8])| {
    let (structured, block_status, cut, bytes) = input;
    let agreed = Agreed { structured, block_status: structured && block_status };
    let (head, tail) = bytes.split_at(usize::from(cut).min(bytes.len()));
    let whole = life::Life::run_entered(agreed, &[bytes]);
    assert_eq!(whole, life::Life::run_entered(agreed, &[head, tail]));
});
