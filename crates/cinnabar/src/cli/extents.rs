//! A list of extents in a file: a line each, or what `rbd diff` prints.

use cinnabar_text::Failure;
use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longest list, in bytes: a million extents.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Extent {
    pub(super) offset: u64,
    #[serde(rename = "length")]
    pub(super) len: u64,
}

/// Reads a list. Extents that touch or overlap become one; they come in order.
pub(super) fn read(path: &Path) -> Result<Vec<Extent>, Failure> {
    let shown = path.display();
    let failed = |message: String| {
        let hint = "a line for each extent: OFFSET LENGTH, in bytes; or what `rbd diff` prints, plain or as JSON";
        Failure::of_usage(format!("{shown}: {message}"), hint)
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(failed("it is longer than 64 MiB".to_owned()));
    }
    let extents = parse(&text).map_err(failed)?;
    if extents.is_empty() {
        return Err(failed("there is no extent in it".to_owned()));
    }
    Ok(extents)
}

fn parse(text: &str) -> Result<Vec<Extent>, String> {
    let mut extents: Vec<Extent> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text).map_err(|error| error.to_string())?
    } else {
        lines(text)?
    };
    for Extent { offset, len } in &extents {
        if *len == 0 || offset.checked_add(*len).is_none() {
            return Err(format!("{offset} {len}: no bytes, or beyond any volume"));
        }
    }
    extents.sort_unstable_by_key(|extent| extent.offset);
    let mut merged: Vec<Extent> = Vec::new();
    for extent in extents {
        match merged.last_mut() {
            Some(last) if extent.offset <= last.offset + last.len => {
                let end = (extent.offset + extent.len).max(last.offset + last.len);
                last.len = end - last.offset;
            }
            _ => merged.push(extent),
        }
    }
    Ok(merged)
}

fn lines(text: &str) -> Result<Vec<Extent>, String> {
    let mut extents = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        // The first line of `rbd diff`.
        if line.is_empty() || line.starts_with('#') || number == 1 && line.starts_with("Offset") {
            continue;
        }
        let mut fields = line.split_ascii_whitespace();
        let mut field = || fields.next()?.parse().ok();
        let extent = field().zip(field()).map(|(offset, len)| Extent { offset, len });
        let wrong = || {
            format!("line {number}: {:?} is no extent", line.chars().take(40).collect::<String>())
        };
        extents.push(extent.ok_or_else(wrong)?);
    }
    Ok(extents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(list: &[(u64, u64)]) -> Vec<Extent> {
        list.iter().map(|(offset, len)| Extent { offset: *offset, len: *len }).collect()
    }

    #[test]
    fn lists_are_read_as_people_and_rbd_write_them() {
        let plain =
            "Offset      Length   Type\n4194304     4194304  data\n0           4096     zero\n\n";
        assert_eq!(parse(plain), Ok(extents(&[(0, 4096), (4_194_304, 4_194_304)])));
        let json = r#"[{"offset":8192,"length":4096,"exists":"true"},{"offset":0,"length":1}]"#;
        assert_eq!(parse(json), Ok(extents(&[(0, 1), (8192, 4096)])));
        let own = "# touches and overlaps\n0 10\n10 5\n12 100\n200 1\n";
        assert_eq!(parse(own), Ok(extents(&[(0, 112), (200, 1)])));
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_list_is_refused_with_a_line() {
        let most = format!("{} 2", u64::MAX);
        for wrong in
            ["0", "0 x", "-1 5", "0 0", &most, "[{}]", "[1]", "[", "Length Offset", "\u{0}"]
        {
            let error = parse(wrong).expect_err(wrong);
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
