//! A configuration that is read again by a daemon with a manager, and one that there is not.

use super::daemon::VM1;
use super::rig::{MIB, Site};
use serde_json::Value;

const VM2: &str = "[[volume]]\nname = \"vm2\"\nbackend = \"file:vm2.raw\"\n";

fn site(more: &str) -> Site {
    let site = Site::new();
    for disk in ["vm1.raw", "vm2.raw"] {
        site.disk(disk, 8 * MIB);
    }
    site.config(more);
    site
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("it is JSON")
}

#[test]
fn the_manager_takes_what_it_can_and_pins_stay() {
    let site = site(&format!("[manager]\ninterval_s = 3600\n{VM1}{VM2}"));
    let daemon = site.serve();
    site.ask(&["policy", "pin", "vm1", "25%"]);
    let allocator = || json(&site.ask(&["policy", "plan", "--json"]))["allocator"].clone();
    assert_eq!(allocator(), "urd");
    let more = "[manager]\ninterval_s = 60\nallocator = \"equal\"\nssd_budget = \"1TB/day\"\n";
    site.config(&format!("{more}{VM1}{VM2}"));
    let said = site.ask(&["reload"]);
    assert_eq!(
        said,
        "manager: allocator, ssd_budget changed\nmanager.interval_s: needs a restart\n"
    );
    assert_eq!(allocator(), "equal");
    let plan = json(&site.ask(&["policy", "plan", "--json"]));
    assert_eq!(plan["budget"]["bytes_per_day"], 1_000_000_000_000_u64, "{plan}");
    let pins = json(&site.ask(&["policy", "history", "--json"]))["pins"].clone();
    assert_eq!(pins[0]["volume"], "vm1", "{pins}");
    // An allocator by command stays while the file says the same.
    site.ask(&["policy", "plan", "--allocator", "centaur", "--apply"]);
    site.config(&format!("{more}step_percent = 50\n{VM1}{VM2}"));
    let said = site.ask(&["reload"]);
    assert!(said.starts_with("manager: step_percent changed\n"), "{said}");
    assert_eq!(allocator(), "centaur");
    site.config(&format!("[manager]\ninterval_s = 3600\n{VM1}{VM2}"));
    site.ask(&["reload"]);
    assert_eq!(allocator(), "urd");
    let plan = json(&site.ask(&["policy", "plan", "--json"]));
    assert!(plan["budget"].is_null(), "{plan}");
    daemon.stop();
}

#[test]
fn a_change_that_fails_has_a_code_and_a_hint() {
    let site = site(VM1);
    let daemon = site.serve();
    let lost = "[[volume]]\nname = \"lost\"\nbackend = \"file:lost.raw\"\n";
    site.config(&format!("{VM1}{lost}{VM2}"));
    let ended = site.run(&["reload"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("volume lost: not added: "), "{ended:?}");
    assert!(ended.stdout.contains("volume vm2: added\n"), "{ended:?}");
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(
        ended.stderr.contains("1 of 2 changes failed") && last.starts_with("hint: "),
        "{ended:?}"
    );
    site.disk("lost.raw", 8 * MIB);
    assert_eq!(site.ask(&["reload"]), "volume lost: added\n");
    assert!(site.ask(&["reload"]).ends_with("c.toml: nothing has changed\n"));
    daemon.stop();
}

#[test]
fn a_demonstration_has_nothing_to_read() {
    let site = Site::new();
    let mut demo = site.start(&mut site.command(&["serve", "--demo", "--dir", "."]));
    demo.wait_until("ready", || {
        super::http::get(&site.path("control.sock"), "/v1/ready").is_ok_and(|it| it.code == 200)
    });
    let ended = site.run(&["reload"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("has no configuration file"), "{ended:?}");
    demo.stop();
}
