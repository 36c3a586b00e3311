//! Random scripts of a hostile front-end; the fuzz target `vhost_user` looks for clever ones.

use crate::vhost_script::play;

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
