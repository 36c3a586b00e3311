#![no_main]
#![doc = "The fuzz target `nbd_tls`."]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    cinnabar_fuzz::nbd_tls::run(input);
});
