#![no_main]
#![doc = "The fuzz target `vhost_user`."]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    cinnabar_fuzz::vhost_user::run(input);
});
