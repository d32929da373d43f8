//! Requests that change nothing.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;

use crate::cli::bench::{
    drivers::Ground,
    record::{Failure, Outcome},
    space::{SHARD, SHARDS},
    target::{asked, get},
};

/// As kubectl asks for it.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
/// Spreads numbers over the objects, so that neighbours in time are none in the namespace. Source: Knuth, TAOCP 3, 6.4.
const SPREAD: u64 = 2_654_435_761;

/// All objects in one answer.
pub(super) async fn list(ground: Arc<Ground>, number: u64) -> Outcome {
    Outcome { measure: "list", result: ground.target.pass(number, get(&ground.space.path())).await }
}

/// All objects as kubectl prints them.
pub(super) async fn table(ground: Arc<Ground>, number: u64) -> Outcome {
    let request = asked(Method::GET, &ground.space.path(), TABLE, Bytes::new());
    Outcome { measure: "table", result: ground.target.pass(number, request).await }
}

/// One object.
pub(super) async fn get_one(ground: Arc<Ground>, number: u64) -> Outcome {
    let path = ground.space.object(number.wrapping_mul(SPREAD));
    Outcome { measure: "get", result: ground.target.pass(number, get(&path)).await }
}

/// One page.
pub(super) async fn first_page(ground: Arc<Ground>, number: u64) -> Outcome {
    let path = format!("{}?limit={}", ground.space.path(), ground.shape.page_size);
    Outcome { measure: "page", result: ground.target.pass(number, get(&path)).await }
}

/// All objects in pages, one after the other.
pub(super) async fn pages(ground: Arc<Ground>, number: u64) -> Outcome {
    Outcome { measure: "pages", result: all_pages(&ground, number).await }
}

async fn all_pages(ground: &Ground, number: u64) -> Result<u64, Failure> {
    #[derive(Deserialize)]
    struct Page {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(default, rename = "continue")]
        token: String,
    }
    let first = format!("{}?limit={}", ground.space.path(), ground.shape.page_size);
    let (mut path, mut bytes) = (first.clone(), 0);
    loop {
        let body = ground.target.read(number, get(&path)).await?;
        bytes += body.len() as u64;
        let page: Page = serde_json::from_slice(&body).map_err(|_| Failure::Unreadable)?;
        if page.metadata.token.is_empty() {
            return Ok(bytes);
        }
        let token: String = form_urlencoded::byte_serialize(page.metadata.token.as_bytes()).collect();
        path = format!("{first}&continue={token}");
    }
}

/// A hundredth of the objects by a label, or one by its name, in turn.
pub(super) async fn selectors(ground: Arc<Ground>, number: u64) -> Outcome {
    let (measure, selector) = match number % 2 {
        0 => ("label-selector", format!("labelSelector={SHARD}%3D{}", number / 2 % SHARDS)),
        _ => {
            let index = number.wrapping_mul(SPREAD) % ground.space.objects();
            ("field-selector", format!("fieldSelector=metadata.name%3D{}", ground.space.name(index)))
        }
    };
    let path = format!("{}?{selector}", ground.space.path());
    Outcome { measure, result: ground.target.pass(number, get(&path)).await }
}
