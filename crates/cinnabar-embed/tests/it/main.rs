//! The library as a program uses it: real files, real crashes.
//!
//! The crash tests call this program again, as the process that is killed.

mod crash;
mod degraded;
mod errors;
mod growing;
mod killed_replacing;
mod replacing;
mod rig;
mod server;
mod serving;

use libtest_mimic::{Arguments, Trial};

/// First argument of the process that is to be killed.
const CHILD: &str = "--be-killed";
/// The same, of the one that replaces its device meanwhile.
const CHILD_REPLACING: &str = "--be-killed-replacing";

type Test = fn() -> anyhow::Result<()>;

fn main() {
    let mut given = std::env::args_os().skip(1);
    let child: fn(&std::path::Path) = match given.next().and_then(|first| first.into_string().ok())
    {
        Some(first) if first == CHILD => crash::child,
        Some(first) if first == CHILD_REPLACING => killed_replacing::child,
        _ => return run(),
    };
    child(given.next().expect("its folder").as_ref());
}

fn run() {
    let tests: [(&str, Test); 32] = [
        ("what_is_read_is_what_was_written", serving::what_is_read_is_what_was_written),
        ("a_clean_end_starts_warm", serving::a_clean_end_starts_warm),
        ("many_at_a_time", serving::many_at_a_time),
        ("long_ranges_go_in_pieces", serving::long_ranges_go_in_pieces),
        ("invalidation_brings_what_others_wrote", serving::invalidation_brings_what_others_wrote),
        ("a_file_that_is_waited_for", serving::a_file_that_is_waited_for_holds_up_no_others),
        ("two_volumes_share", serving::two_volumes_share),
        ("a_handle_is_of_one_attaching", serving::a_handle_is_of_one_attaching),
        ("without_its_device_it_goes_on", degraded::without_its_device_it_goes_on),
        ("a_required_device_is_required", degraded::a_required_device_is_required),
        ("a_slow_backend_fails_in_time", degraded::a_slow_backend_fails_in_time),
        ("a_program_that_pauses", degraded::a_program_that_pauses_has_no_slow_disk),
        ("what_is_dropped_is_counted", degraded::what_is_dropped_is_counted),
        ("a_cache_that_is_dropped_is_warm", degraded::a_cache_that_is_dropped_is_warm),
        ("shards_share_their_probation", degraded::shards_share_their_probation),
        ("devices_that_can_not_be_used", errors::devices_that_can_not_be_used),
        ("two_at_once", errors::two_at_once),
        ("volumes_that_can_not_be_used", errors::volumes_that_can_not_be_used),
        ("requests_that_can_not_be_done", errors::requests_that_can_not_be_done),
        ("a_volume_grows", growing::a_volume_grows),
        ("a_volume_that_grew_survives_a_crash", growing::a_volume_that_grew_survives_a_crash),
        ("what_can_not_grow_says_so", growing::what_can_not_grow_says_so),
        ("a_volume_grows_without_its_device", growing::a_volume_grows_without_its_device),
        ("a_lost_device_is_replaced", replacing::a_lost_device_is_replaced),
        ("a_device_in_use_is_replaced", replacing::a_device_in_use_is_replaced),
        ("a_device_is_brought", replacing::a_device_is_brought_where_there_is_none),
        ("the_old_name_after_a_replacement", replacing::the_old_name_after_a_replacement),
        ("new_devices_that_can_not_be_used", replacing::new_devices_that_can_not_be_used),
        (
            "a_slow_server_holds_up_no_others",
            server::a_slow_server_that_is_measured_holds_up_no_others,
        ),
        ("what_a_server_lost_is_not_believed", server::what_a_server_lost_is_not_believed),
        (
            "killed_while_its_device_is_replaced",
            killed_replacing::killed_while_its_device_is_replaced,
        ),
        ("killed_at_any_moment_nothing_acknowledged_is_lost", crash::killed_at_any_moment),
    ];
    let trials = tests
        .into_iter()
        .map(|(name, test)| Trial::test(name, move || test().map_err(|e| format!("{e:?}").into())));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}
