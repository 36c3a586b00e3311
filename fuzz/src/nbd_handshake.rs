//! A connection from its first byte: no panic, no lost buffer, and the same however it is cut.

use crate::frontend::life::Life;
use crate::input::Input;

/// Where the connection is cut (`u16`), and its bytes; whether an export was found.
///
/// # Panics
/// When an input breaks one of these promises.
pub fn run(input: &[u8]) -> bool {
    let mut input = Input::new(input);
    let (cut, bytes) = (input.u16(), input.rest());
    let (head, tail) = bytes.split_at(usize::from(cut).min(bytes.len()));
    let whole = Life::run(&[bytes]);
    assert_eq!(whole, Life::run(&[head, tail]));
    whole.0.iter().any(|step| step.starts_with("Enter"))
}
