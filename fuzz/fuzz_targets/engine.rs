#![no_main]
#![doc = "The fuzz target `engine`, whose findings have a story."]

libfuzzer_sys::fuzz_target!(init: cinnabar_fuzz::engine::keep_quiet(), |input: &[u8]| {
    cinnabar_fuzz::engine::run(input);
});
