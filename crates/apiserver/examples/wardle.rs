//! Kubernetes' sample API server: flunders in two versions, with a conversion that may fail, and fischers, which name the
//! flunders that are not admitted.
//!
//! Source: kubernetes/sample-apiserver.

use kubefold_apiserver::{Cause, Context, Dependency, Kind, Server, TypedKind, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, JsonSchema)]
struct Flunder {
    #[schemars(skip)]
    metadata: Metadata,
    #[serde(default)]
    spec: FlunderSpec,
}

#[derive(Serialize, Deserialize)]
struct Metadata {
    name: String,
}

/// What a flunder refers to. Either field, or none.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FlunderSpec {
    /// A flunder of this name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    flunder_reference: String,
    /// A fischer of this name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    fischer_reference: String,
}

/// As it was at first: one reference, and the kind that it is to.
#[derive(Serialize, Deserialize, JsonSchema)]
struct FlunderV1alpha1 {
    #[schemars(skip)]
    metadata: Metadata,
    #[serde(default)]
    spec: FlunderSpecV1alpha1,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct FlunderSpecV1alpha1 {
    /// The name of what it refers to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reference: String,
    /// `Flunder` or `Fischer`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reference_type: String,
}

#[derive(Debug, thiserror::Error)]
enum Unconvertible {
    #[error("spec.referenceType: {0:?} is neither Flunder nor Fischer")]
    Type(String),
    #[error("spec has a flunderReference and a fischerReference, and v1alpha1 has room for one")]
    Both,
}

impl TryFrom<FlunderV1alpha1> for Flunder {
    type Error = Unconvertible;

    fn try_from(old: FlunderV1alpha1) -> Result<Self, Unconvertible> {
        let (flunder_reference, fischer_reference) = match old.spec.reference_type.as_str() {
            "" | "Flunder" => (old.spec.reference, String::new()),
            "Fischer" => (String::new(), old.spec.reference),
            other => return Err(Unconvertible::Type(other.to_owned())),
        };
        Ok(Self { metadata: old.metadata, spec: FlunderSpec { flunder_reference, fischer_reference } })
    }
}

impl TryFrom<Flunder> for FlunderV1alpha1 {
    type Error = Unconvertible;

    fn try_from(hub: Flunder) -> Result<Self, Unconvertible> {
        let FlunderSpec { flunder_reference, fischer_reference } = hub.spec;
        let (reference, reference_type) = match (flunder_reference.is_empty(), fischer_reference.is_empty()) {
            (true, true) => (String::new(), ""),
            (false, true) => (flunder_reference, "Flunder"),
            (true, false) => (fischer_reference, "Fischer"),
            (false, false) => return Err(Unconvertible::Both),
        };
        let spec = FlunderSpecV1alpha1 { reference, reference_type: reference_type.to_owned() };
        Ok(Self { metadata: hub.metadata, spec })
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Fischer {
    /// Names that no flunder may have.
    #[serde(default)]
    disallowed_flunders: Vec<String>,
}

fn flunder() -> TypedKind<Flunder> {
    let old = Version::new("v1alpha1", Flunder::try_from, FlunderV1alpha1::try_from)
        .schema::<FlunderV1alpha1>()
        .column("Reference", "string", ".spec.reference");
    Kind::of::<Flunder>("wardle.example.com", "v1beta1", "Flunder")
        .schema()
        .column("Flunder", "string", ".spec.flunderReference")
        .column("Fischer", "string", ".spec.fischerReference")
        .version(old)
        .wants(|_| vec![Dependency::all("wardle.example.com", "fischers")])
        .admit(ban)
        .validate_update(|new, old, _| {
            let is_same = new.spec.fischer_reference == old.spec.fischer_reference;
            let at = "spec.fischerReference";
            if is_same { Vec::new() } else { vec![Cause::forbidden(at, "a fischer stays with its flunder")] }
        })
}

fn ban(flunder: &Flunder, _: Option<&Flunder>, context: Context<'_>) -> Result<(), &'static str> {
    let fischers = context.others.iter().filter_map(|other| serde_json::from_value::<Fischer>(other.clone()).ok());
    let banned = fischers.flat_map(|fischer| fischer.disallowed_flunders).any(|name| name == flunder.metadata.name);
    if banned { Err("this name may not be used, please change the resource name") } else { Ok(()) }
}

fn fischer() -> TypedKind<Fischer> {
    Kind::of::<Fischer>("wardle.example.com", "v1beta1", "Fischer").schema().cluster_scoped()
}

fn server() -> Server {
    Server::new().kind(flunder()).kind(fischer())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    Ok(server().serve(&address).await?)
}
