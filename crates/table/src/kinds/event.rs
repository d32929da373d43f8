//! Events, of both groups.

use serde::Deserialize;
use serde_json::Error;

use crate::{
    cells::Cells,
    duration::parse_time,
    object::{Object, Text},
};

/// Both groups' fields: the names differ, the objects are the same.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Event<'a> {
    #[serde(alias = "deprecatedFirstTimestamp")]
    first_timestamp: Text<'a>,
    #[serde(alias = "deprecatedLastTimestamp")]
    last_timestamp: Text<'a>,
    event_time: Text<'a>,
    #[serde(alias = "deprecatedCount")]
    count: i64,
    series: Option<Series<'a>>,
    #[serde(rename = "type")]
    type_: Text<'a>,
    reason: Text<'a>,
    #[serde(alias = "regarding")]
    involved_object: Reference<'a>,
    #[serde(alias = "deprecatedSource")]
    source: Source<'a>,
    #[serde(alias = "reportingController")]
    reporting_component: Text<'a>,
    reporting_instance: Text<'a>,
    #[serde(alias = "note")]
    message: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Series<'a> {
    count: i64,
    last_observed_time: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Reference<'a> {
    kind: Text<'a>,
    name: Text<'a>,
    field_path: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Source<'a> {
    component: Text<'a>,
    host: Text<'a>,
}

/// `printEvent`
pub(super) fn event(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let event: Event<'_> = object.read()?;
    let time = |text: &Text<'_>| parse_time(text.as_str());
    let first = time(&event.first_timestamp).or_else(|| time(&event.event_time));
    let last = match &event.series {
        Some(series) => time(&series.last_observed_time),
        None => time(&event.last_timestamp).or(first),
    };
    let count = match &event.series {
        Some(series) => series.count,
        None if event.count == 0 => 1,
        None => event.count,
    };
    cells.since(last);
    cells.text(event.type_.as_str());
    cells.text(event.reason.as_str());
    let Reference { kind, name, field_path } = &event.involved_object;
    let kind = kind.0.to_lowercase();
    if name.is_empty() {
        cells.text(&kind);
    } else {
        cells.print(format_args!("{kind}/{}", name.0));
    }
    cells.text(field_path.as_str());
    let component = event.source.component.or(event.reporting_component.as_str());
    match event.source.host.or(event.reporting_instance.as_str()) {
        "" => cells.text(component),
        instance => cells.print(format_args!("{component}, {instance}")),
    }
    cells.text(event.message.as_str().trim());
    cells.since(first);
    cells.number(count);
    cells.name();
    Ok(())
}
