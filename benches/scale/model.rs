//! What a call costs, as it was measured.

use std::{fs, path::PathBuf};

use serde::{Deserialize, Serialize};

/// Of one algorithm, on one machine. Times are in nanoseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Model {
    /// Redis' CPU time when it is woken.
    pub(crate) wake: f64,
    /// For each call.
    pub(crate) call: f64,
    /// For each decision.
    pub(crate) decision: f64,
    /// How many times as much a node of a cluster takes for all of it.
    pub(crate) cluster: f64,
    /// Half of what a call takes beyond that, at even shares from the shortest to the longest.
    pub(crate) one_way: Vec<i64>,
}

impl Model {
    pub(crate) fn file() -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/scale/model.json"))
    }

    pub(crate) fn read() -> Self {
        serde_json::from_str(&fs::read_to_string(Self::file()).unwrap()).unwrap()
    }

    pub(crate) fn write(&self) {
        fs::write(Self::file(), serde_json::to_string(self).unwrap() + "\n").unwrap();
    }

    /// How long Redis works on a call.
    pub(crate) fn service(&self, decisions: usize, is_woken: bool) -> i64 {
        let wake = if is_woken { self.wake } else { 0.0 };
        (self.cluster * (wake + self.call + self.decision * decisions as f64)) as i64
    }

    pub(crate) fn one_way(&self, random: &mut fastrand::Rng) -> i64 {
        random.choice(&self.one_way).copied().unwrap_or_default()
    }
}

/// The cost of one of each that explains the measured totals best: the sum of squared relative errors is the least.
pub(crate) fn fit(rows: &[([f64; 3], f64)]) -> [f64; 3] {
    let mut matrix = [[0.0; 4]; 3];
    for (counts, total) in rows {
        for (row, count) in matrix.iter_mut().zip(counts) {
            for (cell, other) in row.iter_mut().zip(counts.iter().chain([total])) {
                *cell += count * other / (total * total);
            }
        }
    }
    // Gauss and Jordan.
    for pivot in 0..3 {
        let scale = matrix[pivot][pivot];
        matrix[pivot].iter_mut().for_each(|cell| *cell /= scale);
        let of_pivot = matrix[pivot];
        for (_, row) in matrix.iter_mut().enumerate().filter(|(nth, _)| *nth != pivot) {
            let times = row[pivot];
            row.iter_mut().zip(of_pivot).for_each(|(cell, of_pivot)| *cell -= times * of_pivot);
        }
    }
    matrix.map(|row| row[3])
}
