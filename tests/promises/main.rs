//! The promises of the design (its section 2), under faults: the whole program over embedded members, hundreds of seeds.
//!
//! A *seed* makes a workload, clients and troubles (`play`, `actors`, `trouble`); a *world* is the fleet in which it is
//! played (`world`, `member`, `client`); the *history* is what clients saw and members went through (`history`, `lives`).
//! Each promise is a function of the history that says what breaks it, with a test that feeds it broken histories. Every
//! promise is checked on every history; each has a test whose mix of work and troubles is hardest on it.
//!
//! - `PROMISE_SEEDS=1000` plays so many seeds for each promise, and `PROMISE_FIRST=5000` begins with that one
//! - `PROMISE_SEED=17 cargo test --test promises promise_05` plays one seed alone
//!
//! `scripts/soak` plays thousands.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests: a failure is a failed test, in their helper functions too"
)]

mod actors;
mod bounds;
mod bytes;
mod chance;
mod client;
mod history;
mod identity;
mod kinds;
mod lives;
mod member;
mod names;
mod oracle;
mod order;
mod outages;
mod owners;
mod partial;
mod play;
mod revisions;
mod sample;
mod trouble;
mod unique;
mod world;
mod writes;

use futures::FutureExt;

use crate::{
    history::History,
    oracle::Losses,
    play::Mix,
    trouble::{OUTAGES, WITHOUT_RESTORE},
    world::World,
};

/// Seeds for each promise, where nobody says otherwise.
const SEEDS: u64 = 20;
/// Seeds that are played in one world, one after the other.
const SEEDS_IN_A_WORLD: u64 = 20;

/// Says what in a history breaks a promise.
type Check = fn(&History) -> Vec<String>;

/// All promises.
const PROMISES: [(&str, Check); 10] = [
    ("1 unique keys", unique::check),
    ("2 names never move", names::check),
    ("3 revisions are numbers", revisions::check),
    ("4 one order", order::check),
    ("5 read your writes", writes::check),
    ("6 an outage is never a deletion", outages::check),
    ("7 never silently partial", partial::check),
    ("8 the member's bytes", bytes::check),
    ("9 the caller's identity", identity::check),
    ("10 bounds on everything", bounds::check),
];

/// The seeds that are to be played, in the order of worlds.
fn seeds() -> Vec<Vec<u64>> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (first, count) = match number("PROMISE_SEED") {
        Some(seed) => (seed, 1),
        None => (number("PROMISE_FIRST").unwrap_or(1), number("PROMISE_SEEDS").unwrap_or(SEEDS)),
    };
    let seeds: Vec<u64> = (first..first + count).collect();
    seeds.chunks(usize::try_from(SEEDS_IN_A_WORLD).expect("a count")).map(<[u64]>::to_vec).collect()
}

/// Plays seeds of a mix, and checks all promises on each history.
fn keep(mix: Mix) {
    for seeds in seeds() {
        world::run(async {
            let world = World::start(seeds[0]).await;
            for seed in &seeds {
                let played =
                    std::panic::AssertUnwindSafe(Box::pin(play::play(&world, *seed, &mix))).catch_unwind().await;
                let history = played.unwrap_or_else(|_| panic!("PROMISE_SEED={seed} failed, see above"));
                judge(*seed, &history);
            }
            world.end().await;
        });
    }
}

/// Problems that are shown of one promise.
const SHOWN: usize = 5;

fn judge(seed: u64, history: &History) {
    let mut broken = String::new();
    for (promise, check) in PROMISES {
        let problems = check(history);
        if !problems.is_empty() {
            let shown = problems.iter().take(SHOWN).map(|problem| format!("\n- {problem}")).collect::<String>();
            broken += &format!("\npromise {promise}: {} problems{shown}", problems.len());
        }
    }
    assert!(broken.is_empty(), "PROMISE_SEED={seed}{broken}\n\nEverything that happened:\n{history}");
}

#[test]
fn promise_01_unique_keys() {
    keep(Mix { member_locals: 3, pinners: 2, watchers: 5, ..Mix::default() });
}

#[test]
fn promise_02_names_never_move() {
    keep(Mix { member_locals: 6, pinners: 2, placers: 1, steps: 10, ..Mix::default() });
}

#[test]
fn promise_03_revisions_are_numbers() {
    keep(Mix { readers: 4, watchers: 4, steps: 6, ..Mix::default() });
}

#[test]
fn promise_04_one_order() {
    keep(Mix { watchers: 8, readers: 1, ..Mix::default() });
}

#[test]
fn promise_05_read_your_writes() {
    keep(Mix { placers: 4, pinners: 2, member_locals: 1, troubles: WITHOUT_RESTORE, ..Mix::default() });
}

#[test]
fn promise_06_an_outage_is_never_a_deletion() {
    keep(Mix { troubles: OUTAGES, troubles_count: 5, readers: 3, ..Mix::default() });
}

#[test]
fn promise_07_never_silently_partial() {
    keep(Mix { troubles: WITHOUT_RESTORE, troubles_count: 5, readers: 4, steps: 10, ..Mix::default() });
}

#[test]
fn promise_08_the_members_bytes() {
    keep(Mix { member_locals: 4, placers: 3, pinners: 3, readers: 3, troubles_count: 1, ..Mix::default() });
}

#[test]
fn promise_09_the_callers_identity() {
    keep(Mix { placers: 4, pinners: 4, readers: 4, member_locals: 1, ..Mix::default() });
}

#[test]
fn promise_10_bounds_on_everything() {
    keep(Mix { troubles_count: 8, placers: 3, readers: 3, ..Mix::default() });
}

/// Gives the fleet and one more server the same verbs, with these losses.
fn compare(losses: Losses) {
    for seeds in seeds() {
        world::run(async {
            let mut world = World::start(seeds[0]).await;
            let oracle = world.another("oracle", seeds[0]).await;
            oracle::set_up(&world, &oracle).await;
            for seed in seeds {
                Box::pin(oracle::play(&mut world, &oracle, seed, losses)).await;
            }
            world.end().await;
            oracle.endpoint.end().await;
        });
    }
}

#[test]
fn a_fleet_answers_and_ends_as_one_cluster_does() {
    compare(Losses::Outages);
}

#[test]
fn after_backups_each_part_is_as_it_is_shown_or_said_to_differ() {
    compare(Losses::Backups);
}
