//! A controller as people write them with kube-rs: for each Note it applies a config map with the note's text, says in the
//! note's status what it wrote, tells an event, and has a finalizer that leaves a config map `<note>-gone` behind.
//!
//! It installs its definition itself. SIGTERM ends it.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::{
    api::core::v1::ConfigMap, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config, CustomResource, CustomResourceExt, Resource, ResourceExt,
    api::{Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{
        Controller,
        controller::Action,
        events::{Event, EventType, Recorder},
        finalizer::{self, finalizer},
        wait::{await_condition, conditions::is_crd_established},
        watcher,
    },
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

const NAME: &str = "note-controller";
const FINALIZER: &str = "e2e.kubefold.io/note";

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "e2e.kubefold.io", version = "v1", kind = "Note", namespaced, status = "NoteStatus")]
struct NoteSpec {
    /// What the config map has.
    text: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct NoteStatus {
    written: String,
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Finalizer(#[from] Box<finalizer::Error<kube::Error>>),
}

struct Context {
    client: Client,
    recorder: Recorder,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().find_map(|arg| arg.strip_prefix("--kubeconfig=").map(str::to_owned));
    let kubeconfig = Kubeconfig::read_from(path.ok_or("needs --kubeconfig=FILE")?)?;
    let client = Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?;

    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.patch(Note::crd_name(), &PatchParams::apply(NAME), &Patch::Apply(Note::crd())).await?;
    await_condition(definitions, Note::crd_name(), is_crd_established()).await?;

    let recorder = Recorder::new(client.clone(), NAME.into());
    let context = Arc::new(Context { client: client.clone(), recorder });
    Controller::new(Api::<Note>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client), watcher::Config::default())
        .shutdown_on_signal()
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(1)), context)
        .for_each(async |done| println!("{done:?}"))
        .await;
    Ok(())
}

async fn reconcile(note: Arc<Note>, context: Arc<Context>) -> Result<Action, Failed> {
    let notes = Api::namespaced(context.client.clone(), &note.namespace().unwrap_or_default());
    let done = finalizer(&notes, FINALIZER, note, async |event| match event {
        finalizer::Event::Apply(note) => write(&note, &context, &notes).await,
        finalizer::Event::Cleanup(note) => clean(&note, &context).await,
    });
    Ok(done.await.map_err(Box::new)?)
}

async fn write(note: &Note, context: &Context, notes: &Api<Note>) -> Result<Action, kube::Error> {
    let owners = json!([note.controller_owner_ref(&()).expect("a note that is stored")]);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": note.name_any(), "ownerReferences": owners},
        "data": {"text": note.spec.text},
    });
    apply(note, context, &note.name_any(), &map).await?;
    let status = json!({
        "apiVersion": Note::api_version(&()), "kind": Note::kind(&()), "status": {"written": note.spec.text},
    });
    notes.patch_status(&note.name_any(), &PatchParams::apply(NAME).force(), &Patch::Apply(status)).await?;
    let event = Event {
        type_: EventType::Normal,
        reason: "Written".into(),
        note: Some(format!("wrote {:?}", note.spec.text)),
        action: "Write".into(),
        secondary: None,
    };
    context.recorder.publish(&event, &note.object_ref(&())).await?;
    Ok(Action::requeue(Duration::from_secs(3600)))
}

async fn clean(note: &Note, context: &Context) -> Result<Action, kube::Error> {
    let name = format!("{}-gone", note.name_any());
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": note.spec.text}});
    apply(note, context, &name, &map).await?;
    Ok(Action::await_change())
}

async fn apply(note: &Note, context: &Context, name: &str, map: &serde_json::Value) -> Result<(), kube::Error> {
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &note.namespace().unwrap_or_default());
    maps.patch(name, &PatchParams::apply(NAME).force(), &Patch::Apply(map)).await?;
    Ok(())
}
