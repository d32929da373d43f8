//! `kubefold plan`: where each object of a manifest would go, and why. Nothing is changed.

use std::{
    fmt::Write as _,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow, bail};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::{
    cli::{
        client::{Connection, Output, Unreached},
        complain, print as print_text,
        status::table,
    },
    write::{
        plan::{Place, Planned},
        preview::PLAN_PATH,
    },
};
use kubefold_wire::golang::Quoted;

/// Files that a directory is read for, as kubectl does.
const EXTENSIONS: [&str; 3] = ["json", "yaml", "yml"];

#[derive(Debug, clap::Args)]
pub(super) struct Plan {
    #[command(flatten)]
    connection: Connection,
    /// A manifest, a directory of them, or `-` for standard input; may be repeated.
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The namespace of objects without one. Default: the context's.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Print the whole answer, for programs.
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

/// Prints it on standard output. An object that cannot be placed does not keep the others from being told.
pub(super) fn print(flags: &Plan) -> anyhow::Result<()> {
    let mut objects = Vec::new();
    for file in &flags.files {
        read(file, &mut objects)?;
    }
    if objects.is_empty() {
        let files: Vec<String> = flags.files.iter().map(|file| file.display().to_string()).collect();
        bail!("there is no object in {}", files.join(", "));
    }
    let namespace = match &flags.namespace {
        Some(namespace) => namespace.clone(),
        None => flags.connection.namespace()?,
    };
    let path = format!("{PLAN_PATH}?namespace={}", utf8_percent_encode(&namespace, NON_ALPHANUMERIC));
    let (mut plans, mut refused): (Vec<Value>, Vec<anyhow::Error>) = (Vec::new(), Vec::new());
    for Given { file, object } in &objects {
        match flags.connection.ask(Method::POST, &path, serde_json::to_vec(object)?) {
            Ok(answer) => {
                plans.push(serde_json::from_str(&answer).context("the server is not a kubefold of this version")?);
            }
            // It will be the same for all.
            Err(error) if error.is::<Unreached>() => return Err(error),
            Err(error) => refused.push(error.context(title(file, object))),
        }
    }
    let text = match flags.output {
        None => render(plans)?,
        Some(output) => told(plans, output)?,
    };
    print_text(&text)?;
    let last = refused.pop();
    refused.iter().for_each(complain);
    last.map_or(Ok(()), Err)
}

/// An object, and where it was read.
struct Given {
    file: String,
    object: Value,
}

/// `web.yaml: Deployment "web"`
fn title(file: &str, object: &Value) -> String {
    let text = |of: &Value| of.as_str().map(str::to_owned);
    let name = object.get("metadata").and_then(|metadata| text(metadata.get("name")?));
    match (object.get("kind").and_then(text), name) {
        (Some(kind), Some(name)) => format!("{file}: {kind} {name}", name = Quoted(name)),
        _ => file.to_owned(),
    }
}

/// Reads the objects of a file, or of a directory's files in order; lists are taken apart.
fn read(path: &Path, objects: &mut Vec<Given>) -> anyhow::Result<()> {
    let unreadable = || format!("cannot read {}", path.display());
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        let parsed = parse(&text).context("standard input is not a manifest")?;
        objects.extend(parsed.into_iter().map(|object| Given { file: "standard input".to_owned(), object }));
        return Ok(());
    }
    if !path.is_dir() {
        let text = std::fs::read_to_string(path).with_context(unreadable)?;
        let parsed = parse(&text).with_context(|| format!("{} is not a manifest", path.display()))?;
        objects.extend(parsed.into_iter().map(|object| Given { file: path.display().to_string(), object }));
        return Ok(());
    }
    let entries = std::fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>).with_context(unreadable)?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| {
        let extension = file.extension().and_then(|text| text.to_str());
        file.is_file() && extension.is_some_and(|text| EXTENSIONS.contains(&text))
    });
    files.sort();
    files.iter().try_for_each(|file| read(file, objects))
}

fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| anyhow!("{}", error.without_snippet().render()))?;
    for document in documents {
        match document {
            Value::Null => {}
            Value::Object(mut list) if is_list(&list) => {
                let items = list.get_mut("items").map(Value::take);
                objects.extend(items.and_then(|items| items.as_array().cloned()).unwrap_or_default());
            }
            object @ Value::Object(_) => objects.push(object),
            other => bail!("it contains {other}, which is not an object"),
        }
    }
    Ok(objects)
}

fn is_list(object: &serde_json::Map<String, Value>) -> bool {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    kind.ends_with("List") && object.get("items").is_some_and(Value::is_array)
}

/// One answer as it is, several as a list.
fn told(mut plans: Vec<Value>, output: Output) -> anyhow::Result<String> {
    let whole = match plans.len() {
        0 => return Ok(String::new()),
        1 => plans.remove(0),
        _ => json!({"kind": "List", "apiVersion": "v1", "items": plans}),
    };
    output.text(&whole)
}

fn render(plans: Vec<Value>) -> anyhow::Result<String> {
    let mut out = String::new();
    for plan in plans {
        let plan: Planned = serde_json::from_value(plan).context("the server is not a kubefold of this version")?;
        if !out.is_empty() {
            out.push('\n');
        }
        one(&plan, &mut out);
    }
    Ok(out)
}

/// Writing to memory has no way to fail.
fn one(plan: &Planned, out: &mut String) {
    let object = &plan.object;
    let mut title = format!("{}/{}", object.resource, object.name);
    if !object.namespace.is_empty() {
        let _infallible = write!(title, " in {}", object.namespace);
    }
    let by = plan.policy.as_ref().map_or_else(String::new, |policy| format!(", by policy {policy}"));
    let _infallible = writeln!(out, "{title}: {}{by}", plan.strategy);
    let mut pointers: Vec<&str> = Vec::new();
    for value in plan.members.iter().flat_map(|place| &place.values) {
        if !pointers.contains(&value.pointer.as_str()) {
            pointers.push(&value.pointer);
        }
    }
    let header = ["MEMBER", "PART"].into_iter().map(str::to_owned);
    // `/spec/replicas` is REPLICAS.
    let named = pointers.iter().map(|pointer| pointer.rsplit('/').next().unwrap_or_default().to_uppercase());
    let mut rows: Vec<Vec<String>> = vec![header.chain(named).chain(["WHY".to_owned()]).collect()];
    rows.extend(plan.members.iter().map(|place| row(place, &pointers)));
    if rows.len() > 1 {
        out.push_str(&table(&rows));
    }
    for warning in &plan.warnings {
        let _infallible = writeln!(out, "Warning: {warning}");
    }
}

fn row(place: &Place, pointers: &[&str]) -> Vec<String> {
    let part = match (place.part, place.home, place.later) {
        (true, true, _) => "home",
        (true, _, true) => "later",
        (true, ..) => "yes",
        (false, ..) => "-",
    };
    let number = |pointer: &&str| {
        let value = place.values.iter().find(|value| value.pointer == **pointer);
        value.map_or_else(|| "-".to_owned(), |value| value.number.to_string())
    };
    let words = [place.member.clone(), part.to_owned()].into_iter();
    words.chain(pointers.iter().map(number)).chain([place.why.clone().unwrap_or_default()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_read_as_kubectl_reads_them() {
        let parsed = |text: &str| parse(text).map_err(|error| error.to_string());
        let kinds = |text: &str| parsed(text).unwrap().iter().map(|one| one["kind"].to_string()).collect::<Vec<_>>();
        assert_eq!(kinds("---\nkind: A\n---\n---\n# nothing\n---\nkind: B\n"), ["\"A\"", "\"B\""]);
        assert_eq!(kinds(r#"{"kind":"List","items":[{"kind":"A"},{"kind":"B"}]}"#), ["\"A\"", "\"B\""]);
        assert_eq!(kinds("kind: TodoList\n"), ["\"TodoList\""]);
        assert_eq!(parsed("- a\n").unwrap_err(), "it contains [\"a\"], which is not an object");
        assert!(parsed("a: [").is_err());
    }

    #[test]
    fn a_plan_is_a_table() {
        let plan = json!({
            "kind": "Plan", "apiVersion": "kubefold.io/v1",
            "object": {"kind": "Deployment", "resource": "deployments.apps", "namespace": "shop", "name": "web"},
            "policy": "shop", "strategy": "divide",
            "members": [
                {"member": "east", "part": true, "home": true, "values": [{"pointer": "/spec/replicas", "number": 2}]},
                {"member": "west", "part": true, "values": [{"pointer": "/spec/replicas", "number": 1}]},
                {"member": "north", "part": false, "why": "no node matches"},
            ],
            "warnings": ["less than asked"],
        });
        assert_eq!(
            render(vec![plan]).unwrap(),
            "deployments.apps/web in shop: divide, by policy shop\n\
             MEMBER   PART   REPLICAS   WHY\n\
             east     home   2\n\
             west     yes    1\n\
             north    -      -          no node matches\n\
             Warning: less than asked\n"
        );
    }
}
