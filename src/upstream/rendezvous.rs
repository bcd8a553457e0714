//! Weighted rendezvous hashing: maps each key to one of several places.
//!
//! Each place has a score for each key, and the highest score wins. If a place is removed, its keys move to the places
//! with the next highest scores; a new place takes its own keys. No other key moves. The scores depend only on the
//! texts and the weights, so all instances agree, in any order of places.

use xxhash_rust::xxh3::xxh3_64;

/// The hash of a key, or of the text that names a place. It is the same in all versions.
pub(super) fn hash(text: &[u8]) -> u64 {
    xxh3_64(text)
}

/// The score of a place for a key, both given as their [`hash`]. Of several places, each wins a share of all keys in
/// proportion to its weight.
pub(super) fn score(key: u64, place: u64, weight: f64) -> f64 {
    let mut both = [0; 16];
    both[..8].copy_from_slice(&key.to_le_bytes());
    both[8..].copy_from_slice(&place.to_le_bytes());
    // With 52 bits, half a step is exact, too: the result is neither 0 nor 1.
    let steps = (1_u64 << 52) as f64;
    let uniform = ((xxh3_64(&both) >> 12) as f64 + 0.5) / steps;
    -weight / uniform.ln()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The place of a key.
    fn place(key: u64, places: &[(String, f64)]) -> &str {
        let scored = places.iter().map(|(name, weight)| (score(key, hash(name.as_bytes()), *weight), name));
        scored.max_by(|(one, _), (other, _)| one.total_cmp(other)).unwrap().1
    }

    fn places(weights: &[u32]) -> Vec<(String, f64)> {
        let place = |(nth, &weight)| (format!("http://10.0.0.{nth}:3000"), f64::from(weight));
        weights.iter().enumerate().map(place).collect()
    }

    fn keys(count: u32) -> impl Iterator<Item = u64> {
        (0..count).map(|nth| hash(format!("ip:198.51.{}.{}", nth / 256, nth % 256).as_bytes()))
    }

    #[test]
    fn keys_belong_where_earlier_versions_have_put_them() {
        let places = places(&[1, 2, 1]);
        let owners: String = keys(24).map(|key| place(key, &places).as_bytes()[14] as char).collect();
        assert_eq!(hash(b"ip:198.51.100.7"), 0x8b00_29a8_2d1e_a19b);
        assert_eq!(owners, "212111111102212011102211");
    }

    #[test]
    fn every_score_is_a_positive_number() {
        for key in keys(10_000) {
            let score = score(key, hash(b"http://10.0.0.1:3000"), 1.0);
            assert!(score.is_finite() && score > 0.0, "{score}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn places_win_keys_by_their_weights(weights in prop::collection::vec(1_u32..10, 1..8)) {
            const KEYS: u32 = 20_000;
            let places = places(&weights);
            let total: u32 = weights.iter().sum();
            for (name, weight) in &places {
                let won = keys(KEYS).filter(|&key| place(key, &places) == name).count() as f64;
                let (share, keys) = (weight / f64::from(total), f64::from(KEYS));
                let deviation = (keys * share * (1.0 - share)).sqrt();
                prop_assert!((won - keys * share).abs() <= 6.0 * deviation, "{}: {} of {}", name, won, keys);
            }
        }

        #[test]
        fn of_a_place_that_goes_only_its_keys_move_and_in_any_order(
            weights in prop::collection::vec(1_u32..10, 2..12),
            gone: prop::sample::Index,
        ) {
            let before = places(&weights);
            let mut after = before.clone();
            let (gone, _) = after.remove(gone.index(before.len()));
            after.reverse();
            for key in keys(2_000) {
                let owner = place(key, &before);
                prop_assert!(owner == gone || owner == place(key, &after));
            }
        }

        #[test]
        fn a_place_that_gains_weight_takes_keys_and_no_other_does(
            weights in prop::collection::vec(1_u32..10, 2..12),
            grown: prop::sample::Index,
        ) {
            let before = places(&weights);
            let mut after = before.clone();
            let grown = grown.index(before.len());
            after[grown].1 *= 1.5;
            for key in keys(2_000) {
                let owner = place(key, &after);
                prop_assert!(owner == before[grown].0 || owner == place(key, &before));
            }
        }
    }
}
