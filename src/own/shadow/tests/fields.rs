//! Columns and labels of the configuration.

use futures::StreamExt;
use http::{HeaderValue, header};

use super::*;
use crate::config::{ItemColumn, ItemLabel, ItemPath, KindPattern, ShadowFields};
use kubefold_apiserver::registry::{Event, From, ListOptions, Selection};
use kubefold_serving::caller::Caller;
use kubefold_wire::selector::LabelSelector;

fn path(kind: &str, path: &str) -> ItemPath {
    ItemPath { kinds: vec![KindPattern { kind: kind.to_owned(), group: None }], path: path.to_owned() }
}

fn column(name: &str, type_: &str, value: ItemPath) -> ItemColumn {
    ItemColumn { name: name.to_owned(), type_: type_.to_owned(), priority: 0, description: String::new(), value }
}

/// The version that a config map says, and what a Secret says.
fn fields() -> ShadowFields {
    let columns = vec![
        column("Version", "string", path("ConfigMap", ".data.a")),
        column("Copies", "integer", path("ConfigMap", ".metadata.annotations.copies")),
        column("Hidden", "string", path("Secret", ".data.p")),
    ];
    let labels = vec![ItemLabel { key: "store/version".to_owned(), value: path("ConfigMap", ".data.a") }];
    ShadowFields { columns, labels }
}

fn selected(value: &str) -> Selection {
    Selection { labels: LabelSelector::parse(&format!("store/version={value}")).unwrap(), ..Selection::default() }
}

async fn edit(fleet: &Fleet, to: &str) {
    let kind = fleet.registry().kind("", "ConfigMap").unwrap();
    let change = |map: &mut Value| {
        map["data"]["a"] = to.into();
        Ok(())
    };
    fleet.registry().modify(&kind, "default", "a", &WriteOptions::default(), change).await.unwrap();
}

/// The names of the columns, and the cells of the first row.
async fn table(process: &Process) -> [Vec<String>; 2] {
    let mut request = Request::new(kubefold_wire::body::empty());
    *request.uri_mut() = "/apis/kubefold.io/v1alpha1/namespaces/default/shadowresources".parse().unwrap();
    let accept = HeaderValue::from_static("application/json;as=Table;v=v1;g=meta.k8s.io");
    request.headers_mut().insert(header::ACCEPT, accept);
    let answer = process.running.service().answer(request).await.into_body().collect().await.unwrap().to_bytes();
    let table: Value = serde_json::from_slice(&answer).unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap();
    let columns = columns.iter().map(|column| text(column, "/name").to_owned()).collect();
    let cells = table["rows"][0]["cells"].as_array().unwrap().iter().map(Value::to_string).collect();
    [columns, cells]
}

fn with_secret(data: &str) -> Value {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"p": "topsecret"}});
    app(&[secret, map("a", data)])
}

#[tokio::test]
async fn columns_show_values_of_the_items_and_are_stored_nowhere() {
    let (fleet, storage) = (Fleet::new().await, memory());
    let process = Process::new(&fleet, &storage).await;
    process.create(with_secret("7.2")).await.unwrap();
    assert_eq!(table(&process).await[0], ["Name", "Ready", "Status", "Age"]);
    process.shadow.configure(&fields());
    let [columns, cells] = table(&process).await;
    assert_eq!(columns, ["Name", "Ready", "Status", "Version", "Copies", "Hidden", "Age"]);
    // What is not there is nothing, as in a column of a custom resource.
    assert_eq!(cells[3..6], ["\"7.2\"", "null", "\"dG9wc2VjcmV0\""]);
    // A value of a column is an event, and the next list has it.
    let before = process.get().await.unwrap();
    edit(&fleet, "8.0").await;
    let after = process.get().await.unwrap();
    assert_ne!(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
    assert_eq!(table(&process).await[1][3], "\"8.0\"");
    for record in &storage.range(Default::default()).await.unwrap().records {
        let stored = String::from_utf8_lossy(&record.value).into_owned();
        assert!(!stored.contains("topsecret") && !stored.contains("dG9wc2VjcmV0"), "{stored}");
    }
    process.shadow.configure(&ShadowFields::default());
    assert_eq!(table(&process).await[0], ["Name", "Ready", "Status", "Age"]);
}

#[tokio::test]
async fn a_column_shows_nothing_of_an_item_that_the_caller_may_not_read() {
    let (fleet, storage) = (Fleet::new().await, memory());
    let process = Process::new(&fleet, &storage).await;
    process.shadow.configure(&fields());
    process.create(with_secret("7.2")).await.unwrap();
    let jane = Caller { user: BLIND.to_owned(), ..Caller::default() };
    let hers = process.running.registry().acting_as(jane);
    let shown = hers.get(&process.kind, "default", "app").await.unwrap().value();
    assert_eq!(shown["status"]["columns"], json!([{"name": "Version", "value": "7.2"}]));
    let mine = process.get().await.unwrap();
    assert_eq!(mine["status"]["columns"][1], json!({"name": "Hidden", "value": "dG9wc2VjcmV0"}));
    assert_eq!(mine["metadata"]["resourceVersion"], shown["metadata"]["resourceVersion"], "one revision for both");
    let listed = hers.list(&process.kind, "default", &ListOptions::default()).await.unwrap();
    assert!(!listed.objects[0].value().to_string().contains("Hidden"));
}

#[tokio::test]
async fn labels_select_in_lists_and_watches_and_an_object_leaves_with_its_value() {
    let (fleet, storage) = (Fleet::new().await, memory());
    let process = Process::new(&fleet, &storage).await;
    process.shadow.configure(&fields());
    let registry = process.running.registry();
    process.create(with_secret("7.2")).await.unwrap();
    let listed = async |value: &str| {
        let options = ListOptions { selection: selected(value), ..ListOptions::default() };
        registry.list(&process.kind, "default", &options).await.unwrap().objects.len()
    };
    assert_eq!((listed("7.2").await, listed("8.0").await), (1, 0));
    let at = From::After(registry.revision().await.unwrap());
    let mut seven = registry.watch(&process.kind, "default", selected("7.2"), at).await.unwrap();
    let mut eight = registry.watch(&process.kind, "default", selected("8.0"), at).await.unwrap();
    edit(&fleet, "8.0").await;
    let now = process.get().await.unwrap();
    assert_eq!(now["metadata"]["labels"]["store/version"], "8.0");
    let Event::Deleted(left) = seven.next().await.unwrap().unwrap() else { panic!("it does not match any more") };
    assert_eq!(left.revision().to_string(), text(&now, "/metadata/resourceVersion"));
    let Event::Added(came) = eight.next().await.unwrap().unwrap() else { panic!("it matches now") };
    assert_eq!(came.value()["metadata"]["labels"]["store/version"], "8.0");
    assert_eq!((listed("7.2").await, listed("8.0").await), (0, 1));
    // What cannot be the value of a label is none.
    edit(&fleet, "not a label!").await;
    assert!(process.get().await.unwrap()["metadata"].get("labels").is_none());
}

#[tokio::test]
async fn computed_labels_are_nobodys_and_go_with_their_configuration() {
    let (fleet, storage) = (Fleet::new().await, memory());
    let process = Process::new(&fleet, &storage).await;
    process.shadow.configure(&fields());
    let mut mine = app(&[map("a", "7.2")]);
    mine["metadata"]["labels"] = json!({"team": "shop", "store/version": "client"});
    process.apply(mine.clone()).await.unwrap();
    let first = process.get().await.unwrap();
    assert_eq!(first["metadata"]["labels"], json!({"team": "shop", "store/version": "7.2"}));
    // Applied and written again: no change, whatever the client says of the computed label.
    process.apply(mine.clone()).await.unwrap();
    process.replace(app(&[map("a", "7.2")])).await.unwrap();
    process.replace(mine).await.unwrap();
    let again = process.get().await.unwrap();
    assert_eq!(again["metadata"]["labels"], first["metadata"]["labels"]);
    process.replace(again.clone()).await.unwrap();
    assert_eq!(process.get().await.unwrap()["metadata"]["resourceVersion"], again["metadata"]["resourceVersion"]);
    let shown = again["status"].as_object().unwrap();
    assert!(!shown.contains_key("labels") && !shown.contains_key("columnsDigest"), "{shown:?}");
    process.shadow.configure(&ShadowFields::default());
    let without = process.get().await.unwrap();
    assert_eq!(without["metadata"]["labels"], json!({"team": "shop"}));
    assert_ne!(without["metadata"]["resourceVersion"], again["metadata"]["resourceVersion"]);
}
