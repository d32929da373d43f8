//! `kubefold search`: objects of all members, by what is in them.

use anyhow::{Context, bail};
use clap_complete::ArgValueCompleter;
use http::Method;
use serde_json::{Value, json};

use crate::{
    cli::{
        can_i::{Resource, find},
        client::{Ask, Connection, Output},
        completion, print as print_text, say,
        status::table,
    },
    search::FieldTerm,
};
use kubefold_wire::{golang::Quoted, path::ApiPath, resource::Gvr};

/// Where searches are answered.
const ROOT: &str = "/apis/clusterpedia.io/v1beta1";
/// Objects that one answer has.
const PAGE: usize = 500;
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

#[derive(Debug, clap::Args)]
pub(super) struct Search {
    /// What has to hold: `image=nginx:1.19`, `phase!=Running`, `.spec.replicas in (1,2)`, `!.spec.volumes`, or a part of a name.
    /// All of them must.
    #[arg(value_name = "TERM")]
    terms: Vec<String>,
    /// The kinds, as for kubectl, with commas between several.
    #[arg(short, long, value_name = "KINDS", default_value = "pods", value_delimiter = ',', add = ArgValueCompleter::new(completion::kinds))]
    kind: Vec<String>,
    /// Only in these members; may be repeated.
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', add = ArgValueCompleter::new(completion::members))]
    member: Vec<String>,
    /// Only in these namespaces; may be repeated. Default: all.
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', add = ArgValueCompleter::new(completion::namespaces))]
    namespace: Vec<String>,
    /// By labels, as for kubectl.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Only what this object controls, at whatever depth: `deployment/web`, or a UID.
    #[arg(long, value_name = "KIND/NAME")]
    owner: Option<String>,
    /// Created at this time or later: a time, a date, or an age such as `2h`.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Created before this time.
    #[arg(long, value_name = "TIME")]
    before: Option<String>,
    /// What was deleted, as it was last; `--since` and `--before` are about when that was. kubefold keeps it for as long as
    /// `mirror.keepDeleted` of its `clusters.yaml` says.
    #[arg(long, conflicts_with = "watch")]
    deleted: bool,
    /// By what to order: `cluster`, `namespace`, `name`, `kind`, `created_at`, `deleted_at` or a path; `:desc` turns one round. May
    /// be repeated. With `--deleted`, what was deleted last comes first by default.
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    order_by: Vec<String>,
    /// So many objects at most. Default: all.
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
    /// Print what is found, and what comes and goes, until interrupted.
    #[arg(short, long, conflicts_with = "limit")]
    watch: bool,
    /// How to print it. Default: a table.
    #[arg(short, long, value_enum)]
    output: Option<As>,
    #[command(flatten)]
    connection: Connection,
}

/// How objects are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum As {
    Json,
    Yaml,
    /// A table with all columns.
    Wide,
    /// `pod/web-0`, with its member and namespace before it.
    Name,
}

/// Prints it on standard output.
pub(super) fn run(flags: &Search) -> anyhow::Result<()> {
    let kinds: Vec<Resource> =
        flags.kind.iter().map(|kind| find(&flags.connection, kind)).collect::<anyhow::Result<_>>()?;
    let (path, query) = flags.request(&kinds)?;
    if flags.watch { flags.follow(&path, &query) } else { flags.print(&path, query) }
}

impl Search {
    fn print(&self, path: &str, query: String) -> anyhow::Result<()> {
        let (mut items, mut head, mut token) = (Vec::new(), None, String::new());
        loop {
            let limit = self.limit.map_or(PAGE, |limit| (limit - items.len()).min(PAGE));
            let of_page =
                if token.is_empty() { format!("limit={limit}") } else { format!("limit={limit}&continue={token}") };
            let url = format!("{path}?{query}&{of_page}");
            let headers = [("Accept", self.accept())];
            let ask = Ask { method: Method::GET, path: &url, headers: &headers, body: Vec::new() };
            let mut page: Value =
                serde_json::from_str(&self.connection.ask_with(ask)?).context("the answer is no JSON")?;
            let rows = if self.is_table() { &mut page["rows"] } else { &mut page["items"] };
            items.extend(rows.as_array_mut().map(std::mem::take).unwrap_or_default());
            page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
            head.get_or_insert(page);
            if token.is_empty() || self.limit.is_some_and(|limit| items.len() >= limit) {
                break;
            }
        }
        if items.is_empty() && !matches!(self.output, Some(As::Json | As::Yaml)) {
            say("nothing was found");
            return Ok(());
        }
        print_text(&match self.output {
            None | Some(As::Wide) => self.table(&head.unwrap_or_default()["columnDefinitions"], &items),
            Some(As::Name) => items.iter().map(|item| name_of(item) + "\n").collect(),
            Some(As::Json) => Output::Json.text(&list(&items))?,
            Some(As::Yaml) => Output::Yaml.text(&list(&items))?,
        })
    }

    fn follow(&self, path: &str, query: &str) -> anyhow::Result<()> {
        let url = format!("{path}?{query}&watch=true");
        let headers = [("Accept", self.accept())];
        let ask = Ask { method: Method::GET, path: &url, headers: &headers, body: Vec::new() };
        let mut columns = Value::Null;
        self.connection.follow(&ask, |line| {
            let event: Value = serde_json::from_str(line).context("the answer is no JSON")?;
            let (kind, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
            match kind {
                "ERROR" => {
                    bail!("the search has ended: {}", object["message"].as_str().unwrap_or("no reason is given"))
                }
                "BOOKMARK" => return Ok(()),
                _ => {}
            }
            print_text(&match self.output {
                Some(As::Json) => Output::Json.text(object)?,
                Some(As::Yaml) => format!("---\n{}", Output::Yaml.text(object)?),
                Some(As::Name) => format!("{kind} {}\n", name_of(object)),
                None | Some(As::Wide) => {
                    let is_first = columns.is_null();
                    if is_first {
                        columns = object["columnDefinitions"].clone();
                    }
                    let rows = object["rows"].as_array().cloned().unwrap_or_default();
                    let text = self.table(&columns, &rows);
                    let mut lines = text.lines();
                    let head = lines.next().unwrap_or_default();
                    let head = if is_first { format!("EVENT      {head}\n") } else { String::new() };
                    head + &lines.map(|line| format!("{kind:<11}{line}\n")).collect::<String>()
                }
            })
        })
    }

    fn is_table(&self) -> bool {
        matches!(self.output, None | Some(As::Wide))
    }

    fn accept(&self) -> &'static str {
        if self.is_table() { TABLE } else { "application/json" }
    }

    /// The path, and the query without its page.
    fn request(&self, kinds: &[Resource]) -> anyhow::Result<(String, String)> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        let mut fields = Vec::new();
        let mut fuzzy = Vec::new();
        for term in &self.terms {
            match term_of(term, kinds)? {
                Term::Name(part) => fuzzy.push(part),
                Term::Field(field) => fields.push(field),
            }
        }
        let several = |query: &mut form_urlencoded::Serializer<'_, String>, name: &str, values: &[String]| {
            if !values.is_empty() {
                query.append_pair(name, &values.join(","));
            }
        };
        several(&mut query, "fuzzyName", &fuzzy);
        several(&mut query, "fieldSelector", &fields);
        several(&mut query, "clusters", &self.member);
        several(&mut query, "namespaces", &self.namespace);
        let mut order: Vec<String> = self.order_by.iter().map(|field| field.replace(':', " ")).collect();
        if self.deleted {
            query.append_pair("deleted", "true");
            if order.is_empty() {
                order.push("deleted_at desc".to_owned());
            }
        }
        several(&mut query, "orderby", &order);
        for (name, value) in [("labelSelector", &self.selector), ("since", &self.since), ("before", &self.before)] {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        if let Some(owner) = &self.owner {
            self.owned(owner, kinds, &mut query)?;
        }
        let path = match kinds {
            [one] => {
                let gvr = Gvr::new(&one.group, &one.version, &one.resource);
                format!("{ROOT}/resources{}", ApiPath::of(&gvr).as_str())
            }
            several => {
                let each = several.iter().map(|kind| match kind.group.as_str() {
                    "" => format!("{}/{}", kind.version, kind.resource),
                    group => format!("{group}/{}/{}", kind.version, kind.resource),
                });
                query.append_pair("resources", &each.collect::<Vec<_>>().join(","));
                format!("{ROOT}/collectionresources/any")
            }
        };
        Ok((path, query.finish()))
    }

    fn owned(
        &self,
        owner: &str,
        kinds: &[Resource],
        query: &mut form_urlencoded::Serializer<'_, String>,
    ) -> anyhow::Result<()> {
        let Some((kind, name)) = owner.split_once('/') else {
            query.append_pair("ownerUID", owner);
            return Ok(());
        };
        let owner = find(&self.connection, kind)?;
        let resource = Gvr::new(&owner.group, &owner.version, &owner.resource).qualified();
        query.append_pair("ownerName", name).append_pair("ownerGR", &resource);
        // Between a Deployment and its pods stands a ReplicaSet, and between a CronJob and its pods a Job.
        let is_of_pods = kinds.iter().all(|kind| kind.resource == "pods");
        if is_of_pods && ["deployments", "cronjobs"].contains(&owner.resource.as_str()) {
            query.append_pair("ownerSeniority", "1");
        }
        Ok(())
    }

    /// Rows as kubectl prints them, with the namespace in front where one has any.
    fn table(&self, columns: &Value, rows: &[Value]) -> String {
        let columns = columns.as_array().map(Vec::as_slice).unwrap_or_default();
        let is_wide = self.output == Some(As::Wide);
        let shown: Vec<usize> = columns
            .iter()
            .enumerate()
            .filter(|(_, column)| is_wide || column["priority"].as_i64().unwrap_or_default() == 0)
            .map(|(at, _)| at)
            .collect();
        let namespace = |row: &Value| row["object"]["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let has_own = columns.iter().any(|column| column["name"] == "Namespace");
        let is_namespaced = !has_own && rows.iter().any(|row| !namespace(row).is_empty());
        let title =
            |at: &usize| columns.get(*at).and_then(|column| column["name"].as_str()).unwrap_or_default().to_uppercase();
        let mut head: Vec<String> = shown.iter().map(title).collect();
        if is_namespaced {
            head.insert(0, "NAMESPACE".to_owned());
        }
        if self.deleted {
            head.push("DELETED".to_owned());
        }
        let body = rows.iter().map(|row| {
            let cell = |at: &usize| match &row["cells"][*at] {
                Value::String(text) => text.clone(),
                Value::Null => "<none>".to_owned(),
                other => other.to_string(),
            };
            let mut cells: Vec<String> = shown.iter().map(cell).collect();
            if is_namespaced {
                cells.insert(0, namespace(row));
            }
            if self.deleted {
                let at = &row["object"]["metadata"]["annotations"]["kubefold.io/deleted-at"];
                cells.push(at.as_str().unwrap_or_default().to_owned());
            }
            cells
        });
        table(&std::iter::once(head).chain(body).collect::<Vec<_>>())
    }
}

/// What a term of the command line is.
#[derive(Debug, PartialEq, Eq)]
enum Term {
    /// A part of a name.
    Name(String),
    /// A term of a field selector.
    Field(String),
}

/// Reads one term. A field's short name stands for where these kinds have it.
///
/// Errors: it is none, or several kinds have it in different places.
fn term_of(term: &str, kinds: &[Resource]) -> anyhow::Result<Term> {
    let begin = term.trim().trim_start_matches('!');
    let end = begin.find(|c: char| c.is_whitespace() || "=!<>(".contains(c)).unwrap_or(begin.len());
    let (word, rest) = begin.split_at_checked(end).unwrap_or((begin, ""));
    let not = if term.trim().starts_with('!') { "!" } else { "" };
    if rest.is_empty() && not.is_empty() && !word.contains(['.', '[']) {
        return Ok(Term::Name(word.to_owned()));
    }
    let field = match word {
        "image" | "node" | "phase" => {
            let mut places: Vec<&str> = kinds.iter().filter_map(|kind| place_of(word, &kind.resource)).collect();
            places.dedup();
            let [place] = places.as_slice() else {
                bail!("{word} stands for no one field of {}; write its path", names(kinds));
            };
            (*place).to_owned()
        }
        word => word.to_owned(),
    };
    let field = format!("{not}{field}{rest}");
    FieldTerm::parse_all(&field).with_context(|| format!("{} is no term", Quoted(term)))?;
    Ok(Term::Field(field))
}

fn place_of(word: &str, resource: &str) -> Option<&'static str> {
    Some(match (word, resource) {
        ("image", "pods") => "spec.containers[].image",
        ("image", "cronjobs") => "spec.jobTemplate.spec.template.spec.containers[].image",
        ("image", _) => "spec.template.spec.containers[].image",
        ("node", "pods") => "spec.nodeName",
        ("phase", _) => "status.phase",
        _ => return None,
    })
}

fn names(kinds: &[Resource]) -> String {
    kinds.iter().map(|kind| kind.resource.as_str()).collect::<Vec<_>>().join(", ")
}

/// `east/shop/pod/web-0`
fn name_of(object: &Value) -> String {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let cluster = text(&metadata["annotations"]["shadow.clusterpedia.io/cluster-name"]);
    let parts = [cluster, text(&metadata["namespace"]), text(&object["kind"]).to_lowercase(), text(&metadata["name"])];
    parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join("/")
}

fn list(items: &[Value]) -> Value {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(group: &str, resource: &str) -> Resource {
        let (group, resource) = (group.to_owned(), resource.to_owned());
        Resource {
            group,
            version: "v1".into(),
            resource,
            kind: String::new(),
            subresource: String::new(),
            namespaced: true,
        }
    }

    #[test]
    fn a_short_field_stands_for_where_the_kind_has_it() {
        let (pods, deployments) = (kind("", "pods"), kind("apps", "deployments"));
        let field = |text: &str| Term::Field(text.to_owned());
        for (term, expected) in [
            ("image=nginx:1.19", field("spec.containers[].image=nginx:1.19")),
            ("phase notin (Running)", field("status.phase notin (Running)")),
            ("node!=n1", field("spec.nodeName!=n1")),
            ("!.spec.volumes", field("!.spec.volumes")),
            (".metadata.deletionTimestamp", field(".metadata.deletionTimestamp")),
            ("web-1", Term::Name("web-1".into())),
        ] {
            assert_eq!(term_of(term, std::slice::from_ref(&pods)).unwrap(), expected, "{term}");
        }
        let of_both = term_of("image=a", &[pods, deployments]).unwrap_err().to_string();
        assert_eq!(of_both, "image stands for no one field of pods, deployments; write its path");
        let wrong = term_of(".spec.replicas>3", &[kind("apps", "deployments")]).unwrap_err();
        assert!(format!("{wrong:#}").contains("the operator is not understood"), "{wrong:#}");
    }
}
