#![no_main]
#![doc = "The fuzz target `nbd_client`."]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    cinnabar_fuzz::nbd_client::run(input);
});
