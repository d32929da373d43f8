use serde_json::{Value, json};

use super::*;

const NOW: Now = Now(1_700_000_000_000_000);

const ZONE: &str = r#"{"name":"Zone","type":"string","format":"","description":"","priority":0}"#;

fn row(printer: &Printer, object: &Value, zone: &str) -> Value {
    let text = object.to_string();
    let mut out = b"{".to_vec();
    printer.write_cells(&Object::new(&text).with_second_cell(zone), NOW, &mut out);
    out.push(b'}');
    serde_json::from_slice(&out).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&out)))
}

fn pod(status: Value) -> Value {
    json!({
        "metadata": {"name": "web", "creationTimestamp": "2023-11-14T22:00:00Z", "managedFields": [{"spec": {"containers": 7}}]},
        "spec": {"containers": [{"name": "a"}], "nodeName": "node-0@east"},
        "status": status,
    })
}

#[test]
fn a_column_of_the_caller_stands_second_in_columns_and_cells() {
    let printer = Printer::built_in("", "Pod").unwrap().with_second_column(ZONE);
    let columns: Value = serde_json::from_str(&format!("[{}]", printer.columns())).unwrap();
    let names: Vec<&str> = columns.as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(names[..4], ["Name", "Zone", "Ready", "Status"]);
    let status = json!({"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{"name": "a", "ready": true, "restartCount": 2,
        "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2023-11-14T22:08:20Z"}}}]});
    assert_eq!(
        row(&printer, &pod(status), "east"),
        json!({"cells": ["web", "east", "1/1", "Running", "2 (5m ago)", "13m", "10.0.0.1", "node-0@east", "<none>", "<none>"]})
    );
}

#[test]
fn a_pod_that_is_over_says_so_beside_its_cells() {
    let printer = Printer::built_in("", "Pod").unwrap();
    let done = row(&printer, &pod(json!({"phase": "Succeeded"})), "");
    assert_eq!(done["conditions"][0]["reason"], "Succeeded");
    assert_eq!(done["cells"][1], "0/1");
}

#[test]
fn a_row_is_as_long_as_the_columns_whatever_the_object_is() {
    for (key, printer) in every_printer() {
        let columns: Vec<Value> = serde_json::from_str(&format!("[{}]", printer.columns())).unwrap();
        for object in [
            json!({}),
            json!({"metadata": {"name": "x"}}),
            json!({"metadata": {"name": "x"}, "spec": 7, "status": []}),
            json!({"metadata": {"name": "x"}, "spec": null, "status": null, "data": null}),
            json!({"metadata": [], "spec": {"containers": {}, "ports": [[]], "rules": "x"}}),
        ] {
            let row = row(&printer, &object, "east");
            let cells = row["cells"].as_array().unwrap().len();
            let is_as_long = cells == columns.len() || (key.ends_with("/IPAddress") && cells == columns.len() + 1);
            assert!(is_as_long, "{key}: {object}: {row}");
            assert_eq!(row["cells"][1], "east", "{key}");
        }
    }
}

/// Each kind of `columns.txt`, so that none is printed by another's function.
fn every_printer() -> Vec<(String, Printer)> {
    let keys = include_str!("columns.txt").lines().filter_map(|line| line.strip_prefix("kind "));
    let known = keys.filter(|key| *key != "meta.k8s.io/Status");
    let mut printers: Vec<(String, Printer)> = known
        .map(|key| {
            let (group, kind) = key.split_once('/').unwrap();
            (key.to_owned(), Printer::built_in(group, kind).unwrap().with_second_column(ZONE))
        })
        .collect();
    assert!(printers.len() > 60);
    let column = DefinedColumn {
        name: "A".into(),
        type_: "string".into(),
        json_path: ".a[0]".into(),
        ..DefinedColumn::default()
    };
    printers.push(("custom".to_owned(), Printer::custom(&Definition(vec![column])).with_second_column(ZONE)));
    printers.push(("aged".to_owned(), Printer::custom(&Definition::default()).with_second_column(ZONE)));
    printers.push(("plain".to_owned(), Printer::plain().with_second_column(ZONE)));
    printers
}

#[test]
fn every_kind_with_columns_has_a_function_that_fills_them() {
    for line in include_str!("columns.txt").lines() {
        let Some((group, kind)) = line.strip_prefix("kind ").and_then(|key| key.split_once('/')) else { continue };
        if ["Status", "CSIStorageCapacity"].contains(&kind) {
            continue;
        }
        assert!(kinds::of(group, kind).is_some(), "{line}");
        // Filled by it: an empty object needs no cells that stand in for missing ones.
        let printer = Printer::built_in(group, kind).unwrap();
        let named = json!({"metadata": {"name": "x"}});
        let row = row(&printer, &named, "east");
        assert!(!row["cells"].as_array().unwrap().contains(&Value::Null), "{line}: {row}");
    }
}

#[test]
fn an_autoscaler_of_version_1_prints_as_one_of_version_2() {
    let printer = Printer::built_in("autoscaling", "HorizontalPodAutoscaler").unwrap();
    let metrics = json!([{"type": "Pods", "pods": {"metricName": "hits", "targetAverageValue": "3"}}]).to_string();
    let current = json!([{"type": "Pods", "pods": {"metricName": "hits", "currentAverageValue": "2"}}]).to_string();
    let object = json!({
        "apiVersion": "autoscaling/v1",
        "metadata": {"name": "x", "annotations": {"autoscaling.alpha.kubernetes.io/metrics": metrics,
            "autoscaling.alpha.kubernetes.io/current-metrics": current}},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 5, "targetCPUUtilizationPercentage": 70},
    });
    assert_eq!(row(&printer, &object, "")["cells"][2], "2/3, cpu: <unknown>/70%");
}
