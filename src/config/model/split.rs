//! Several upstreams that take the requests of one route.

use super::{KeyRecipe, Route};

/// Several upstreams that take the requests of one route by weight, as for a canary release.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    /// Requests that have this in common go to the same upstream. `None`: each request is for itself.
    pub by: Option<KeyRecipe>,
    /// At least one is not 0.
    pub weights: Vec<u32>,
    /// For each weight the route to its upstream, with the policies, timeouts and whatever else it has of that upstream.
    pub routes: Vec<Route>,
}

impl Split {
    /// The sum of all weights.
    pub fn total(&self) -> u64 {
        self.weights.iter().copied().map(u64::from).sum()
    }

    /// The route whose weight `point`, below [`Split::total`], falls into. Weights that follow each other on a line: if one grows at
    /// the cost of the next, no request moves but those between the two.
    pub fn at(&self, point: u64) -> Option<&Route> {
        let mut end = 0;
        let nth = self.weights.iter().position(|&weight| {
            end += u64::from(weight);
            point < end
        });
        self.routes.get(nth?)
    }
}
