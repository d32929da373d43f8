//! `kubefold rewrite`: brings what is stored in an old version of its kind to the version in which new objects are.
//!
//! Each object gets a patch that changes nothing. A server writes it then only if it is stored in another way than it would be
//! now. So the command works with the rights of its caller, beside other clients, and can be stopped and begun again.
//!
//! Source: kubernetes-sigs/kube-storage-version-migrator, and kubernetes `pkg/controller/storageversionmigrator`, which do the
//! same. Neither touches `status.storedVersions` of the definition; this does, once every object is rewritten.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use anyhow::{Context, bail};
use futures::{StreamExt, stream};
use http::StatusCode;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{Discovery, verbs},
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{
    client::{Connection, Output, cause},
    print,
    progress::Progress,
};
use kubefold_wire::{
    access::{items, text},
    golang::Quoted,
};

#[derive(Debug, clap::Args)]
pub(super) struct Rewrite {
    /// What to rewrite: widgets.example.com, or configmaps. Default: every kind that the server has.
    #[arg(value_name = "RESOURCE")]
    resources: Vec<String>,
    #[command(flatten)]
    connection: Connection,
    /// Print what was rewritten, by kind, for programs.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Objects that are listed at once, and after each of which the list goes on.
const PAGE_ITEMS: u32 = 500;
/// Patches under way.
const IN_FLIGHT_MAX: usize = 8;
/// Objects of a kind that could not be written before the others of it are left alone.
const FAILURES_MAX: usize = 20;
/// How often others may change a definition before its stored versions are left alone.
const ATTEMPTS_MAX: usize = 5;
const MANAGER: &str = "kubefold-rewrite";
/// They are the core group's events in another form.
const SAME_AS_OTHERS: (&str, &str) = ("events.k8s.io", "events");

/// What became of a kind.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    resource: String,
    /// In which the objects were read. The server chooses the one that it stores.
    version: String,
    objects: usize,
    rewritten: usize,
    /// One sentence for each object that was not written, or for the kind.
    failures: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stored_versions: Option<StoredVersions>,
}

/// `status.storedVersions` of a definition.
#[derive(Debug, Serialize)]
struct StoredVersions {
    before: Vec<String>,
    after: Vec<String>,
}

/// What is rewritten together.
struct Target {
    resource: ApiResource,
    /// Of a custom resource.
    definition: Option<Definition>,
}

/// What a custom resource's definition says at the beginning.
#[derive(Clone)]
struct Definition {
    name: String,
    uid: String,
    generation: Option<i64>,
    storage: String,
    served: Vec<String>,
}

/// What a patch came to.
enum Patched {
    Rewritten,
    /// As new objects are stored, or gone.
    Current,
    Failed(String),
}

/// Rewrites, and prints how many objects of each kind.
pub(super) fn run(flags: &Rewrite) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(Box::pin(rewrite(flags)))
}

async fn rewrite(flags: &Rewrite) -> anyhow::Result<()> {
    let config = flags.connection.config().await?;
    let url = config.cluster_url.to_string();
    let client = Client::try_from(config).with_context(|| format!("cannot connect to {url}"))?;
    let targets = targets(&client, &flags.resources).await.with_context(|| format!("cannot ask {url}"))?;
    let (progress, mut outcomes) = (Progress::new(), Vec::new());
    let mut ended = Ok(());
    for target in &targets {
        let mut outcome = Outcome {
            resource: qualified(&target.resource),
            version: target.resource.version.clone(),
            ..Outcome::default()
        };
        ended = Box::pin(target.rewrite(&client, &progress, &mut outcome)).await;
        outcomes.push(outcome);
        if ended.is_err() {
            break;
        }
    }
    progress.clear();
    let (objects, rewritten) = sums(&outcomes);
    let whole = json!({"kinds": outcomes, "objects": objects, "rewritten": rewritten});
    print(&flags.output.map_or_else(|| Ok(told(&outcomes)), |output| output.text(&whole))?)?;
    ended.context("not everything is rewritten; run the command again")?;
    let failures: Vec<&str> = outcomes.iter().flat_map(|one| &one.failures).map(String::as_str).collect();
    match failures.as_slice() {
        [] => Ok(()),
        [first, ..] => {
            bail!("failures: {}; their kinds keep their stored versions; the first: {first}", failures.len())
        }
    }
}

/// A line for each kind of which something was rewritten or failed, and the sum.
fn told(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    for one in outcomes.iter().filter(|one| one.is_worth_a_line()) {
        let Outcome { resource, objects, rewritten, .. } = one;
        // Writing to memory has no way to fail.
        let _infallible = write!(out, "{resource}: {rewritten} of {objects} objects rewritten");
        if let Some(StoredVersions { before, after }) = &one.stored_versions {
            let _infallible = write!(out, "; stored versions: {} (before: {})", after.join(", "), before.join(", "));
        }
        out.push('\n');
        for failure in &one.failures {
            let _infallible = writeln!(out, "  {failure}");
        }
    }
    let (objects, rewritten) = sums(outcomes);
    let _infallible = writeln!(out, "{rewritten} of {objects} objects were rewritten");
    out
}

/// Objects, and how many of them were rewritten.
fn sums(outcomes: &[Outcome]) -> (usize, usize) {
    outcomes.iter().fold((0, 0), |(objects, rewritten), one| (objects + one.objects, rewritten + one.rewritten))
}

impl Outcome {
    fn is_worth_a_line(&self) -> bool {
        self.rewritten > 0 || !self.failures.is_empty() || self.stored_versions.is_some()
    }
}

fn qualified(resource: &ApiResource) -> String {
    let group = if resource.group.is_empty() { String::new() } else { format!(".{}", resource.group) };
    format!("{}{group}", resource.plural)
}

fn definitions(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions"))
}

/// Every kind that can be listed and patched, once, or those that are named. A custom resource is read in the version in
/// which it is stored, if it is served: another could not have all of its fields.
///
/// Errors: the server does not answer; it does not have what is named.
async fn targets(client: &Client, named: &[String]) -> anyhow::Result<Vec<Target>> {
    let discovery = Discovery::new(client.clone()).run_aggregated().await?;
    let known: BTreeMap<String, Definition> = match definitions(client).list(&ListParams::default()).await {
        Ok(all) => all.items.iter().map(Definition::of).map(|one| (one.name.clone(), one)).collect(),
        // A server without custom resources.
        Err(kube::Error::Api(status)) if status.code == StatusCode::NOT_FOUND => BTreeMap::new(),
        Err(error) => return Err(error.into()),
    };
    let (mut out, mut seen) = (Vec::new(), BTreeSet::new());
    for group in discovery.groups_alphabetical() {
        let versions: Vec<&str> = group.versions().collect();
        for version in &versions {
            for (resource, can) in group.versioned_resources(version) {
                let name = qualified(&resource);
                let definition = known.get(&name);
                let is_other = definition.is_some_and(|one| {
                    one.served.contains(&one.storage) && versions.contains(&&*one.storage) && one.storage != **version
                });
                let is_usable = can.supports_operation(verbs::LIST) && can.supports_operation(verbs::PATCH);
                let is_same = (&*resource.group, &*resource.plural) == SAME_AS_OTHERS;
                if is_usable && !is_other && !is_same && seen.insert(name) {
                    out.push(Target { resource, definition: definition.cloned() });
                }
            }
        }
    }
    if let Some(stranger) = named.iter().find(|name| !seen.contains(*name)) {
        bail!("the server has no resource {} that can be listed and patched", Quoted(stranger));
    }
    out.retain(|one| named.is_empty() || named.contains(&qualified(&one.resource)));
    Ok(out)
}

impl Definition {
    fn of(definition: &DynamicObject) -> Self {
        let versions = items(&definition.data, "/spec/versions");
        let names = |flag: &str| {
            let have = |version: &&Value| version[flag] == true;
            versions.iter().filter(have).map(|version| text(version, "/name").to_owned()).collect::<Vec<_>>()
        };
        Self {
            name: definition.name_any(),
            uid: definition.uid().unwrap_or_default(),
            generation: definition.metadata.generation,
            storage: names("storage").into_iter().next().unwrap_or_default(),
            served: names("served"),
        }
    }
}

impl Target {
    /// Errors: the server does not answer, or takes no changes. What one object or one kind cannot do is in the outcome.
    async fn rewrite(&self, client: &Client, progress: &Progress, outcome: &mut Outcome) -> anyhow::Result<()> {
        let mut after = None;
        loop {
            let mut params = ListParams::default().limit(PAGE_ITEMS);
            params.continue_token = after.take();
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &self.resource);
            let page = match api.list_metadata(&params).await {
                Ok(page) => page,
                // The revision of the list is forgotten: it goes on behind the last key, as of now. No old object is left
                // out, since none gets old meanwhile.
                Err(kube::Error::Api(status)) if is_too_old(&status) => {
                    after = status.metadata.and_then(|metadata| metadata.continue_);
                    continue;
                }
                // A kind that went, or that is not listed.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => return Ok(()),
                Err(error) => {
                    outcome.failures.push(format!("cannot list {}: {}", outcome.resource, cause(&error)));
                    return if concerns_one(&error) { Ok(()) } else { Err(error.into()) };
                }
            };
            let patches = page.items.iter().map(|object| self.patch(client, object));
            let mut patches = stream::iter(patches).buffer_unordered(IN_FLIGHT_MAX);
            while let Some(patched) = patches.next().await {
                outcome.objects += 1;
                match patched? {
                    Patched::Rewritten => outcome.rewritten += 1,
                    Patched::Current => {}
                    Patched::Failed(why) => outcome.failures.push(why),
                }
                progress.show(|| {
                    format!("{}: {} of {} objects rewritten", outcome.resource, outcome.rewritten, outcome.objects)
                });
            }
            if outcome.failures.len() >= FAILURES_MAX {
                outcome.failures.push(format!("the other objects of {} are as they were", outcome.resource));
                return Ok(());
            }
            after = page.metadata.continue_.filter(|token| !token.is_empty());
            if after.is_none() {
                break;
            }
        }
        match &self.definition {
            Some(definition) if outcome.failures.is_empty() => definition.settle(client, outcome).await,
            _ => Ok(()),
        }
    }

    /// Sends a patch that changes nothing, if the object is the one that was listed: one that somebody else wrote since then is
    /// in the new version.
    ///
    /// Errors: the server does not answer, or takes no changes.
    async fn patch(&self, client: &Client, object: &PartialObjectMeta<DynamicObject>) -> Result<Patched, kube::Error> {
        let name = object.name_any();
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        };
        let before = object.resource_version();
        let patch = Patch::Merge(json!({"metadata": {"resourceVersion": before}}));
        match api.patch_metadata(&name, &PatchParams::apply(MANAGER), &patch).await {
            Ok(there) if there.resource_version() == before => Ok(Patched::Current),
            Ok(_) => Ok(Patched::Rewritten),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Patched::Current),
            Err(error) if concerns_one(&error) => {
                let whose = object.namespace().map(|namespace| format!("{namespace}/")).unwrap_or_default();
                Ok(Patched::Failed(format!("{} {whose}{name}: {}", qualified(&self.resource), cause(&error))))
            }
            Err(error) => Err(error),
        }
    }
}

fn is_too_old(status: &kube::core::Status) -> bool {
    status.code == StatusCode::GONE && status.metadata.as_ref().is_some_and(|metadata| metadata.continue_.is_some())
}

/// Says whether the server refuses this object or kind, and may do others: it has a rule against it, or cannot convert it.
fn concerns_one(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422 | 500))
}

impl Definition {
    /// Says in the definition that all objects are stored in one version, if it still is the definition that they were
    /// rewritten by.
    ///
    /// Errors: the server does not answer, or takes no changes.
    async fn settle(&self, client: &Client, outcome: &mut Outcome) -> anyhow::Result<()> {
        let api = definitions(client);
        for _ in 0..ATTEMPTS_MAX {
            let Some(there) = api.get_opt(&self.name).await? else { return Ok(()) };
            let now = Self::of(&there);
            if (&now.uid, now.generation) != (&self.uid, self.generation) {
                outcome.failures.push(format!("{}: the definition was changed meanwhile; run this again", self.name));
                return Ok(());
            }
            let before: Vec<String> = items(&there.data, "/status/storedVersions")
                .iter()
                .filter_map(|version| version.as_str().map(str::to_owned))
                .collect();
            let after = vec![self.storage.clone()];
            if before == after {
                return Ok(());
            }
            let patch = json!({
                "metadata": {"resourceVersion": there.resource_version()}, "status": {"storedVersions": after},
            });
            match api.patch_status(&self.name, &PatchParams::apply(MANAGER), &Patch::Merge(patch)).await {
                Ok(_) => {
                    outcome.stored_versions = Some(StoredVersions { before, after });
                    return Ok(());
                }
                Err(kube::Error::Api(status)) if status.code == StatusCode::CONFLICT => {}
                Err(error) if concerns_one(&error) => {
                    outcome.failures.push(format!("{}: cannot say what is stored: {}", self.name, cause(&error)));
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        outcome.failures.push(format!("{}: others change the definition all the time; run this again", self.name));
        Ok(())
    }
}
