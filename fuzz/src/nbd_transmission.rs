//! A connection that entered an export: no panic, no lost buffer, and the same however it is cut.

use crate::frontend::life::Life;
use crate::input::Input;
use cinnabar_frontend::nbd::handshake::Agreed;

/// What was agreed on (two flags), where the connection is cut (`u16`), and its bytes; whether something was asked.
///
/// # Panics
/// When an input breaks one of these promises.
pub fn run(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let (structured, block_status, cut) = (input.flag(), input.flag(), input.u16());
    let bytes = input.rest();
    let agreed = Agreed { structured, block_status: structured && block_status };
    let (head, tail) = bytes.split_at(usize::from(cut).min(bytes.len()));
    let whole = Life::run_entered(agreed, &[bytes]);
    assert_eq!(whole, Life::run_entered(agreed, &[head, tail]));
    whole.0.iter().any(|step| step != "end")
}
