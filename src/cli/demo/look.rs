//! The first look at the fleet, for whoever has no kubectl at hand: the Table that kubectl would print.

use std::path::Path;

use anyhow::Context;
use http::Request;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::Deserialize;

use crate::cli::status::table;

/// Rows that are shown.
const ROWS: usize = 12;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Table {
    metadata: Metadata,
    column_definitions: Vec<Column>,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    remaining_item_count: u64,
}

#[derive(Deserialize)]
struct Column {
    name: String,
    priority: u8,
}

#[derive(Deserialize)]
struct Row {
    cells: Vec<serde_json::Value>,
    object: Partial,
}

#[derive(Deserialize)]
struct Partial {
    metadata: Named,
}

#[derive(Deserialize)]
struct Named {
    namespace: String,
}

/// The first pods of all members, as kubectl prints them.
pub(super) async fn pods(kubeconfig: &Path) -> anyhow::Result<String> {
    let read = Kubeconfig::read_from(kubeconfig).context("cannot read the kubeconfig that was just written")?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    let request = Request::get(format!("/api/v1/pods?limit={ROWS}"))
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())?;
    let list: Table = Client::try_from(config)?.request(request).await.context("the first list of pods failed")?;
    let shown: Vec<usize> = (0..list.column_definitions.len())
        .filter(|index| list.column_definitions.get(*index).is_some_and(|column| column.priority == 0))
        .collect();
    let head = shown.iter().filter_map(|index| list.column_definitions.get(*index));
    let head = std::iter::once("NAMESPACE".to_owned()).chain(head.map(|column| column.name.to_uppercase()));
    let row = |row: &Row| {
        let cells = shown.iter().filter_map(|index| row.cells.get(*index));
        let cells = cells.map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned));
        std::iter::once(row.object.metadata.namespace.clone()).chain(cells).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = std::iter::once(head.collect()).chain(list.rows.iter().map(row)).collect();
    Ok(format!("{}... and {} more\n", table(&rows), list.metadata.remaining_item_count))
}
