//! What it costs to know what a caller may do, once the members have said so.
//!
//! Shape: 200 members in one server of this process. `cargo bench --bench access -- --test` asks 20 of them, and few times. A
//! request by a known caller is one look-up, however many members there are: at most 1 us, and no allocation.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a bench prints, and panics where it is wrong"
)]

mod callers;

use std::{alloc::System, time::Duration};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::time::Instant;

use callers::Known;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let (members, passes) = if is_test { (20, 1_000) } else { (200, 200_000) };
    rustls::crypto::aws_lc_rs::default_provider().install_default().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(known_caller(members, passes));
}

async fn known_caller(count: usize, passes: u32) {
    let known = Known::by(count).await;
    let mut best = (Duration::MAX, usize::MAX);
    for _ in 0..5 {
        let (region, begun) = (Region::new(ALLOCATOR), Instant::now());
        for _ in 0..passes {
            std::hint::black_box(known.grant().await);
        }
        best = best.min((begun.elapsed() / passes, region.change().allocations / passes as usize));
    }
    println!("access  a request by a known caller over {count} members: {:.1?}, {} allocations", best.0, best.1);
    assert_eq!(best.1, 0, "a look-up copies nothing");
}
