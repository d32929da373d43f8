//! What befalls the flaky member: a seeded round of slowness, refusals, cuts and absences.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use kubefold_apiserver::{
    endpoint::Endpoint,
    faults::{Fault, Matching, Rule},
};

/// The time without a fault between two faults. Units: seconds.
const WELL_SECONDS: std::ops::Range<u64> = 20..45;
/// How long something befalls it. Units: seconds.
const ILL_SECONDS: std::ops::Range<u64> = 4..14;

/// One of the things that befall it.
#[derive(Clone, Copy, Debug)]
enum Spell {
    Slow,
    Busy,
    Broken,
    Cut,
    Away,
}

const SPELLS: [Spell; 5] = [Spell::Slow, Spell::Away, Spell::Busy, Spell::Cut, Spell::Broken];

/// Goes on until it is dropped.
pub(super) async fn blow(member: Arc<Endpoint>, seed: u64) {
    let mut chance = fastrand::Rng::with_seed(seed);
    loop {
        sleep(Duration::from_secs(chance.u64(WELL_SECONDS))).await;
        let Some(spell) = chance.choice(SPELLS) else { return };
        // Whoever killed it by hand revives it by hand.
        if member.is_alive() {
            endure(&member, spell, Duration::from_secs(chance.u64(ILL_SECONDS))).await;
        }
    }
}

async fn endure(member: &Endpoint, spell: Spell, time: Duration) {
    let always = |fault| Rule { on: Matching::default(), fault, times: None, every: Some(3) };
    let rule = match spell {
        Spell::Slow => always(Fault::Latency { millis: 400 }),
        Spell::Busy => always(Fault::Status { code: 429, retry_after: Some(1) }),
        Spell::Broken => always(Fault::Status { code: 503, retry_after: None }),
        Spell::Cut => always(Fault::Cut { after: 900 }),
        Spell::Away => {
            member.kill();
            sleep(time).await;
            if let Err(error) = member.revive().await {
                tracing::error!("the flaky member does not come back: {error}");
            }
            return;
        }
    };
    if member.faults().add(rule).is_ok() {
        sleep(time).await;
        member.faults().clear();
    }
}
