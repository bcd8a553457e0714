//! A look: what would be decided, and nothing of it done.

use proptest::{collection::vec, prelude::*, sample::subsequence, test_runner::TestRunner};

use super::{
    Harness, Subject,
    differential::{CAST, IDENTIFIERS, Request, checks, policies},
    entry,
};

/// Requests, and how many microseconds pass before each.
fn requests() -> impl Strategy<Value = (Vec<usize>, Vec<(Request, i64)>)> {
    let cast = subsequence((0..policies().len()).collect::<Vec<_>>(), CAST);
    let cost = prop_oneof![40 => 0..3_u64, 4 => 3..14_u64, 1 => 998..1_003_u64, 1 => Just(u64::MAX)];
    let member = (0..5_u128).prop_map(|member| member << 120 | member);
    let request = (vec((0..CAST, 0..IDENTIFIERS.len(), cost), 1..5), member);
    let pause = prop_oneof![6 => Just(0_i64), 6 => 0..200_000_i64, 1 => 0..3_000_000_i64];
    (cast, vec((request, pause), 1..40))
}

/// Of all algorithms, of shadows, of policies that count what they deny or refund: `harness.look` sees to it that
/// nothing has changed.
pub(crate) fn a_look_says_what_is_decided_then_and_leaves_every_byte<S: Subject>() {
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 128,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let replay = |(cast, requests): (Vec<usize>, Vec<(Request, i64)>)| {
        let harness = Harness::<S>::new();
        let all = policies();
        let cast: Vec<_> = cast.iter().map(|&index| all[index].clone()).collect();
        let mut now = 0;
        for (number, (request, pause)) in requests.iter().enumerate() {
            now += pause;
            let entry = entry(i64::try_from(number).unwrap_or_default(), "acme");
            let checks = checks(&cast, request, &entry);
            let seen = harness.at(now).look(&checks);
            prop_assert_eq!(seen, harness.decide(&checks), "request {}", number);
        }
        Ok(())
    };
    runner.run(&requests(), replay).unwrap_or_else(|error| panic!("{error}"));
}
