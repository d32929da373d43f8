//! Kubernetes' sample API server: flunders in two versions that are converted into each other, and fischers, which name the
//! flunders that are not admitted.
//!
//! Source: kubernetes/sample-apiserver. `tests/differential/wardle.rs` compares the answers of both.

use kubefold_apiserver::{Cause, Context, Dependency, Kind, Server, TypedKind, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Flunder {
    #[schemars(skip)]
    metadata: Metadata,
    #[serde(default)]
    spec: FlunderSpec,
    #[serde(default)]
    status: FlunderStatus,
}

#[derive(Serialize, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FlunderSpec {
    /// A name of another flunder, mutually exclusive to the fischerReference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    flunder_reference: String,
    /// A name of a fischer, mutually exclusive to the flunderReference.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    fischer_reference: String,
    /// Flunder or Fischer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reference_type: String,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
struct FlunderStatus {}

/// As it was at first: one reference.
#[derive(Serialize, Deserialize, JsonSchema)]
struct FlunderV1alpha1 {
    #[schemars(skip)]
    metadata: Metadata,
    #[serde(default)]
    spec: FlunderSpecV1alpha1,
    #[serde(default)]
    status: FlunderStatus,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FlunderSpecV1alpha1 {
    /// A name of another flunder or fischer, depending on the reference type.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reference: String,
    /// The reference type, defaults to Flunder if reference is set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reference_type: String,
}

impl From<FlunderV1alpha1> for Flunder {
    fn from(old: FlunderV1alpha1) -> Self {
        let FlunderSpecV1alpha1 { reference, reference_type } = old.spec;
        let mut spec = FlunderSpec::default();
        match reference_type.as_str() {
            "" if reference.is_empty() => {}
            "" | "Flunder" => (spec.flunder_reference, spec.reference_type) = (reference, "Flunder".into()),
            "Fischer" => (spec.fischer_reference, spec.reference_type) = (reference, reference_type),
            _ => {}
        }
        Self { metadata: old.metadata, spec, status: old.status }
    }
}

impl From<Flunder> for FlunderV1alpha1 {
    fn from(hub: Flunder) -> Self {
        let FlunderSpec { flunder_reference, fischer_reference, reference_type } = hub.spec;
        let reference = if reference_type == "Fischer" { fischer_reference } else { flunder_reference };
        Self { metadata: hub.metadata, spec: FlunderSpecV1alpha1 { reference, reference_type }, status: hub.status }
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Fischer {
    /// Names that no flunder may have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    disallowed_flunders: Vec<String>,
}

fn flunder() -> TypedKind<Flunder> {
    let old = Version::new("v1alpha1", Flunder::try_from, FlunderV1alpha1::try_from).schema::<FlunderV1alpha1>();
    Kind::of::<Flunder>("wardle.example.com", "v1beta1", "Flunder")
        .schema()
        .version(old)
        .wants(|_| vec![Dependency::all("wardle.example.com", "fischers")])
        .validate(|flunder, _| faults(&flunder.spec))
        .admit(ban)
}

/// What is wrong with references, in the words of the sample.
fn faults(spec: &FlunderSpec) -> Vec<Cause> {
    let FlunderSpec { flunder_reference: flunder, fischer_reference: fischer, reference_type } = spec;
    let invalid = |field: &str, value: &str, why: &str| Cause::invalid_text(format!("spec.{field}"), value, why);
    let wrong = match (flunder.as_str(), fischer.as_str(), reference_type.as_str()) {
        ("", "", "Fischer") => Some(invalid("fischerReference", "", "cannot be empty if referenceType is Fischer")),
        ("", "", "Flunder") => Some(invalid("flunderReference", "", "cannot be empty if referenceType is Flunder")),
        ("", "", _) | ("", _, "Fischer") | (_, "", "Flunder") => None,
        (_, "", _) => Some(invalid("flunderReference", flunder, "cannot be set if referenceType is not Flunder")),
        ("", _, _) => Some(invalid("fischerReference", fischer, "cannot be set if referenceType is not Fischer")),
        (_, _, _) => Some(invalid("fischerReference", fischer, "cannot be set with flunderReference at the same time")),
    };
    let is_odd = !["", "Flunder", "Fischer"].contains(&reference_type.as_str());
    let odd = is_odd.then(|| invalid("referenceType", reference_type, "must be Flunder or Fischer"));
    wrong.into_iter().chain(odd).collect()
}

/// Refuses new flunders whose names a fischer disallows.
fn ban(flunder: &Flunder, old: Option<&Flunder>, context: Context<'_>) -> Result<(), &'static str> {
    let fischers = context.others.iter().filter_map(|other| serde_json::from_value::<Fischer>(other.clone()).ok());
    let banned = fischers.flat_map(|fischer| fischer.disallowed_flunders).any(|name| name == flunder.metadata.name);
    if banned && old.is_none() { Err("this name may not be used, please change the resource name") } else { Ok(()) }
}

fn fischer() -> TypedKind<Fischer> {
    Kind::of::<Fischer>("wardle.example.com", "v1alpha1", "Fischer").schema().cluster_scoped()
}

fn server() -> Server {
    Server::new().kind(flunder()).kind(fischer())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    Ok(server().serve(&address).await?)
}
