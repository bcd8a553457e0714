//! What every store of limits must do, whatever it is made of. A store passes by a line such as
//! `store_suite!(memory, Memory);`.

mod batches;
mod calendar;
mod concurrency;
mod denied;
mod differential;
mod harness;
mod looks;
mod members;
mod model;
mod properties;
mod rates;
mod refunds;
mod rules;
mod settlements;
mod shadow;
mod shared;
mod sliding_window;
mod spoilt;
mod time;
mod vectors;

use std::sync::Arc;

pub(crate) use calendar::calendar as calendar_policy;
pub(crate) use harness::{
    ALGORITHMS, GCRA, Harness, MINUTE, SECOND, Subject, check as single_check, entry, policy, with,
};
pub(crate) use shared::{BehindSentinel, Clustered, InOneSlot, Shared};
use tollgate::{limit::ManualClock, store::memory::MemoryStore};

macro_rules! store_suite {
    ($name:ident, $subject:ty) => {
        mod $name {
            store_suite!(@tests $subject;
                rules::each_algorithm_admits_its_limit_and_no_more,
                rules::a_denial_changes_nothing_anywhere,
                rules::admission_takes_from_every_limit,
                rules::no_check_admits_without_state,
                rules::a_denied_request_shows_admitting_checks_as_they_stand,
                rules::the_cost_is_taken_whole_or_not_at_all,
                rules::a_cost_of_zero_only_looks,
                rules::a_cost_above_the_limit_is_denied_for_good,
                rules::checks_of_one_limit_add_up,
                rules::a_raised_or_lowered_limit_takes_effect_at_once,
                rules::all_tiers_hold,
                rules::policies_and_identifiers_are_apart,
                rules::counts_of_another_unit_are_apart,
                rules::a_reset_clears_a_limit_and_its_composites,
                rules::a_clear_affects_one_limit_alone,
                rules::metadata_lists_say_who_filled_them,
                time::retry_after_is_exact,
                time::reset_is_when_units_come_back,
                time::windows_are_half_open,
                time::time_that_runs_backward_frees_nothing,
                time::a_clock_that_jumped_forth_freezes_nothing,
                time::a_billion_over_366_days_is_exact,
                calendar::a_month_begins_and_ends_by_the_clock_of_its_zone,
                calendar::a_minute_and_a_month_hold_together,
                calendar::another_limit_shares_a_month_and_another_zone_does_not,
                calendar::a_month_is_refunded_until_it_ends,
                calendar::a_month_is_listed_and_reset,
                calendar::a_clock_that_is_set_refuses_nothing,
                concurrency::threads_take_exactly_the_budget,
                concurrency::threads_enter_up_to_the_limit,
                concurrency::threads_with_several_checks_neither_over_admit_nor_deadlock,
                properties::stores_agree_with_the_definition,
                rates::an_override_forgets_nothing_of_its_policy,
                rates::a_request_above_the_burst_waits_for_its_slot,
                rates::rates_agree_with_the_definition_at_any_scale,
                vectors::published_vectors_hold,
                sliding_window::a_burst_passes_and_a_long_one_does_not,
                sliding_window::steady_traffic_gets_nearly_all_of_it,
                sliding_window::a_bucket_leaves_a_window_after_its_end,
                sliding_window::each_horizon_gives_back_its_own,
                sliding_window::a_pause_of_any_length_empties_what_it_passes_over,
                sliding_window::horizons_are_counted_over_pauses_of_any_length,
                members::a_value_that_was_seen_always_passes,
                members::a_value_is_forgotten_a_window_after_it_was_last_seen,
                members::where_a_limit_was_lowered_as_many_values_must_leave,
                members::a_value_of_a_denied_request_is_not_noted,
                members::so_many_are_under_way_and_no_more,
                members::a_lease_is_given_back_by_its_token_and_by_no_other,
                members::a_lease_lasts_as_long_as_it_is_renewed,
                members::a_limit_of_one_is_a_lock,
                members::members_that_come_at_once_are_counted_together,
                members::members_of_a_clock_that_jumped_freeze_nothing,
                members::a_member_that_a_shadow_denies_is_not_noted,
                members::members_agree_with_the_definition,
                looks::a_look_says_what_is_decided_then_and_leaves_every_byte,
                shadow::a_shadow_never_denies_and_is_not_written_when_it_would,
                shadow::beside_a_shadow_that_would_deny_the_others_are_written,
                shadow::a_shadow_is_not_written_where_the_request_is_denied,
                denied::a_hammering_client_stays_denied,
                denied::the_newest_stay,
                denied::a_denial_is_counted_up_to_the_limit,
                denied::a_denied_cost_above_the_limit_is_not_counted,
                denied::only_the_check_that_denies_counts_it,
                denied::a_look_is_no_denial,
                denied::denials_and_admissions_that_come_at_once_add_up,
                refunds::a_refund_frees_units_of_that_request_alone,
                refunds::a_refund_frees_units_for_a_policy_without_count_too,
                refunds::a_request_whose_window_is_over_is_not_refunded,
                refunds::a_bucket_refunds_what_cannot_have_drained,
                refunds::all_that_a_request_took_is_refunded_at_once,
                refunds::each_tier_is_refunded_its_own,
                refunds::an_entry_that_is_refunded_is_off_the_list,
                refunds::a_refunded_value_was_not_seen,
                refunds::a_value_that_another_request_relies_on_stays,
                refunds::refunds_go_before_what_is_taken,
                refunds::a_clock_that_was_set_back_loses_no_refund,
                settlements::an_excess_is_one_limit_of_each_tier_at_most,
                settlements::settlements_agree_with_the_definition,
            );
        }
    };
    (@tests $subject:ty; $($module:ident::$rule:ident,)*) => {
        $(
            #[test]
            fn $rule() {
                super::$module::$rule::<$subject>();
            }
        )*
    };
}

/// `on_subjects!(a: server Shared, cluster Clustered);` runs `fn a<S: Subject>()` as the tests `a::server` and `a::cluster`.
macro_rules! on_subjects {
    ($test:ident: $($name:ident $subject:ident),*) => {
        mod $test {
            $(
                #[test]
                fn $name() {
                    super::$test::<crate::store::conformance::$subject>();
                }
            )*
        }
    };
}

use on_subjects;

pub(crate) struct Memory;

impl Subject for Memory {
    type Place = Arc<MemoryStore>;
    type Store = Arc<MemoryStore>;

    fn place(clock: Arc<ManualClock>) -> Arc<MemoryStore> {
        Arc::new(MemoryStore::new(10_000, clock))
    }

    fn store(place: &Arc<MemoryStore>) -> Arc<MemoryStore> {
        Arc::clone(place)
    }

    fn dump(place: &Arc<MemoryStore>) -> String {
        format!("{place:#?}")
    }
}

store_suite!(memory, super::Memory);
store_suite!(redis, super::Shared);
store_suite!(sentinel, super::BehindSentinel);
store_suite!(cluster, super::Clustered);
