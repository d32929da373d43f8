//! A kind, its controller and its finalizer in one program: a site has a page for each of its titles, and is taken off the
//! network before it goes. Pages are objects of this server, too, and go with their site.
//!
//! `kubectl --server=http://127.0.0.1:8080 get sites,pages`

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubefold_apiserver::{
    Kind, Server, Status,
    registry::{Event, From, Part, Patch, Registry, Selection, WriteOptions},
    schema::FieldValidation,
    server::interrupted,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const GROUP: &str = "site.example.com";
const FINALIZER: &str = "site.example.com/unpublish";
const CONTROLLER: &str = "site-controller";

/// Pages under one roof.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Site {
    #[schemars(skip)]
    metadata: ObjectMeta,
    spec: SiteSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<SiteStatus>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct SiteSpec {
    /// One page is made for each.
    titles: Vec<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct SiteStatus {
    /// How many pages there are.
    pages: usize,
}

/// A page of a site.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Page {
    /// What stands above it.
    title: String,
}

fn server() -> Server {
    let site = Kind::of::<Site>(GROUP, "v1", "Site")
        .schema()
        .status()
        .column("Pages", "integer", ".status.pages")
        .finalizer(FINALIZER);
    let page = Kind::of::<Page>(GROUP, "v1", "Page").schema().column("Title", "string", ".title");
    Server::new().kind(site).kind(page)
}

/// Brings the world to what sites say, for ever.
async fn operate(registry: &Registry) {
    loop {
        let Err(status) = follow(registry).await else { return };
        tracing::warn!(error = status.message, "the controller begins anew");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn follow(registry: &Registry) -> Result<(), Status> {
    let sites = registry.kind(GROUP, "Site").ok_or_else(Status::no_such_path)?;
    let pages = registry.kind(GROUP, "Page").ok_or_else(Status::no_such_path)?;
    let mut events = registry.watch(&sites, "", Selection::default(), From::Start).await?;
    while let Some(event) = events.next().await {
        if let Event::Added(object) | Event::Modified(object) = event? {
            let value = object.value();
            let site = Site::deserialize(&value).map_err(|error| Status::internal(error.to_string()))?;
            match &site.metadata.deletion_timestamp {
                Some(_) => unpublish(registry, &sites, &site).await?,
                None => publish(registry, &sites, &pages, &site).await?,
            }
        }
    }
    Ok(())
}

async fn publish(registry: &Registry, sites: &Kind, pages: &Kind, site: &Site) -> Result<(), Status> {
    let (namespace, name) = place(site);
    for (number, title) in site.spec.titles.iter().enumerate() {
        let page = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "Page", "title": title,
            "metadata": {
                "name": format!("{name}-{number}"),
                "ownerReferences": [{
                    "apiVersion": format!("{GROUP}/v1"), "kind": "Site", "name": name, "uid": site.metadata.uid,
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
        });
        let options = WriteOptions { manager: CONTROLLER.to_owned(), ..WriteOptions::default() };
        let (patch, strict) = (Patch::Apply { object: page, force: true }, FieldValidation::Strict);
        registry.patch(pages, namespace, &format!("{name}-{number}"), &patch, strict, &options).await?;
    }
    let status = json!(SiteStatus { pages: site.spec.titles.len() });
    let options = WriteOptions { part: Part::Status, manager: CONTROLLER.to_owned(), ..WriteOptions::default() };
    let change = |object: &mut Value| {
        object["status"] = status.clone();
        Ok(())
    };
    registry.modify(sites, namespace, name, &options, change).await.map(drop)
}

/// Its namespace and name.
fn place(site: &Site) -> (&str, &str) {
    (site.metadata.namespace.as_deref().unwrap_or_default(), site.metadata.name.as_deref().unwrap_or_default())
}

/// Here the site would be taken off the network. Then it may go.
async fn unpublish(registry: &Registry, sites: &Kind, site: &Site) -> Result<(), Status> {
    let (namespace, name) = place(site);
    let change = |object: &mut Value| {
        if let Some(Value::Array(finalizers)) = object.pointer_mut("/metadata/finalizers") {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        Ok(())
    };
    registry.modify(sites, namespace, name, &WriteOptions::default(), change).await.map(drop)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let bound = server().bind(&address).await?;
    let registry = bound.running().registry().clone();
    tokio::select! {
        () = bound.serve_until(interrupted()?) => {}
        () = operate(&registry) => {}
    }
    Ok(())
}
