#![no_main]
#![doc = "The fuzz target `nbd_handshake`."]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    cinnabar_fuzz::nbd_handshake::run(input);
});
