//! What a table costs: 15,000 pods of about 6 KB as `kubectl get pods -A` asks for them, against a copy of their bytes.
//!
//! `cargo bench --bench table -- --test` runs a hundredth of that once.
#![allow(clippy::unwrap_used, missing_docs, reason = "a bench panics where it is wrong")]

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use kubefold_table::{Now, Object, Printer};

const COLUMN: &str = r#"{"name":"Cluster","type":"string","format":"","description":"","priority":0}"#;

fn main() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let pods: Vec<Pod> = (0..if is_test { 150 } else { 15_000 }).map(Pod::new).collect();
    let bytes = pods.iter().map(|pod| pod.json.len() as u64).sum();
    let mut criterion = Criterion::default().configure_from_args().sample_size(10).without_plots();
    let mut group = criterion.benchmark_group("table");
    group.throughput(Throughput::Bytes(bytes));
    group.bench_function("pods", |bencher| bencher.iter(|| print(&pods)));
    group.bench_function("copy", |bencher| {
        bencher.iter(|| {
            let mut out = Vec::with_capacity(128 << 10);
            for pod in &pods {
                out.clear();
                out.extend_from_slice(pod.json.as_bytes());
                black_box(&out);
            }
        });
    });
    group.finish();
    criterion.final_summary();
}

/// A whole table in one chunk after the other, each row with its object's metadata.
fn print(pods: &[Pod]) -> usize {
    let printer = Printer::built_in("", "Pod").unwrap().with_second_column(COLUMN);
    let now = Now(1_800_000_000_000_000);
    let (mut out, mut len) = (Vec::with_capacity(128 << 10), 0);
    for pod in pods {
        let object = Object::known(&pod.json, pod.metadata.clone(), &pod.name, false).with_second_cell("east");
        out.push(b'{');
        printer.write_cells(&object, now, &mut out);
        out.extend_from_slice(
            b",\"object\":{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":",
        );
        out.extend_from_slice(object.metadata_json().as_bytes());
        out.extend_from_slice(b"}},");
        if out.len() > 128 << 10 {
            len += out.len();
            black_box(&out);
            out.clear();
        }
    }
    len + out.len()
}

struct Pod {
    json: String,
    metadata: std::ops::Range<usize>,
    name: String,
}

impl Pod {
    fn new(at: usize) -> Self {
        let name = format!("web-{at:05}-x7k2p@east");
        let fields = "\\\"f:metadata\\\":{\\\"f:labels\\\":{\\\".\\\":{},\\\"f:app\\\":{}}},".repeat(40);
        let metadata = format!(
            "{{\"name\":\"{name}\",\"generateName\":\"web-\",\"namespace\":\"shop-{}\",\"uid\":\"11111111-2222-3333-4444-{at:012}\",\
             \"resourceVersion\":\"{}\",\"generation\":1,\"creationTimestamp\":\"2026-11-21T10:00:00Z\",\"labels\":{{\"app\":\"web\",\
             \"tier\":\"front\"}},\"managedFields\":[{{\"manager\":\"kubelet\",\"operation\":\"Update\",\"apiVersion\":\"v1\",\
             \"fieldsType\":\"FieldsV1\",\"fieldsV1\":\"{fields}\"}}]}}",
            at % 20,
            100_000 + at
        );
        let env: Vec<String> = (0..24)
            .map(|n| format!("{{\"name\":\"VARIABLE_{n}\",\"value\":\"some value of the variable number {n}\"}}"))
            .collect();
        let status = |name: &str| {
            format!(
                "{{\"name\":\"{name}\",\"state\":{{\"running\":{{\"startedAt\":\"2026-11-21T10:00:03Z\"}}}},\"lastState\":{{\"terminated\":\
                 {{\"exitCode\":1,\"reason\":\"Error\",\"startedAt\":\"2026-11-21T10:00:01Z\",\"finishedAt\":\"2026-11-21T10:00:02Z\"}}}},\
                 \"ready\":true,\"restartCount\":{},\"image\":\"registry.local/team/web:1.2.3\",\"imageID\":\"sha256:0123456789abcdef\",\
                 \"containerID\":\"containerd://0123456789abcdef\",\"started\":true}}",
                at % 5
            )
        };
        let condition = |name: &str| {
            format!(
                "{{\"type\":\"{name}\",\"observedGeneration\":1,\"status\":\"True\",\"lastProbeTime\":null,\
                 \"lastTransitionTime\":\"2026-11-21T10:00:03Z\"}}"
            )
        };
        let conditions: Vec<String> =
            ["Initialized", "Ready", "ContainersReady", "PodScheduled"].into_iter().map(condition).collect();
        let json = format!(
            "{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{metadata},\"spec\":{{\"containers\":[{{\"name\":\"main\",\
             \"image\":\"registry.local/team/web:1.2.3\",\"env\":[{}],\"resources\":{{}}}},{{\"name\":\"proxy\",\
             \"image\":\"registry.local/team/proxy:1\",\"resources\":{{}}}}],\"restartPolicy\":\"Always\",\
             \"nodeName\":\"node-{}@east\",\"schedulerName\":\"default-scheduler\"}},\"status\":{{\"phase\":\"Running\",\
             \"conditions\":[{}],\"hostIP\":\"10.0.0.1\",\"podIP\":\"10.1.2.3\",\"podIPs\":[{{\"ip\":\"10.1.2.3\"}}],\
             \"startTime\":\"2026-11-21T10:00:00Z\",\"containerStatuses\":[{},{}],\"qosClass\":\"BestEffort\"}}}}",
            env.join(","),
            at % 100,
            conditions.join(","),
            status("main"),
            status("proxy")
        );
        let start = json.find(&metadata).unwrap();
        Self { metadata: start..start + metadata.len(), json, name }
    }
}
