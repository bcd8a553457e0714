//! The binary: arguments in, exit code out. Everything else is in the library.

use std::process::ExitCode;

/// Measured: the allocations of a request are small and short-lived, which mimalloc serves from a
/// list of the thread's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tollgate::cli::main()
}
