use super::*;
use crate::{
    serve::bootstrap,
    sim::{Seed, Seeded, seed},
};

fn registry(chance: u64) -> Registry {
    let clock = TokioClock::starting(START.parse().unwrap());
    let kinds = built_in(&builtin()).into_iter().map(Arc::new);
    let allocator = Allocator::new(Ipv4Addr::new(10, 96, 0, 0), 16);
    Registry::new(Arc::new(Memory::default()), Env::seeded(chance, Arc::new(clock)), allocator, kinds)
}

async fn filled(of: &Seed) -> (Town, Seeded) {
    let registry = registry(of.seed);
    // What a server begins with is no hindrance.
    bootstrap(&registry).await.unwrap();
    let made = seed(&registry, of).await.unwrap();
    let mut sim = Sim::new(registry.clone(), Options { seed: of.seed, ..Options::default() });
    let changes = sim.begin().await.unwrap();
    (Town { registry, sim, changes }, made)
}

async fn bodies(town: &Town) -> Vec<(String, String)> {
    let page = town.registry.storage().range(crate::storage::Range::default()).await.unwrap();
    let body = |record: &crate::storage::Record| {
        (record.key.to_string(), crate::registry::Object::of_record(record).bare().to_owned())
    };
    page.records.iter().map(body).collect()
}

#[tokio::test(start_paused = true)]
async fn a_seeded_cluster_is_settled() {
    let of = Seed { pods: 300, ..Seed::default() };
    let (mut town, made) = filled(&of).await;
    assert!((300..=320).contains(&made.pods), "{made:?}");
    let before: std::collections::BTreeMap<String, String> = bodies(&town).await.into_iter().collect();
    town.live(0).await;
    let after = bodies(&town).await;
    // What is left to the controllers, and nothing else.
    let left = ["endpoints/", "endpointslices.", "leases.", "serviceaccounts/", "configmaps/", "events/"];
    for (key, body) in &after {
        if left.iter().any(|prefix| key.starts_with(prefix)) {
            continue;
        }
        assert_eq!(before.get(key), Some(body), "{key} was not settled");
    }
    let gone: Vec<&String> = before.keys().filter(|key| !after.iter().any(|(other, _)| other == *key)).collect();
    assert!(gone.is_empty(), "{gone:?}");
    town.live(120).await;
    let pods = bodies(&town).await.into_iter().filter(|(key, _)| key.starts_with("pods/")).count();
    assert_eq!(pods, made.pods);
}

#[tokio::test(start_paused = true)]
async fn seeds_make_alike_and_sizes_hold() {
    let of = Seed { pods: 60, seed: 3, ..Seed::default() };
    let (one, made) = filled(&of).await;
    let (other, _) = filled(&of).await;
    assert_eq!(bodies(&one).await, bodies(&other).await);
    let (unlike, _) = filled(&Seed { seed: 4, ..of.clone() }).await;
    assert_ne!(bodies(&one).await, bodies(&unlike).await);
    assert!(made.objects > made.pods);
    let (bare, _) = filled(&Seed { pods: 0, nodes: 1, ..of }).await;
    assert!(bare.get("services", "kubernetes").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn churn_keeps_a_cluster_alive() {
    let of = Seed { pods: 120, ..Seed::default() };
    let (town, made) = filled(&of).await;
    let before: std::collections::BTreeSet<String> =
        bodies(&town).await.into_iter().map(|(key, _)| key).filter(|key| key.starts_with("pods/")).collect();
    let stop = tokio_util::sync::CancellationToken::new();
    let churn = crate::sim::churn(town.registry.clone(), crate::sim::Churn { seed: 1, per_second: 2.0 }, stop.clone());
    let registry = town.registry.clone();
    let live = Sim::new(registry, Options::default()).run(stop.clone());
    let end = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        stop.cancel();
    };
    tokio::join!(churn, live, end);
    let after: std::collections::BTreeSet<String> =
        bodies(&town).await.into_iter().map(|(key, _)| key).filter(|key| key.starts_with("pods/")).collect();
    assert!(before.difference(&after).count() > 10, "pods went");
    assert!(after.difference(&before).count() > 10, "pods came");
    let (few, many) = (made.pods * 2 / 3, made.pods * 3 / 2);
    assert!((few..many).contains(&after.len()), "{} of {}", after.len(), made.pods);
}
