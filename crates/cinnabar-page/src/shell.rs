//! Words of a command line, quoted so that a shell reads each as one word and nothing else.

/// As `sh` reads it.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._/:=+%@,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A name in the place of an argument: one that begins with a hyphen is no option.
pub(crate) fn argument(name: &str) -> String {
    let quoted = quote(name);
    if name.starts_with('-') { format!("-- {quoted}") } else { quoted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_one_word() {
        assert_eq!(quote("vm-1"), "vm-1");
        assert_eq!(quote("25%"), "25%");
        assert_eq!(quote("a b"), "'a b'");
        assert_eq!(quote("$(reboot)'x"), "'$(reboot)'\\''x'");
        assert_eq!(quote(""), "''");
        assert_eq!(argument("--force"), "-- --force");
    }
}
