//! Which columns a kube-apiserver has for each kind.

use std::{collections::HashMap, sync::LazyLock};

/// Written by `tests/testbed/table-columns`.
const TEXT: &str = include_str!("columns.txt");

struct Columns {
    kinds: HashMap<(&'static str, &'static str), Vec<&'static str>>,
    name: &'static str,
    age: &'static str,
}

static COLUMNS: LazyLock<Columns> = LazyLock::new(|| {
    let mut columns = Columns { kinds: HashMap::new(), name: "", age: "" };
    let mut kind = ("", "");
    for line in TEXT.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("name ") {
            columns.name = name;
        } else if let Some(age) = line.strip_prefix("age ") {
            columns.age = age;
        } else if let Some(key) = line.strip_prefix("kind ") {
            kind = key.split_once('/').unwrap_or_default();
        } else {
            let column = match line {
                "name" => columns.name,
                "age" => columns.age,
                column => column,
            };
            columns.kinds.entry(kind).or_default().push(column);
        }
    }
    // It has a printer that its storage does not use.
    columns.kinds.insert(("storage.k8s.io", "CSIStorageCapacity"), plain(columns.name));
    for (group, kind) in PLAIN {
        columns.kinds.insert((group, kind), plain(columns.name));
    }
    let service = "{\"name\":\"Service\",\"type\":\"string\",\"format\":\"\",\"description\":\"The reference to the service \
                   that hosts this API endpoint.\",\"priority\":0}";
    let available = "{\"name\":\"Available\",\"type\":\"string\",\"format\":\"\",\"description\":\"Whether this service is \
                     available.\",\"priority\":0}";
    columns.kinds.insert(("apiregistration.k8s.io", "APIService"), vec![columns.name, service, available, columns.age]);
    if let Some(events) = columns.kinds.get(&("", "Event")).cloned() {
        columns.kinds.insert(("events.k8s.io", "Event"), events);
    }
    columns
});

/// Kinds without a printer of their own.
const PLAIN: [(&str, &str); 4] = [
    ("", "LimitRange"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "Role"),
];

fn plain(name: &'static str) -> Vec<&'static str> {
    vec![name, CREATED_AT.as_str()]
}

/// `Name`
pub(super) static NAME: LazyLock<String> = LazyLock::new(|| COLUMNS.name.to_owned());
/// `Age`, of kinds with a printer.
pub(super) static AGE: LazyLock<String> = LazyLock::new(|| COLUMNS.age.to_owned());
/// `Created At`, of kinds without one.
pub(super) static CREATED_AT: LazyLock<String> = LazyLock::new(|| {
    let age = TEXT.lines().find_map(|line| line.strip_prefix("age ")).unwrap_or_default();
    age.replacen("\"name\":\"Age\",\"type\":\"string\"", "\"name\":\"Created At\",\"type\":\"date\"", 1)
});

/// The columns of a kind that a kube-apiserver brings itself.
pub(super) fn built_in(group: &str, kind: &str) -> Option<Vec<&'static str>> {
    COLUMNS.kinds.get(&(group, kind)).cloned()
}
