//! `docs/configuration.md` out of the types of [`super::raw`]: the page cannot say anything else than the program reads.

use serde_json::{Map, Value};

use crate::config::raw::RawConfig;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
const HEAD: &str = "\
# clusters.yaml

`clusters.yaml` is the configuration of a fleet. `kubefold init --from-kubeconfig FILE` writes one, `clusters.example.yaml` is a complete
example, and `kubefold doctor --config FILE` checks one.

kubefold reads the file, and every file that it names, again when one of them changes and on SIGHUP. Relative paths start at the folder of
the file. If a new version is invalid (an unknown field, a credential that kubefold cannot read), kubefold keeps the running one. The log then has
the line and what to do.

This page is generated from the types that read the file: `KUBEFOLD_DOCS=write cargo test --lib config::reference`.
";

/// The schema of a type by its name.
fn definition<'v>(schema: &'v Value, name: &str) -> &'v Value {
    schema.pointer(&format!("/$defs/{name}")).unwrap_or_else(|| panic!("no {name}"))
}

/// What a value is, and the type that it is made of, if that has a section.
fn kind(value: &Value) -> (String, Option<String>) {
    if let Some(reference) = value["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap().to_owned();
        return (format!("[{}](#{})", title(&name), title(&name)), Some(name));
    }
    if let Some(either) = value["anyOf"].as_array() {
        return kind(either.iter().find(|one| one["type"] != "null").unwrap());
    }
    let of = match &value["type"] {
        Value::Array(types) => types.iter().find(|one| *one != "null").unwrap().as_str().unwrap().to_owned(),
        Value::String(one) => one.clone(),
        _ => return ("any".to_owned(), None),
    };
    match of.as_str() {
        "array" => {
            let (inner, name) = kind(&value["items"]);
            (format!("list of {inner}"), name)
        }
        "object" => {
            let (inner, name) = kind(&value["additionalProperties"]);
            (format!("map to {inner}"), name)
        }
        _ => (of, None),
    }
}

fn title(name: &str) -> String {
    name.trim_start_matches("Raw").to_lowercase()
}

fn text(value: &Value) -> String {
    value["description"].as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn section(heading: &str, of: &Value, out: &mut String, next: &mut Vec<String>) {
    out.push_str(&format!("\n## {heading}\n\n{}\n\n| field | type | what |\n|---|---|---|\n", text(of)));
    let none = Map::new();
    let required: Vec<&str> = of["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (field, value) in of["properties"].as_object().unwrap_or(&none) {
        let (kind, name) = kind(value);
        let must = if required.contains(&field.as_str()) { ", required" } else { "" };
        let meaning = text(value);
        assert!(!meaning.is_empty(), "{heading}.{field} is not explained");
        out.push_str(&format!("| `{field}` | {kind}{must} | {} |\n", meaning.replace('|', "\\|")));
        next.extend(name);
    }
}

fn page() -> String {
    let schema = schemars::schema_for!(RawConfig).to_value();
    let (mut out, mut next, mut done) = (HEAD.to_owned(), Vec::new(), Vec::new());
    section("The file", &schema, &mut out, &mut next);
    while !next.is_empty() {
        let name = next.remove(0);
        if done.contains(&name) {
            continue;
        }
        section(&title(&name), definition(&schema, &name), &mut out, &mut next);
        done.push(name);
    }
    out
}

#[test]
fn the_page_says_what_the_program_reads() {
    let page = page();
    if std::env::var_os("KUBEFOLD_DOCS").is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(written == page, "docs/configuration.md is not made from these types; KUBEFOLD_DOCS=write makes it anew");
}
