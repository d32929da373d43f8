//! Autoscalers: of version 2, and of version 1, which keeps in annotations what it has no fields for.
//!
//! Source: kubernetes `pkg/apis/autoscaling/v1/conversion.go`.

use serde::Deserialize;
use serde_json::Error;

use crate::{
    cells::Cells,
    kinds::Annotated,
    object::{List, Map, Object, Text},
};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
/// What a kube-apiserver takes for the target where version 1 names none.
const DEFAULT_CPU_PERCENT: i64 = 80;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Autoscaler<'a> {
    api_version: Text<'a>,
    spec: Spec<'a>,
    status: Status<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Spec<'a> {
    scale_target_ref: Reference<'a>,
    min_replicas: Option<i64>,
    max_replicas: i64,
    metrics: List<Metric<'a>>,
    #[serde(rename = "targetCPUUtilizationPercentage")]
    target_cpu: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Reference<'a> {
    kind: Text<'a>,
    name: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Status<'a> {
    current_replicas: i64,
    current_metrics: List<Metric<'a>>,
    #[serde(rename = "currentCPUUtilizationPercentage")]
    current_cpu: Option<i64>,
}

/// A metric's specification or status, of either version.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Metric<'a> {
    #[serde(rename = "type")]
    type_: Text<'a>,
    resource: Option<Source<'a>>,
    container_resource: Option<Source<'a>>,
    pods: Option<Source<'a>>,
    object: Option<Source<'a>>,
    external: Option<Source<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Source<'a> {
    name: Text<'a>,
    /// In version 1 an object's `target` is a reference, which has none of these fields.
    target: Amount<'a>,
    current: Amount<'a>,
    // As version 1 has them, in annotations.
    target_average_utilization: Option<i64>,
    target_average_value: Option<Text<'a>>,
    target_value: Option<Text<'a>>,
    current_average_utilization: Option<i64>,
    current_average_value: Option<Text<'a>>,
    current_value: Option<Text<'a>>,
    average_value: Option<Text<'a>>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Amount<'a> {
    average_utilization: Option<i64>,
    average_value: Option<Text<'a>>,
    value: Option<Text<'a>>,
}

/// `printHorizontalPodAutoscaler`
pub(super) fn horizontal_pod_autoscaler(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Autoscaler { api_version, spec, status } = object.read()?;
    let metadata: Annotated<'_>;
    let (specs, statuses) = if api_version.as_str() == "autoscaling/v1" {
        metadata = object.read_metadata()?;
        (targets_of_v1(&spec, &metadata.annotations), currents_of_v1(&status, &metadata.annotations))
    } else {
        (spec.metrics.0, status.current_metrics.0)
    };
    cells.name();
    cells.print(format_args!("{}/{}", spec.scale_target_ref.kind.0, spec.scale_target_ref.name.0));
    cells.text(&metrics(&specs, &statuses));
    match spec.min_replicas {
        Some(min) => cells.print(format_args!("{min}")),
        None => cells.text("<unset>"),
    }
    cells.number(spec.max_replicas);
    cells.number(status.current_replicas);
    cells.age();
    Ok(())
}

fn cpu<'a>(target: Option<i64>, current: Option<i64>) -> Metric<'a> {
    let amount = |percent| Amount { average_utilization: percent, ..Amount::default() };
    let source =
        Source { name: Text("cpu".into()), target: amount(target), current: amount(current), ..Source::default() };
    Metric { type_: Text("Resource".into()), resource: Some(source), ..Metric::default() }
}

fn targets_of_v1<'a>(spec: &Spec<'_>, annotations: &'a Map<'_>) -> Vec<Metric<'a>> {
    let others = annotations.get(METRICS).and_then(|text| serde_json::from_str::<List<Metric<'a>>>(text).ok());
    let mut metrics: Vec<Metric<'a>> = others.unwrap_or_default().0.into_iter().map(Metric::of_v1).collect();
    metrics.extend(spec.target_cpu.map(|percent| cpu(Some(percent), None)));
    if metrics.is_empty() {
        metrics.push(cpu(Some(DEFAULT_CPU_PERCENT), None));
    }
    metrics
}

fn currents_of_v1<'a>(status: &Status<'_>, annotations: &'a Map<'_>) -> Vec<Metric<'a>> {
    let known = annotations.get(CURRENT_METRICS).and_then(|text| serde_json::from_str::<List<Metric<'a>>>(text).ok());
    match known {
        Some(metrics) => metrics.0.into_iter().map(Metric::of_v1).collect(),
        None => status.current_cpu.map(|percent| cpu(None, Some(percent))).into_iter().collect(),
    }
}

impl Metric<'_> {
    /// Puts the fields of version 1 where version 2 has them.
    fn of_v1(mut self) -> Self {
        let sources =
            [&mut self.resource, &mut self.container_resource, &mut self.pods, &mut self.object, &mut self.external];
        for (at, source) in sources.into_iter().enumerate() {
            let Some(source) = source else { continue };
            // Only an object's own average has its plain name, in its specification and its status.
            let average = source.average_value.take().filter(|_| at == 3);
            source.target = Amount {
                average_utilization: source.target_average_utilization,
                average_value: source.target_average_value.take().or_else(|| average.clone()),
                value: source.target_value.take(),
            };
            source.current = Amount {
                average_utilization: source.current_average_utilization,
                average_value: source.current_average_value.take().or(average),
                value: source.current_value.take(),
            };
        }
        self
    }
}

/// `formatHPAMetrics`
fn metrics(specs: &[Metric<'_>], statuses: &[Metric<'_>]) -> String {
    const SHOWN_MAX: usize = 2;
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let shown = specs.iter().zip(statuses.iter().map(Some).chain(std::iter::repeat(None))).take(SHOWN_MAX);
    let list: Vec<String> = shown.map(|(spec, status)| metric(spec, status)).collect();
    let list = list.join(", ");
    if specs.len() > SHOWN_MAX { format!("{list} + {} more...", specs.len() - SHOWN_MAX) } else { list }
}

/// One metric: how much there is, and how much there is to be.
fn metric(spec: &Metric<'_>, status: Option<&Metric<'_>>) -> String {
    let none = Source::default();
    match spec.type_.as_str() {
        "External" => value(spec.external.as_ref().unwrap_or(&none), status.and_then(|one| one.external.as_ref())),
        "Object" => value(spec.object.as_ref().unwrap_or(&none), status.and_then(|one| one.object.as_ref())),
        "Pods" => {
            let current = status.and_then(|one| one.pods.as_ref());
            let current = current.map_or("<unknown>", |one| quantity(one.current.average_value.as_ref()));
            let target = spec.pods.as_ref().unwrap_or(&none).target.average_value.as_ref();
            format!("{current}/{}", quantity(target))
        }
        "Resource" => share(spec.resource.as_ref().unwrap_or(&none), status.and_then(|one| one.resource.as_ref())),
        "ContainerResource" => share(
            spec.container_resource.as_ref().unwrap_or(&none),
            status.and_then(|one| one.container_resource.as_ref()),
        ),
        _ => "<unknown type>".to_owned(),
    }
}

fn value(spec: &Source<'_>, status: Option<&Source<'_>>) -> String {
    if let Some(target) = &spec.target.average_value {
        let current = status.and_then(|one| one.current.average_value.as_ref()).map_or("<unknown>", Text::as_str);
        return format!("{current}/{} (avg)", target.0);
    }
    let current = status.map_or("<unknown>", |one| quantity(one.current.value.as_ref()));
    format!("{current}/{}", quantity(spec.target.value.as_ref()))
}

fn share(spec: &Source<'_>, status: Option<&Source<'_>>) -> String {
    let name = &spec.name.0;
    if let Some(target) = &spec.target.average_value {
        let current = status.map_or("<unknown>", |one| quantity(one.current.average_value.as_ref()));
        return format!("{name}: {current}/{}", target.0);
    }
    let percent = |percent: i64| format!("{percent}%");
    let current =
        status.and_then(|one| one.current.average_utilization).map_or_else(|| "<unknown>".to_owned(), percent);
    let target = spec.target.average_utilization.map_or_else(|| "<auto>".to_owned(), percent);
    format!("{name}: {current}/{target}")
}

/// As Go prints a pointer to a quantity.
fn quantity<'t>(quantity: Option<&'t Text<'_>>) -> &'t str {
    quantity.map_or("<nil>", Text::as_str)
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Scale {
    spec: Replicas,
    status: Replicas,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Replicas {
    replicas: i64,
}

/// `printScale`
pub(super) fn scale(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Scale { spec, status } = object.read()?;
    cells.name();
    cells.number(spec.replicas);
    cells.number(status.replicas);
    cells.age();
    Ok(())
}
