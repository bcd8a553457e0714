//! The binary: arguments in, exit code out. Everything else is in the library.

use std::process::ExitCode;

/// Faster than the system's, as measured: a request's allocations are small and short-lived, and mimalloc serves them
/// from a thread-local list.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tollgate::cli::main()
}
