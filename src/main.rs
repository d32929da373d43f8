//! The `kubefold` binary.

use std::process::ExitCode;

// With threads of its own it gives memory back to the system when nothing is asked any more, too.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Once per process, before anything speaks TLS. A second provider could only be installed by a mistake of ours.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    kubefold::cli::main()
}
