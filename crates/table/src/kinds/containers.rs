//! What cells tell of the containers in a template.

use serde::Deserialize;

use crate::{
    cells::Cells,
    kinds::joined,
    object::{List, Map, Text},
};

/// A pod's template.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct Template<'a> {
    pub(super) metadata: TemplateMetadata<'a>,
    pub(super) spec: TemplateSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub(super) struct TemplateMetadata<'a> {
    pub(super) labels: Map<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct TemplateSpec<'a> {
    containers: List<Container<'a>>,
    pub(super) node_selector: Map<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Container<'a> {
    name: Text<'a>,
    image: Text<'a>,
}

impl Template<'_> {
    /// Names and images, each as one cell.
    pub(super) fn containers(&self, cells: &mut Cells<'_>) {
        let containers = &self.spec.containers;
        cells.text(&joined(containers.iter().map(|container| container.name.as_str()), ","));
        cells.text(&joined(containers.iter().map(|container| container.image.as_str()), ","));
    }
}
