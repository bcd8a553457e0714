//! Who a request is from.

mod certificates;
mod identifiers;
mod token_limits;
mod tokens;
