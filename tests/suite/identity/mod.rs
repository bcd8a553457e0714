//! Who a request is from.

mod identifiers;
mod token_limits;
mod tokens;
