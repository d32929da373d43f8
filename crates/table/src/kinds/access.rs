//! Who may do what, and what checks it.

use serde::Deserialize;
use serde_json::Error;

use crate::{
    cells::Cells,
    kinds::Print,
    object::{Count, List, Map, Object, Text},
    selector::{Selector, labels},
};

pub(super) fn of(group: &str, kind: &str) -> Option<Print> {
    Some(match (group, kind) {
        ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding") => role_binding,
        ("certificates.k8s.io", "CertificateSigningRequest") => signing_request,
        ("certificates.k8s.io", "ClusterTrustBundle") => cluster_trust_bundle,
        ("certificates.k8s.io", "PodCertificateRequest") => pod_certificate_request,
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => webhooks,
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy" | "ValidatingAdmissionPolicy") => admission_policy,
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding" | "ValidatingAdmissionPolicyBinding") => {
            admission_policy_binding
        }
        _ => return None,
    })
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Binding<'a> {
    role_ref: RoleRef<'a>,
    subjects: List<Subject<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct RoleRef<'a> {
    kind: Text<'a>,
    name: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Subject<'a> {
    kind: Text<'a>,
    name: Text<'a>,
    namespace: Text<'a>,
}

/// `printRoleBinding`, `printClusterRoleBinding`
fn role_binding(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Binding { role_ref, subjects } = object.read()?;
    cells.name();
    cells.print(format_args!("{}/{}", role_ref.kind.0, role_ref.name.0));
    cells.age();
    for kind in ["User", "Group", "ServiceAccount"] {
        let of_kind = subjects.iter().filter(|subject| subject.kind.as_str() == kind);
        let names: Vec<String> = of_kind
            .map(|subject| match kind {
                "ServiceAccount" => format!("{}/{}", subject.namespace.0, subject.name.0),
                _ => subject.name.0.to_string(),
            })
            .collect();
        cells.text(&names.join(", "));
    }
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct SigningRequest<'a> {
    spec: SigningRequestSpec<'a>,
    status: SigningRequestStatus<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct SigningRequestSpec<'a> {
    signer_name: Text<'a>,
    username: Text<'a>,
    expiration_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct SigningRequestStatus<'a> {
    conditions: List<Condition<'a>>,
    certificate: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Condition<'a> {
    #[serde(rename = "type")]
    type_: Text<'a>,
}

/// `printCertificateSigningRequest`
fn signing_request(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let SigningRequest { spec, status } = object.read()?;
    let has = |type_: &str| status.conditions.iter().any(|condition| condition.type_.as_str() == type_);
    cells.name();
    cells.age();
    cells.text(spec.signer_name.or("<none>"));
    cells.text(spec.username.as_str());
    match spec.expiration_seconds {
        Some(seconds) => cells.micros(seconds.saturating_mul(1_000_000)),
        None => cells.text("<none>"),
    }
    let decided = match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if status.certificate.is_empty() { "" } else { ",Issued" };
    cells.print(format_args!("{decided}{failed}{issued}"));
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct TrustBundle<'a> {
    spec: TrustBundleSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct TrustBundleSpec<'a> {
    signer_name: Text<'a>,
}

/// `printClusterTrustBundle`
fn cluster_trust_bundle(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let TrustBundle { spec } = object.read()?;
    cells.name();
    cells.text(spec.signer_name.or("<none>"));
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct PodCertificate<'a> {
    spec: PodCertificateSpec<'a>,
    status: SigningRequestStatus<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct PodCertificateSpec<'a> {
    pod_name: Text<'a>,
    service_account_name: Text<'a>,
    node_name: Text<'a>,
    signer_name: Text<'a>,
    unverified_user_annotations: Map<'a>,
}

/// `printPodCertificateRequest`
fn pod_certificate_request(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let PodCertificate { spec, status } = object.read()?;
    cells.name();
    for text in [&spec.pod_name, &spec.service_account_name, &spec.node_name, &spec.signer_name] {
        cells.text(text.as_str());
    }
    let types = status.conditions.iter().map(|condition| condition.type_.as_str());
    cells.text(types.rev().find(|type_| matches!(*type_, "Issued" | "Denied" | "Failed")).unwrap_or("Pending"));
    cells.text(&labels(&spec.unverified_user_annotations));
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Webhooks {
    webhooks: Count,
}

/// `printMutatingWebhook`, `printValidatingWebhook`
fn webhooks(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Webhooks { webhooks } = object.read()?;
    cells.name();
    cells.number(webhooks.0);
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Policy<'a> {
    spec: PolicySpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct PolicySpec<'a> {
    /// A policy has one of the two.
    #[serde(alias = "mutations")]
    validations: Count,
    param_kind: Option<ParamKind<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct ParamKind<'a> {
    api_version: Text<'a>,
    kind: Text<'a>,
}

/// `printValidatingAdmissionPolicy`, `printMutatingAdmissionPolicy`
fn admission_policy(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let Policy { spec } = object.read()?;
    cells.name();
    cells.number(spec.validations.0);
    match &spec.param_kind {
        Some(kind) => cells.print(format_args!("{}/{}", kind.api_version.0, kind.kind.0)),
        None => cells.text("<unset>"),
    }
    cells.age();
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct PolicyBinding<'a> {
    spec: PolicyBindingSpec<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct PolicyBindingSpec<'a> {
    policy_name: Text<'a>,
    param_ref: Option<ParamRef<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct ParamRef<'a> {
    name: Text<'a>,
    namespace: Text<'a>,
    selector: Option<Selector<'a>>,
}

/// `printValidatingAdmissionPolicyBinding`, `printMutatingAdmissionPolicyBinding`
fn admission_policy_binding(object: &Object<'_>, cells: &mut Cells<'_>) -> Result<(), Error> {
    let PolicyBinding { spec } = object.read()?;
    cells.name();
    cells.text(spec.policy_name.as_str());
    match &spec.param_ref {
        Some(param) if !param.name.is_empty() => {
            cells.print(format_args!("{}/{}", param.namespace.or("*"), param.name.0));
        }
        Some(ParamRef { selector: Some(selector), .. }) => cells.text(&selector.go_text()),
        _ => cells.text("<unset>"),
    }
    cells.age();
    Ok(())
}
