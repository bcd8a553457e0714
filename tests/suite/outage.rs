//! Limits while Redis is away, slow, full, or no master.
