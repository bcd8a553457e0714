//! What every store of limits must do, whatever it is made of. A store passes by a line such as
//! `store_suite!(memory, Memory);`.

mod batches;
mod concurrency;
mod differential;
mod harness;
mod model;
mod properties;
mod rates;
mod rules;
mod shared;
mod time;
mod vectors;

use std::sync::Arc;

pub(crate) use harness::{ALGORITHMS, GCRA, Harness, MINUTE, SECOND, Subject, entry, policy, with};
pub(crate) use shared::Shared;
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
                rules::a_reset_clears_a_limit_and_its_composites,
                rules::metadata_lists_say_who_filled_them,
                time::retry_after_is_exact,
                time::reset_is_when_units_come_back,
                time::windows_are_half_open,
                time::time_that_runs_backward_frees_nothing,
                time::a_clock_that_jumped_forth_freezes_nothing,
                time::a_billion_over_366_days_is_exact,
                concurrency::threads_take_exactly_the_budget,
                concurrency::threads_with_several_checks_neither_over_admit_nor_deadlock,
                properties::stores_agree_with_the_definition,
                rates::who_exceeds_the_burst_waits_for_his_place,
                rates::rates_agree_with_the_definition_at_any_scale,
                vectors::what_others_published_holds,
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
}

store_suite!(memory, super::Memory);
store_suite!(redis, super::Shared);
