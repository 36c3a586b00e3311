#![no_main]
#![doc = "The fuzz target `nbd_transmission`."]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    cinnabar_fuzz::nbd_transmission::run(input);
});
