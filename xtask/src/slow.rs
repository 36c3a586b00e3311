//! Tests that are put off: by program, until which tier.
//!
//! One that takes longer than some seconds is named here, or it is made quicker. Those that have found a
//! bug are in `ci`; what is left for `nightly` repeats, with more seeds or more clients, what a quicker one
//! does.

use crate::programs::{Program, list};
use crate::tier::Tier;
use anyhow::{Result, ensure};

/// Tests of a program that are put off.
#[derive(Debug)]
pub(crate) struct Slow {
    pub(crate) program: &'static str,
    /// Where they run.
    pub(crate) tier: Tier,
    pub(crate) tests: &'static [&'static str],
}

impl Slow {
    /// A name that no test has would put off nothing, and a test that was renamed would run too early.
    pub(crate) fn check(&self, program: &Program) -> Result<()> {
        let missing = self.missing(&list(program, None)?);
        ensure!(
            missing.is_empty(),
            "{} has no tests {missing:?} (xtask/src/slow.rs)",
            self.program
        );
        Ok(())
    }

    /// Which of them are not among those `there`.
    fn missing(&self, there: &[String]) -> Vec<&str> {
        self.tests.iter().copied().filter(|test| there.iter().all(|one| one != test)).collect()
    }
}

/// All of them.
pub(crate) const SLOW: &[Slow] = &[
    Slow {
        program: "cinnabar/it",
        tier: Tier::Ci,
        tests: &[
            "frozen::a_recording_does_not_wait_for_a_daemon_that_is_stopped",
            "frozen::commands_do_not_wait_for_a_daemon_that_is_stopped",
            "turning::a_silent_disk_is_no_thread_that_does_not_turn",
            "turning::a_thread_that_does_not_turn_is_told_to_the_service_manager",
        ],
    },
    Slow {
        program: "cinnabar-daemon",
        tier: Tier::Ci,
        tests: &[
            "dataplane::tests::clones::guests_read_what_they_wrote_last",
            "dataplane::tests::clones::so_do_guests_whose_writes_are_in_the_write_log",
            "dataplane::tests::crash::a_stop_or_a_crash_while_loading_costs_no_warmth",
            "dataplane::tests::crash::a_volume_that_has_grown_is_warm_after_a_crash",
            "dataplane::tests::crash::what_was_written_beyond_the_window_is_not_believed_unless_the_operator_says_so",
            "dataplane::tests::degrade::a_backend_that_hangs_fails_its_guests_in_time",
            "dataplane::tests::degrade::a_device_that_hangs_while_it_is_replaced_does_not_condemn_the_next",
            "dataplane::tests::degrade::what_waits_for_a_hanging_write_is_answered_in_its_own_time",
            "dataplane::tests::lost::a_stop_ends_what_waits_for_a_silent_device",
            "dataplane::tests::migrate::a_volume_goes_to_and_fro_and_nothing_is_lost_or_stale",
            "dataplane::tests::mirror::a_half_that_is_lost_is_replaced_by_an_empty_file",
            "dataplane::tests::mirror::a_mirror_is_filled_and_either_half_has_everything",
            "dataplane::tests::qos::a_limit_holds_and_changes_while_requests_wait",
            "dataplane::tests::renewal::a_back_end_that_fails_flushes_now_and_then_gets_everything",
            "dataplane::tests::silent::who_drops_a_range_is_answered_though_a_write_to_it_hangs",
            "dataplane::tests::silent::who_drops_a_range_is_answered_though_a_write_to_it_hangs_on_threads",
            "dataplane::tests::silent::who_drops_a_range_is_answered_though_a_write_to_it_hangs_with_shards",
            "dataplane::tests::starts::servers_that_say_nothing_keep_no_volume_from_being_served_for_good",
            "dataplane::tests::threads::a_client_that_reads_no_answers_holds_up_nobody",
            "dataplane::tests::threads::shards_are_loaded_side_by_side_and_found_warm",
            "dataplane::tests::threads::volumes_come_and_go_on_all_threads_while_others_serve",
            "dataplane::tests::vhost::a_write_of_a_connection_that_is_gone_never_lands_on_its_successors",
            "dataplane::tests::warm::a_back_end_that_others_change_makes_nothing_believed",
            "dataplane::tests::warm::a_damaged_block_is_left_out",
            "dataplane::tests::warm::a_stop_does_not_wait_for_the_other_host",
            "dataplane::tests::warm::answers_that_are_none_end_it_in_one_line",
            "dataplane::tests::warm::the_hit_ratio_is_soon_what_it_was",
            "dataplane::tests::leaving::one_whose_back_end_takes_nothing_stays_and_its_guest_goes_on",
            "dataplane::tests::warm::what_comes_along_never_overwrites_what_was_written_since",
            "dataplane::tests::write_back::a_slow_backend_is_waited_for_by_nobody",
        ],
    },
    Slow {
        program: "cinnabar-frontend/it",
        tier: Tier::Ci,
        tests: &[
            "long::a_hundred_mib_and_a_byte_are_written_and_read_at_any_place",
            "pressure::the_longest_write_can_be_read_back",
            "terminator::reload::a_certificate_that_will_not_do_changes_nothing",
            "terminator::sessions::handshakes_that_stall_are_bounded_and_end",
            "vhost_migration::a_guest_arrives_as_it_was_whatever_happens_meanwhile",
            "vhost_migration::a_mark_never_comes_before_what_it_is_for",
        ],
    },
    Slow {
        program: "cinnabar-lab/it",
        tier: Tier::Ci,
        tests: &[
            "analyze::self_loop4_wants_opposite_policies",
            "analyze::thousands_of_volumes_make_a_page_that_opens",
            "replay::the_desktop_experiment",
            "simulate_hits::output_does_not_depend_on_threads",
            "simulate_holland::the_same_seed_gives_the_same_run_on_any_number_of_cores_and_another_seed_another",
            "simulate_timed::a_killed_sweep_goes_on",
            "spc1::a_second_run_begins_with_what_the_first_one_left",
            "spc1::an_asu_may_be_many_files_whose_odd_ends_are_left_alone",
            "spc1::bad_input::it_is_one_line_and_costs_nothing",
            "spc1::bad_input::storage_that_somebody_else_uses_is_left_alone",
            "spc1::maximum::a_cache_raises_it_and_the_ratio_says_by_how_much",
            "spc1::without_a_cache_all_that_is_asked_reaches_the_storage",
            "trace_bad::damage_of_every_format_is_placed_by_every_command",
            "trace_commands::generators_make_what_info_finds",
        ],
    },
    Slow {
        program: "cinnabar-sim/it",
        tier: Tier::Ci,
        tests: &[
            "engine::no_seed_breaks_a_promise",
            "faults::every_bound_is_run_into_in_a_hundred_seeds",
            "faults::frontends_that_replay_too_little_or_too_much_are_found",
            "faults::no_seed_breaks_a_promise_and_every_fault_fires",
            "faults::no_seed_breaks_a_promise_while_backend_io_waits_for_its_turn",
            "faults::regressions_stay_fixed",
            "mutants::each_mutant_is_found_at_its_seed_and_only_the_mutant_is",
            "mutants::each_mutant_of_regions_is_found_at_its_seed",
            "oracle::broken_doubles_are_caught",
            "oracle::sound_doubles_pass",
            "pairs::nothing_impossible_is_met",
            "regions::no_seed_breaks_a_promise_beside_active_regions",
        ],
    },
    Slow {
        program: "cinnabar-study/it",
        tier: Tier::Ci,
        tests: &[
            "compare::engine::nobody_holds_more_than_the_share",
            "compare::whole::the_same_whatever_the_number_of_threads",
            "endurance::a_load_that_wants_three_budgets_writes_one",
            "golden_sampling::a_sample_of_8192_blocks_has_the_curves_of_all",
            "hit_ratio::each_price_of_flash_writes_does_what_its_name_says",
            "hit_ratio::get_or_insert_self_loop4",
            "hit_ratio::plain_clock_self_loop4",
            "hit_ratio::reads_and_writes_cp_vscsi",
            "hit_ratio::reads_and_writes_self_loop4",
            "hit_ratio::the_engine_is_not_much_worse_than_the_best_simple_cache_at_any_size",
            "hits::a_misaligned_guest_costs_few_misses",
            "hits::any_number_of_threads_counts_the_same",
            "large_log::what_is_read_in_order_leaves_in_order",
            "managed::a_scan_costs_its_neighbours_at_most_two_percent_of_their_hits",
            "managed::shares_follow_a_shift_within_two_intervals",
            "shares::a_quiet_volume_keeps_its_hits_under_its_minimum",
            "shares::minimums_beyond_the_bound_are_cut_back",
            "shares::the_steady_state_is_what_the_shares_say",
            "timed_cinnabar::every_policy_of_ram_and_every_queue_runs_to_its_end",
            "timed_cinnabar::hits_on_a_real_disk_are_those_of_the_engine_by_itself",
            "timed_cinnabar::same_settings_and_seed_give_the_same_digest",
            "timed_cinnabar::writes_take_other_hosts_copies",
        ],
    },
    Slow {
        program: "cinnabar-study/it",
        tier: Tier::Nightly,
        tests: &[
            "compare::engine_model::the_model_is_near_the_engine_on_generated_guests",
            "compare::engine_model::the_model_is_near_the_engine_on_recorded_guests",
            "holland::the_six_published_results_hold_and_the_tables_are_met",
            "sixteen::servers_are_used_again_as_their_kind_says",
            "spc1::it_hits_about_as_lru_does_and_spares_the_back_end",
            "spc1_published::clock_hits_as_published",
            "spc1_published::lru_hits_as_published",
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::{SLOW, Slow};
    use crate::tier::Tier;

    #[test]
    fn a_test_that_is_gone_is_missed() {
        let slow = Slow { program: "x", tier: Tier::Ci, tests: &["a::b", "a::c"] };
        assert_eq!(slow.missing(&["a::b".to_owned(), "a::cc".to_owned()]), ["a::c"]);
    }

    #[test]
    fn a_program_stands_once_in_each_tier_and_a_test_once() {
        for (at, slow) in SLOW.iter().enumerate() {
            assert_ne!(slow.tier, Tier::Quick);
            let mut later = SLOW[at + 1..].iter().filter(|other| other.program == slow.program);
            let twice = later.any(|other| {
                other.tier == slow.tier || other.tests.iter().any(|test| slow.tests.contains(test))
            });
            assert!(!twice, "{}", slow.program);
        }
    }
}
