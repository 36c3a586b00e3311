//! Random scripts of a hostile front-end; the fuzz target of the same name looks for clever ones.

use crate::vhost_script::play;

#[test]
fn no_seed_of_the_fuzz_target_breaks_the_host() {
    let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/vhost_user");
    let files = std::fs::read_dir(seeds).expect("the tree keeps them");
    for file in files {
        play(&std::fs::read(file.expect("listed").path()).expect("readable"));
    }
}

#[test]
fn no_script_breaks_the_host() {
    let mut random = 1_u64;
    let mut draw = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for _ in 0..300 {
        let len = draw() % 600;
        let script: Vec<u8> = (0..len).map(|_| (draw() >> 32) as u8).collect();
        play(&script);
    }
}
