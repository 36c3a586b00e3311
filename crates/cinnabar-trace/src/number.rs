//! Numbers as traces write them: digits only, neither sign nor blank within, which `str::parse` would
//! partly let pass.

use crate::error::Problem;

/// A number of digits only.
pub(crate) fn number(text: &[u8], name: &'static str) -> Result<u64, Problem> {
    digits(text).ok_or(Problem::Number(name))
}

/// The value of digits, if it fits.
pub(crate) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |value, &byte| {
        let digit = byte.checked_sub(b'0').filter(|&digit| digit <= 9)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}
