//! The operator's token: a file that nobody else can read.

use std::hint::black_box;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Shortest token, in bytes.
pub(crate) const TOKEN_BYTES_MIN: usize = 16;
/// Longest.
const TOKEN_BYTES_MAX: usize = 1024;

/// What a change over HTTP needs.
pub struct Token(Vec<u8>);

/// Why a file is not a token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It cannot be read.
    #[error("it can't be read: {0}")]
    Io(#[from] io::Error),
    /// It is a folder, a pipe, a device.
    #[error("it is not a file")]
    NotAFile,
    /// Other accounts may use it.
    #[error("its mode is {0:04o}: other accounts may use it")]
    Mode(u32),
    /// Another account could change it.
    #[error("it belongs to account {0}")]
    Owner(u32),
    /// It is too short to be a secret, or too long for a header.
    #[error("the token has {0} bytes")]
    Length(usize),
    /// A header could not hold it.
    #[error("the token has other characters than visible ASCII")]
    Characters,
}

impl TokenError {
    /// A line that helps.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Mode(_) => "chmod 0600 it; if others may have read it, make another token",
            Self::Owner(_) => "chown it to the daemon's account or root",
            Self::Length(_) => "choose 16 to 1024 bytes: openssl rand -hex 32",
            Self::Io(_) | Self::NotAFile | Self::Characters => {
                "make one: (umask 077; openssl rand -hex 32 > FILE), owned by the daemon's account"
            }
        }
    }
}

impl Token {
    /// The value of the header that brings it to another daemon.
    pub fn header(&self) -> String {
        format!("Bearer {}", String::from_utf8_lossy(&self.0))
    }

    /// Reads a token: the file's content without the white space around it.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        // A pipe without a writer would be waited for.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        // Of the very file that is read, whatever the path names by now.
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(TokenError::NotAFile);
        }
        let mode = metadata.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(TokenError::Mode(mode));
        }
        let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
        if owner != own && owner != 0 {
            return Err(TokenError::Owner(owner));
        }
        let mut text = Vec::new();
        // One more than may be there, white space aside.
        let most = 2 * TOKEN_BYTES_MAX;
        file.take(most as u64).read_to_end(&mut text)?;
        if text.len() == most {
            return Err(TokenError::Length(most));
        }
        let token = text.trim_ascii();
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
            return Err(TokenError::Length(token.len()));
        }
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err(TokenError::Characters);
        }
        Ok(Self(token.to_vec()))
    }

    /// Whether this is the token. The time that this takes depends on the length of `given` only.
    pub fn is(&self, given: &[u8]) -> bool {
        let mut differ = u8::from(self.0.len() != given.len());
        for (byte, own) in given.iter().zip(self.0.iter().cycle()) {
            differ |= black_box(byte ^ own);
        }
        black_box(differ) == 0
    }
}

impl std::fmt::Debug for Token {
    /// Without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    fn read(content: &[u8], mode: u32) -> Result<Token, TokenError> {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("token");
        write(&path, content).expect("it is ours");
        set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
        Token::read(&path)
    }

    #[test]
    fn a_token_is_a_private_file_of_visible_characters() {
        let token = read(b"0123456789abcdef\n", 0o600).expect("16 bytes and a line's end");
        assert!(token.is(b"0123456789abcdef"));
        read(b"0123456789abcdef", 0o400).expect("the owner need not write it");
        read(&[b'x'; 1024], 0o600).expect("the longest");
        for mode in [0o640, 0o604, 0o660, 0o601, 0o644] {
            let error = read(b"0123456789abcdef", mode).expect_err("others may read it");
            assert!(matches!(error, TokenError::Mode(_)), "{mode:o}: {error}");
        }
        // Only its begin would be looked at.
        let long = [&b"0123456789abcdef"[..], &[b' '; 4096], b"and more"].concat();
        for content in
            [&b""[..], b"\n", b"0123456789abcde", b" 0123456789abcde\n", &[b'x'; 1025], &long]
        {
            let error = read(content, 0o600).expect_err("too short or too long");
            assert!(matches!(error, TokenError::Length(_)), "{content:?}: {error}");
        }
        for content in [&b"0123456789 abcdef"[..], b"0123456789\nabcdef", b"0123456789abcde\xFF"] {
            let error = read(content, 0o600).expect_err("not for a header");
            assert!(matches!(error, TokenError::Characters), "{content:?}: {error}");
        }
        let dir = tempfile::tempdir().expect("a temporary folder");
        assert!(matches!(Token::read(dir.path()), Err(TokenError::NotAFile)));
        assert!(matches!(Token::read(&dir.path().join("none")), Err(TokenError::Io(_))));
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = read(b"0123456789abcdef", 0o600).expect("it is fine");
        for given in [
            &b""[..],
            b"0",
            b"0123456789abcde",
            b"0123456789abcdef0",
            b"0123456789abcdef0123456789abcdef",
            b"0123456789abcdeg",
            b"1123456789abcdef",
            b"0123456789ABCDEF",
        ] {
            assert!(!token.is(given), "{given:?}");
        }
        assert!(!format!("{token:?}").contains("0123"));
    }
}
