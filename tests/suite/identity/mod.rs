//! Who a request is from.

mod certificates;
mod identifiers;
mod key_sets;
mod token_limits;
mod tokens;
