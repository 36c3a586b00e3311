//! Names in paths of the API.

use std::fmt::Write as _;

/// A name as one segment of a path (RFC 3986, section 2.1).
pub fn escape(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ok = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn what_a_path_could_misread_is_escaped() {
        assert_eq!(escape("vm-1.a_b~"), "vm-1.a_b~");
        assert_eq!(escape("a b?c%\u{fc}/"), "a%20b%3Fc%25%C3%BC%2F");
    }
}
