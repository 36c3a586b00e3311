//! Lists of places on the command line: commas part them, and stand within some of them.

use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places(pub(super) Vec<String>);

impl FromStr for Places {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A file may be called what it likes.
        if std::path::Path::new(text).exists() {
            return Ok(Self(vec![text.to_owned()]));
        }
        let mut places: Vec<String> = Vec::new();
        let mut open = false;
        for piece in text.split(',') {
            match places.last_mut() {
                Some(last) if open => *last = [last.as_str(), piece].join(","),
                _ => places.push(piece.to_owned()),
            }
            open = places.last().is_some_and(|last| is_open(last));
        }
        if places.iter().any(String::is_empty) {
            return Err("a place is missing: a list is F,F,...".into());
        }
        Ok(Self(places))
    }
}

/// Whether the settings of `sim:` or `nbd` are still to be ended by a colon.
fn is_open(mut place: &str) -> bool {
    while let Some(settings) = place.strip_prefix("sim:") {
        match settings.split_once(':') {
            Some((_, behind)) => place = behind,
            None => return true,
        }
    }
    place.strip_prefix("nbd").is_some_and(|settings| {
        settings.is_empty() || (settings.starts_with(',') && !settings.contains(':'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_part_places_but_not_their_settings() {
        for (text, expected) in [
            ("a", vec!["a"]),
            ("a,b,/dev/c", vec!["a", "b", "/dev/c"]),
            ("sim:hdd,seed=1:file:a,b", vec!["sim:hdd,seed=1:file:a", "b"]),
            (
                "sim:hdd:sim:ssd,seed=1,depth=2:file:a,sim:hdd,seed=2:file:b",
                vec!["sim:hdd:sim:ssd,seed=1,depth=2:file:a", "sim:hdd,seed=2:file:b"],
            ),
            (
                "nbd,connections=2:unix:/s,nbd:unix:/t",
                vec!["nbd,connections=2:unix:/s", "nbd:unix:/t"],
            ),
            ("nbd+unix:///a?socket=s,nbd://h/e", vec!["nbd+unix:///a?socket=s", "nbd://h/e"]),
        ] {
            assert_eq!(text.parse::<Places>().expect("places").0, expected, "{text}");
        }
        for text in ["", "a,", ",a", "a,,b"] {
            assert!(text.parse::<Places>().is_err(), "{text}");
        }
    }
}
