//! Kinds of Rust types in a registry, without HTTP.

use k8s_openapi::api::{batch::v1::Job, core::v1::ConfigMap};
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::{
    registry::{DeleteOptions, Env, ListOptions, Part, Registry, WriteOptions},
    storage::{Memory, Storage},
};
use kubefold_serving::caller::Caller;
use kubefold_wire::status::Status;

const GROUP: &str = "blog.example.com";

#[derive(Serialize, Deserialize, JsonSchema)]
struct Post {
    spec: Spec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Shown>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Spec {
    title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    author: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Shown {
    length: usize,
}

fn post() -> TypedKind<Post> {
    Kind::of::<Post>(GROUP, "v1", "Post").schema().status()
}

fn over(storage: Arc<dyn Storage>, kinds: impl IntoKinds) -> Registry {
    let allocator = kinds::Allocator::new(std::net::Ipv4Addr::new(10, 96, 0, 0), 16);
    Registry::new(storage, Env::default(), allocator, kinds.into_kinds().unwrap().into_iter().map(Arc::new))
}

fn registry(kinds: impl IntoKinds) -> Registry {
    over(Arc::new(Memory::default()), kinds)
}

fn named(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

async fn create(registry: &Registry, kind: &str, object: Value) -> Result<Value, Status> {
    let kind = registry.catalog().kinds().iter().find(|known| known.kind == kind).cloned().unwrap();
    let written = registry.create(&kind, "default", object, &WriteOptions::default()).await?;
    Ok(written.object.value())
}

fn kind_of(registry: &Registry, version: &str) -> Arc<Kind> {
    registry.resource(GROUP, version, "posts").unwrap()
}

#[tokio::test]
async fn rules_run_in_order_and_know_the_caller() {
    let kind = post()
        .default(|post| post.spec.title = post.spec.title.trim().to_owned())
        .prepare_create(|post, context| post.spec.author = Some(context.caller.user.clone()))
        .prepare_update(|new, old, _| new.spec.author.clone_from(&old.spec.author))
        .validate(|post, _| match post.spec.title.as_str() {
            "" => vec![Cause::required("spec.title", "")],
            _ => Vec::new(),
        })
        .validate_update(|new, old, _| match new.spec.title.len() < old.spec.title.len() {
            true => vec![Cause::forbidden("spec.title", "may only grow")],
            false => Vec::new(),
        })
        .admit(|new, old, context| match (new.spec.tags.is_empty(), old) {
            (false, None) => Err(format!("{} may not tag", context.caller.user)),
            _ => Ok(()),
        })
        .warn(|post, _| post.spec.tags.iter().map(|tag| format!("tag {tag}")).collect())
        .canonicalize(|post| post.spec.tags.sort());
    let registry = registry(kind).acting_as(Caller { user: "ann".into(), ..Caller::default() });
    let made = create(&registry, "Post", named("a", json!({"title": " t ", "author": "bob"}))).await.unwrap();
    assert_eq!(made["spec"], json!({"title": "t", "author": "ann"}));
    let kind = kind_of(&registry, "v1");
    let update = async |spec: Value| {
        let change = |object: &mut Value| {
            object["spec"] = spec.clone();
            Ok(())
        };
        registry.modify(&kind, "default", "a", &WriteOptions::default(), change).await
    };
    let written = update(json!({"title": "tt", "author": "eve", "tags": ["y", "x"]})).await.unwrap();
    let value = written.object.value();
    assert_eq!(value["spec"], json!({"title": "tt", "author": "ann", "tags": ["x", "y"]}));
    assert_eq!((written.warnings, &value["metadata"]["generation"]), (vec!["tag y".into(), "tag x".into()], &json!(2)));
    let shrunk = update(json!({"title": "t"})).await.unwrap_err();
    assert_eq!(shrunk.message, "Post.blog.example.com \"a\" is invalid: spec.title: Forbidden: may only grow");
    let tagged = create(&registry, "Post", named("b", json!({"title": "t", "tags": ["x"]}))).await.unwrap_err();
    assert_eq!(
        (tagged.code.as_u16(), &*tagged.message),
        (403, "posts.blog.example.com \"b\" is forbidden: ann may not tag")
    );
}

#[tokio::test]
async fn what_a_schema_lets_through_and_the_type_does_not_is_refused() {
    let kind = Kind::of::<Post>(GROUP, "v1", "Post").admit(|_, _, _| Err::<(), _>("never asked"));
    let refused = create(&registry(kind), "Post", named("a", json!({"title": 7}))).await.unwrap_err();
    let why =
        "Post.blog.example.com \"a\" is invalid: <nil>: Invalid value: invalid type: integer `7`, expected a string";
    assert_eq!((refused.code.as_u16(), &*refused.message), (422, why));
}

/// A rule that wants a name must not be passed by whoever lets the server make one.
#[tokio::test]
async fn a_generated_name_passes_no_rule_by() {
    #[derive(Serialize, Deserialize)]
    struct Named {
        metadata: Name,
        #[serde(default)]
        text: String,
    }
    #[derive(Serialize, Deserialize)]
    struct Name {
        name: String,
    }
    let kind = Kind::of::<Named>(GROUP, "v1", "Post")
        .default(|object| object.text.push('x'))
        .admit(|object, _, _| if object.metadata.name.starts_with("bad") { Err("bad name") } else { Ok(()) });
    let registry = registry(kind);
    let made = create(&registry, "Post", json!({"metadata": {"generateName": "good-"}})).await.unwrap();
    assert_eq!(made["text"], "x");
    let refused = create(&registry, "Post", json!({"metadata": {"generateName": "bad-"}})).await.unwrap_err();
    assert_eq!(refused.code.as_u16(), 403);
}

#[tokio::test]
async fn decoration_is_shown_and_never_stored() {
    let kind = post().decorate(|post| post.status = Some(Shown { length: post.spec.title.len() }));
    let registry = registry(kind);
    let made = create(&registry, "Post", named("a", json!({"title": "abc"}))).await.unwrap();
    assert_eq!(made["status"]["length"], 3);
    let kind = kind_of(&registry, "v1");
    // The controller that writes back what it has read stores no decoration either.
    let written = registry.update(&kind, "default", "a", made, &WriteOptions::default()).await.unwrap();
    assert_eq!(written.object.value()["status"]["length"], 3);
    let list = registry.list(&kind, "default", &ListOptions::default()).await.unwrap();
    assert_eq!(list.objects[0].value()["status"]["length"], 3);
    let (record, _) = registry.storage().get("posts.blog.example.com/default/a").await.unwrap();
    assert!(!String::from_utf8_lossy(&record.unwrap().value).contains("length"));
}

#[derive(Serialize, Deserialize)]
struct OldPost {
    spec: OldSpec,
}

#[derive(Serialize, Deserialize)]
struct OldSpec {
    name: String,
}

fn in_two_versions() -> TypedKind<Post> {
    let old = Version::new(
        "v1alpha1",
        |old: OldPost| {
            let spec = Spec { title: old.spec.name, author: None, tags: Vec::new() };
            Ok::<_, &str>(Post { spec, status: None })
        },
        |hub: Post| match hub.spec.tags.is_empty() {
            true => Ok(OldPost { spec: OldSpec { name: hub.spec.title } }),
            false => Err("v1alpha1 has no tags"),
        },
    );
    post().version(old)
}

#[tokio::test]
async fn the_stored_version_moves_as_objects_are_written_or_migrated() {
    let storage: Arc<dyn Storage> = Arc::new(Memory::default());
    let before = over(Arc::clone(&storage), Kind::of::<OldPost>(GROUP, "v1alpha1", "Post"));
    for name in ["a", "b"] {
        create(&before, "Post", named(name, json!({"name": "t"}))).await.unwrap();
    }
    let now = over(Arc::clone(&storage), in_two_versions());
    let kind = kind_of(&now, "v1");
    let read = now.get(&kind, "default", "a").await.unwrap().value();
    assert_eq!((&read["apiVersion"], &read["spec"]), (&json!("blog.example.com/v1"), &json!({"title": "t"})));
    let stored = async |name: &str| {
        let (record, _) = storage.get(&format!("posts.blog.example.com/default/{name}")).await.unwrap();
        let text = String::from_utf8_lossy(&record.unwrap().value[4..]).into_owned();
        serde_json::from_str::<Value>(&text).unwrap()["apiVersion"].clone()
    };
    assert_eq!(stored("a").await, "blog.example.com/v1alpha1");
    // An update that changes nothing moves it.
    now.modify(&kind, "default", "a", &WriteOptions::default(), |_| Ok(())).await.unwrap();
    assert_eq!(
        (stored("a").await, stored("b").await),
        (json!("blog.example.com/v1"), json!("blog.example.com/v1alpha1"))
    );
    assert_eq!((now.migrate(&kind).await.unwrap(), now.migrate(&kind).await.unwrap()), (1, 0));
    assert_eq!(stored("b").await, "blog.example.com/v1");
    // A program that has forgotten a version says so.
    let after = over(Arc::clone(&storage), Kind::of::<OldPost>(GROUP, "v1alpha1", "Post"));
    let lost = after.get(&kind_of(&after, "v1alpha1"), "default", "a").await.unwrap_err();
    assert!(
        lost.code.as_u16() == 500 && lost.message.contains("does not know that version any more"),
        "{}",
        lost.message
    );
}

#[tokio::test]
async fn a_conversion_that_fails_is_the_clients_fault_in_a_write_and_the_servers_in_a_read() {
    let registry = registry(in_two_versions());
    let (hub, old) = (kind_of(&registry, "v1"), kind_of(&registry, "v1alpha1"));
    create(&registry, "Post", named("a", json!({"title": "t", "tags": ["x"]}))).await.unwrap();
    let read = registry.get(&old, "default", "a").await.unwrap_err();
    assert!(read.code.as_u16() == 500 && read.message.contains("v1alpha1 has no tags"), "{}", read.message);
    let listed = registry.list(&old, "default", &ListOptions::default()).await.unwrap_err();
    assert_eq!(listed.code.as_u16(), 500);
    let events: Vec<_> = {
        use futures::{FutureExt, StreamExt};
        let selection = crate::registry::Selection::default();
        let mut watch = registry.watch(&old, "default", selection, crate::registry::From::After(1)).await.unwrap();
        std::iter::from_fn(|| watch.next().now_or_never().flatten()).collect()
    };
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].as_ref().unwrap_err().code.as_u16(), 500);
    // Through the version that is stored it can still be deleted.
    assert!(registry.delete(&hub, "default", "a", &DeleteOptions::default()).await.unwrap().gone);
}

#[tokio::test]
async fn a_write_in_a_version_is_answered_with_what_the_conversions_make_of_it() {
    let to_hub = |old: OldPost| {
        let title = if old.spec.name.is_empty() { "untitled".to_owned() } else { old.spec.name };
        Ok::<_, &str>(Post { spec: Spec { title, author: None, tags: Vec::new() }, status: None })
    };
    let from_hub = |hub: Post| Ok::<_, &str>(OldPost { spec: OldSpec { name: hub.spec.title } });
    let registry = registry(post().version(Version::new("v1alpha1", to_hub, from_hub)));
    let old = kind_of(&registry, "v1alpha1");
    let object = json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"name": "", "more": 1}});
    let made = registry.create(&old, "default", object, &WriteOptions::default()).await.unwrap().object.value();
    assert_eq!(made["spec"], json!({"name": "untitled"}));
    assert_eq!(made["metadata"]["labels"], json!({"x": "y"}));
    let read = registry.get(&old, "default", "a").await.unwrap().value();
    assert_eq!(read, made);
}

#[tokio::test]
async fn labels_and_annotations_outlive_a_conversion() {
    let registry = registry(in_two_versions());
    let old = kind_of(&registry, "v1alpha1");
    let object =
        json!({"metadata": {"name": "a", "labels": {"l": "1"}, "annotations": {"n": "2"}}, "spec": {"name": "t"}});
    registry.create(&old, "default", object, &WriteOptions::default()).await.unwrap();
    let value = registry.get(&kind_of(&registry, "v1"), "default", "a").await.unwrap().value();
    let metadata = &value["metadata"];
    assert_eq!((&metadata["labels"], &metadata["annotations"]), (&json!({"l": "1"}), &json!({"n": "2"})));
    assert_eq!(value["spec"]["title"], "t");
}

/// What a `CustomResource` of kube's derive says of itself.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "garden.example.com",
    version = "v1",
    kind = "Tree",
    namespaced,
    status = "TreeStatus",
    shortname = "tr"
)]
#[kube(printcolumn = r#"{"name":"Height", "type":"integer", "jsonPath":".spec.height"}"#)]
struct TreeSpec {
    height: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct TreeStatus {
    fruits: u32,
}

#[tokio::test]
async fn a_type_of_kubes_derive_is_served_without_a_wrapper() {
    let definition = serde_json::to_value(Tree::crd()).unwrap();
    let kind = Kind::defined::<Tree>(definition).validate(|tree, _| match tree.spec.height > 100 {
        true => vec![Cause::invalid("spec.height", &tree.spec.height.to_string(), "no tree is higher than 100")],
        false => Vec::new(),
    });
    let registry = registry(kind);
    let kind = registry.kind("garden.example.com", "Tree").unwrap();
    assert_eq!((kind.has_status, kind.short_names.as_slice()), (true, ["tr".to_owned()].as_slice()));
    assert!(kind.strategy.printer().unwrap().columns().contains("Height"));
    create(&registry, "Tree", named("a", json!({"height": 3}))).await.unwrap();
    let high = create(&registry, "Tree", named("b", json!({"height": 300}))).await.unwrap_err();
    assert!(high.message.contains("no tree is higher than 100"), "{}", high.message);
    let odd = create(&registry, "Tree", named("b", json!({"height": "x"}))).await.unwrap_err();
    assert!(odd.message.contains("must be of type integer"), "{}", odd.message);
}

#[tokio::test]
async fn a_type_of_k8s_openapi_is_kubernetes_own_kind_with_more_rules() {
    let kind = Kind::of::<ConfigMap>("", "v1", "ConfigMap").validate(|map, _| match map.data.is_some() {
        true => Vec::new(),
        false => vec![Cause::required("data", "this server has no empty maps")],
    });
    let registry = registry(kind);
    let refused = create(&registry, "ConfigMap", json!({"metadata": {"name": "a"}})).await.unwrap_err();
    assert_eq!(refused.message, "ConfigMap \"a\" is invalid: data: Required value: this server has no empty maps");
    // Kubernetes' own validation goes first.
    let odd = json!({"metadata": {"name": "a"}, "data": {"a b": "c"}});
    let refused = create(&registry, "ConfigMap", odd).await.unwrap_err();
    assert!(refused.message.contains("data[a b]: Invalid value"), "{}", refused.message);
    create(&registry, "ConfigMap", json!({"metadata": {"name": "a"}, "data": {"a": "c"}})).await.unwrap();
    let Err(error) = Kind::of::<Job>("batch", "v1", "Job").column("A", "string", ".a").build() else {
        panic!("a built-in kind with columns of somebody else's")
    };
    assert!(error.to_string().starts_with("batch/v1 Job is a built-in kind"), "{error}");
}

#[test]
fn a_kind_that_is_not_as_kubernetes_wants_it_is_refused_by_name() {
    let said = |kind: TypedKind<Post>| kind.build().err().map(|error| error.to_string()).unwrap();
    let group = said(Kind::of::<Post>("blog", "v1", "Post"));
    let why = "the kind posts.blog cannot be served: spec.group: Invalid value: \"blog\": should be a domain with at least \
               one dot";
    assert_eq!(group, why);
    let column = said(post().column("A", "text", "spec.a"));
    assert!(column.contains("additionalPrinterColumns[0].type: Invalid value: \"text\""), "{column}");
    let schema = said(post().schema_value(json!({"type": "object", "properties": {"a": {"$ref": "#/x"}}})));
    assert!(schema.contains("$ref"), "{schema}");
}

#[test]
fn a_version_without_a_conversion_is_refused() {
    let mut definition = post().definition().clone();
    let versions = definition["spec"]["versions"].as_array_mut().unwrap();
    let mut old = versions[0].clone();
    (old["name"], old["storage"]) = ("v1beta1".into(), false.into());
    versions.push(old);
    let error = Kind::defined::<Post>(definition).build().err().unwrap().to_string();
    assert!(error.starts_with("the version v1beta1 of posts.blog.example.com has no conversion"), "{error}");
}

#[test]
fn plurals_are_as_kubernetes_guesses_them() {
    assert_eq!(["post", "policy", "bus"].map(plural_of), ["posts", "policies", "buses"]);
}

#[tokio::test]
async fn finalizers_and_grace_are_the_kinds() {
    let kind =
        post().finalizer("blog.example.com/archive").grace(|post, asked| asked.or(Some(post.spec.title.len() as i64)));
    let registry = registry(kind);
    create(&registry, "Post", named("a", json!({"title": "abc"}))).await.unwrap();
    let kind = kind_of(&registry, "v1");
    let deleted = registry.delete(&kind, "default", "a", &DeleteOptions::default()).await.unwrap();
    let metadata = &deleted.object.value()["metadata"];
    assert!(!deleted.gone && metadata["deletionTimestamp"].is_string());
    assert_eq!(metadata["finalizers"], json!(["blog.example.com/archive"]));
    assert_eq!(metadata["deletionGracePeriodSeconds"], 3);
}

#[tokio::test]
async fn the_status_is_changed_by_its_own_path_alone_and_by_the_schema() {
    let kind = post().validate_status(|new, _, _| match &new.status {
        Some(shown) if shown.length > 9 => vec![Cause::forbidden("status.length", "is too long")],
        _ => Vec::new(),
    });
    let registry = registry(kind);
    create(&registry, "Post", named("a", json!({"title": "abc"}))).await.unwrap();
    let kind = kind_of(&registry, "v1");
    let options = WriteOptions { part: Part::Status, ..WriteOptions::default() };
    let set = async |status: Value, options: &WriteOptions| {
        let change = |object: &mut Value| {
            object["status"] = status.clone();
            Ok(())
        };
        registry.modify(&kind, "default", "a", options, change).await.map(|written| written.object.value())
    };
    assert_eq!(set(json!({"length": 1}), &WriteOptions::default()).await.unwrap().get("status"), None);
    assert_eq!(set(json!({"length": 1}), &options).await.unwrap()["status"]["length"], 1);
    let refused = set(json!({"length": "x"}), &options).await.unwrap_err();
    assert!(refused.message.contains("must be of type integer"), "{}", refused.message);
    let refused = set(json!({"length": 10}), &options).await.unwrap_err();
    assert!(refused.message.contains("status.length: Forbidden: is too long"), "{}", refused.message);
}

#[test]
fn a_definition_says_the_same_to_a_kube_apiserver() {
    let kind = post().short_name("po").column("Title", "string", ".spec.title");
    let definition = kind.definition();
    assert_eq!(definition["metadata"]["name"], "posts.blog.example.com");
    let version = &definition["spec"]["versions"][0];
    assert_eq!(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"], json!(["title"]));
    assert_eq!(version["subresources"], json!({"status": {}}));
}
