//! The scenarios: what one request of each is, and what else happens meanwhile.

#[cfg(feature = "demo")]
pub(super) mod cold;
#[cfg(feature = "demo")]
pub(super) mod outage;
pub(super) mod reads;
pub(super) mod watch;
pub(super) mod writes;

use std::sync::Arc;

use futures::FutureExt;

use crate::cli::bench::{
    plan::{Scenario, Shape},
    schedule::Operation,
    space::Space,
    target::Target,
};

/// What a scenario runs on.
#[derive(Clone)]
pub(super) struct Ground {
    pub(super) target: Arc<Target>,
    pub(super) space: Space,
    pub(super) shape: Shape,
}

/// The request of a scenario that is nothing but requests. `None` for those with more to them.
pub(super) fn operation(scenario: Scenario, ground: &Ground) -> Option<Operation> {
    let ground = Arc::new(ground.clone());
    Some(match scenario {
        Scenario::List => Arc::new(move |number| reads::list(Arc::clone(&ground), number).boxed()),
        Scenario::Pages => Arc::new(move |number| reads::pages(Arc::clone(&ground), number).boxed()),
        Scenario::Table => Arc::new(move |number| reads::table(Arc::clone(&ground), number).boxed()),
        Scenario::Selectors => Arc::new(move |number| reads::selectors(Arc::clone(&ground), number).boxed()),
        Scenario::Get => Arc::new(move |number| reads::get_one(Arc::clone(&ground), number).boxed()),
        Scenario::Write => Arc::new(move |number| writes::change(Arc::clone(&ground), number).boxed()),
        Scenario::Churn => Arc::new(move |number| writes::churn(Arc::clone(&ground), number).boxed()),
        Scenario::Mixed => Arc::new(move |number| mixed(Arc::clone(&ground), number).boxed()),
        Scenario::Watch | Scenario::Outage | Scenario::ColdStart => return None,
    })
}

/// Of twenty requests: twelve gets, three selectors, two pages' first, two changes, one list.
async fn mixed(ground: Arc<Ground>, number: u64) -> crate::cli::bench::record::Outcome {
    match number % 20 {
        0 => reads::list(ground, number).await,
        5 | 15 => reads::first_page(ground, number).await,
        3 | 9 | 16 => reads::selectors(ground, number).await,
        7 | 17 => writes::change(ground, number).await,
        _ => reads::get_one(ground, number).await,
    }
}
