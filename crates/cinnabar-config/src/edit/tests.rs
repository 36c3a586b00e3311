//! What an edit changes, and that it changes nothing else.

use super::*;

const FILE: &str = r#"# The cache of host 7.
[cache]
device = "cache.img"   # on the NVMe
size = "1GiB"

# Volumes: ask storage before a change.

# The data base.
[[volume]]
name = "vm1"
backend = "file:vm1.raw"
mode = "write-around"  # until the upgrade
iops_limit = 500

# The web server.
[[volume]]
  name = "vm2"
  backend = "file:vm2.raw"

[[qos_group]]
name = "nas"
depth = 32
# The end.
"#;

fn input(name: &str) -> VolumeInput {
    let (name, backend) = (name.to_owned(), format!("file:/srv/{name}.raw"));
    VolumeInput { name, backend, ..VolumeInput::default() }
}

fn change(text: &str, edit: &Edit) -> String {
    let after = edited(text, edit, Path::new("/base")).expect("it can be done");
    let path = Path::new("/base/c.toml");
    crate::of_text(path, after.clone()).unwrap_or_else(|error| panic!("{error}: {after}"));
    after
}

#[test]
fn a_volume_is_added_behind_the_others_with_what_it_needs() {
    // As the command line sends it, with every default.
    let input = VolumeInput {
        mode: Some("write-through".into()),
        share_min: Some("0".into()),
        share_max: Some("50%".into()),
        nbd: Some("unix:/base/vm3.sock".into()),
        socket_mode: Some("0660".into()),
        read_only: true,
        bypass_sequential: Some("16MiB".into()),
        backend_timeout_s: Some(0),
        iops_limit: Some(0),
        iops_weight: Some(200),
        ..input("vm3")
    };
    let after = change(FILE, &Edit::Add(Box::new(input.clone())));
    let section = "\n[[volume]]\nname = \"vm3\"\nbackend = \"file:/srv/vm3.raw\"\n\
        share_max = \"50%\"\nread_only = true\niops_weight = 200\n";
    let at = after.find(section).unwrap_or_else(|| panic!("{after}"));
    assert_eq!(after.replacen(section, "", 1), FILE);
    assert!(after[..at].contains("vm2.raw") && after[at..].contains("[[qos_group]]"));
    let config = crate::of_text(Path::new("/base/c.toml"), after).expect("it is right");
    let found = &config.volumes[2];
    assert_eq!(Ok(found.clone()), input.check(Path::new("/base")));
}

#[test]
fn a_file_without_volumes_gets_its_first() {
    let cache = "[cache]\ndevice = \"c\"\nsize = \"1GiB\"";
    for (before, expected) in [
        (cache.to_owned(), format!("{cache}\n\n[[volume]]\nname")),
        (format!("{cache}\n# end\n"), format!("{cache}\n\n[[volume]]\nname")),
        ("cache.device = \"c\"\n".to_owned(), "cache.device = \"c\"\n\n[[volume]]\n".to_owned()),
    ] {
        let after = change(&before, &Edit::Add(Box::new(input("a"))));
        assert!(after.starts_with(&expected), "{after}");
        assert_eq!(before.contains("# end"), after.contains("# end"), "{after}");
    }
}

#[test]
fn keys_are_changed_where_they_stand() {
    let keys = vec![
        ("mode", Setting::Text("pass-through".into())),
        ("iops_limit", Setting::Number(0)),
        ("share_min", Setting::Text("10%".into())),
    ];
    let after = change(FILE, &Edit::Set { name: "vm1".into(), keys });
    let expected = FILE
        .replace("\"write-around\"  # until", "\"pass-through\"  # until")
        .replace("iops_limit = 500\n", "iops_limit = 0\nshare_min = \"10%\"\n");
    assert_eq!(after, expected);
    let edit = Edit::Set { name: "vm9".into(), keys: Vec::new() };
    let error = edited(FILE, &edit, Path::new("/base")).expect_err("there is none");
    assert!(error.message.contains("\"vm9\"") && error.hint.contains("reload"), "{error:?}");
}

#[test]
fn a_volume_goes_with_its_own_comment_only() {
    let after = change(FILE, &Edit::Remove("vm1".into()));
    let own = "\n# The data base.\n[[volume]]\nname = \"vm1\"\nbackend = \"file:vm1.raw\"\n\
        mode = \"write-around\"  # until the upgrade\niops_limit = 500\n";
    assert_eq!(after, FILE.replacen(own, "", 1));
    // The last one: what stands above another goes to the end.
    let after = change(&after, &Edit::Remove("vm2".into()));
    assert!(!after.contains("[[volume]]") && !after.contains("web server"), "{after}");
    for kept in ["# Volumes: ask storage", "# The cache of host 7.", "# The end.", "depth = 32"] {
        assert!(after.contains(kept), "{kept}: {after}");
    }
    assert_eq!(change(&after, &Edit::Remove("vm1".into())), after);
}

#[test]
fn a_list_in_one_line_is_changed_as_well() {
    let file = "volume = [{ name = \"a\", backend = \"file:a\" }]\n[cache]\ndevice = \"c\"\n";
    let after = change(file, &Edit::Add(Box::new(input("b"))));
    let after = change(
        &after,
        &Edit::Set { name: "b".into(), keys: vec![("mode", Setting::Text("pass-through".into()))] },
    );
    let after = change(&after, &Edit::Remove("a".into()));
    let config = crate::of_text(Path::new("/base/c.toml"), after.clone()).expect(&after);
    let [volume] = config.volumes.as_slice() else { panic!("{after}") };
    assert_eq!(volume.name, "b");
    assert_eq!(volume.mode, crate::settings::VolumeMode::PassThrough);
}

#[test]
fn what_is_no_toml_is_refused() {
    assert!(edited("[cache\n", &Edit::Remove("a".into()), Path::new("/")).is_err());
}

/// Seeds are whole numbers up to 2^64 - 1, which TOML does not know.
#[test]
fn what_an_editor_has_to_do_is_named() {
    let text = format!("[manager]\nseed = {}\n[[volume]]\nname = \"v\"\n", u64::MAX);
    let error = edited(&text, &Edit::Remove("v".into()), Path::new("/"));
    let error = error.expect_err("it would be lost");
    assert!(error.message.contains("line 2") && error.hint.contains("editor"), "{error:?}");
    let keys = vec![("iops_limit", Setting::Number(u64::MAX))];
    let edit = Edit::Set { name: "v".into(), keys };
    let error = edited("[[volume]]\nname = \"v\"\n", &edit, Path::new("/"));
    let error = error.expect_err("it would be another number");
    assert!(error.message.contains("iops_limit"), "{error:?}");
}
