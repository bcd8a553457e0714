//! identifiers
