//! The parent of a volume that is a clone: a read-only volume, whose cached blocks it reads.

use crate::error::SettingError;
use crate::settings::VolumeConfig;
use cinnabar_backend::BackendSpec;
use cinnabar_backend::spec::Place;
use cinnabar_engine::limits::NAME_BYTES_MAX;
use std::path::Path;

/// Checks what can be checked of a clone alone.
///
/// # Errors
/// Its back end can't say what it has itself, or nobody writes it.
pub fn read_parent(
    parent: Option<&str>,
    name: &str,
    backend: &str,
    read_only: bool,
) -> Result<Option<String>, SettingError> {
    let Some(parent) = parent else { return Ok(None) };
    let wrong = |message: String, hint: &str| Err(SettingError::new("parent", message, hint));
    if parent.is_empty() || parent.len() > NAME_BYTES_MAX {
        return wrong(
            format!("parent: {parent:?} is no name of a volume"),
            "name the read-only volume",
        );
    }
    if parent == name {
        return wrong("a volume can't be its own parent".into(), "name the read-only volume");
    }
    // What is wrong with the back end itself is told elsewhere.
    let place = BackendSpec::parse(backend, Path::new("/")).map(|spec| spec.place);
    let clones = match place {
        Ok(Place::Rbd(image)) => image.snap.is_none(),
        Ok(_) => false,
        Err(_) => true,
    };
    if !clones || read_only {
        let message = "parent is for RBD images that are clones and are written: nothing else can say \
                       which of its blocks are its own";
        let hint = "leave parent out; a qcow2 overlay over a read-only volume shares its cached blocks, \
                    too";
        return wrong(message.into(), hint);
    }
    Ok(Some(parent.to_owned()))
}

/// Checks that the parent of a volume, if it has one, is another configured volume that can be one.
///
/// # Errors
/// It is not there, is written, or has a parent itself.
pub fn check_parent(volume: &VolumeConfig, all: &[VolumeConfig]) -> Result<(), SettingError> {
    let Some(name) = &volume.parent else { return Ok(()) };
    let wrong = |message: String, hint: &str| Err(SettingError::new("parent", message, hint));
    match all.iter().find(|other| other.name == *name) {
        None => wrong(format!("there is no volume {name:?}"), "add a [[volume]] of that name"),
        Some(parent) if !parent.read_only => wrong(
            format!("volume {name:?} is written, so that it can't be a parent"),
            "name a volume with read_only = true on a snapshot",
        ),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_writable_image_has_a_parent() {
        let read =
            |parent, backend, read_only| read_parent(Some(parent), "vm1", backend, read_only);
        assert_eq!(read("golden", "rbd:a/vm1", false), Ok(Some("golden".into())));
        assert_eq!(read("golden", "sim:hdd:rbd:a/vm1", false), Ok(Some("golden".into())));
        for (parent, backend, read_only, part) in [
            ("golden", "file:vm1.raw", false, "RBD images"),
            ("golden", "nbd:unix:a.sock", false, "RBD images"),
            ("golden", "rbd:a/vm1@snap", false, "RBD images"),
            ("golden", "rbd:a/vm1", true, "RBD images"),
            ("vm1", "rbd:a/vm1", false, "its own parent"),
            ("", "rbd:a/vm1", false, "no name of a volume"),
        ] {
            let error = read(parent, backend, read_only).expect_err(backend);
            assert!(error.message.contains(part) && error.key == "parent", "{error:?}");
            assert!(!error.hint.is_empty());
        }
        assert_eq!(read_parent(None, "vm1", "file:vm1.raw", false), Ok(None));
    }
}
