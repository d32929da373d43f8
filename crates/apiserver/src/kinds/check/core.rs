//! Services, configuration, namespaces, nodes, quotas.
//!
//! Source: kubernetes `pkg/apis/core/validation/validation.go`.

use base64::Engine;
use serde_json::Value;

use super::{
    Errors, Path, address,
    metadata::{self, immutable},
    pod, resources,
    words::{self, PORT},
};
use crate::kinds::doc::Doc;
use kubefold_wire::names::{NameRule, config_key, dns_label, dns_subdomain, qualified_name};

const DATA_BYTES_MAX: usize = 1024 * 1024;
const WHEN_IMMUTABLE: &str = "field is immutable when `immutable` is set";

pub(in crate::kinds) fn config_map(object: &Value, errors: &mut Errors) {
    let mut bytes = 0;
    for (key, value) in object.entries("data") {
        let at = Path::new("data").key(key);
        errors.all_invalid(&at, key, &config_key(key));
        if object.at("binaryData").is_some_and(|binary| binary.get(key).is_some()) {
            errors.invalid(&at, &**key, "duplicate of key present in binaryData");
        }
        bytes += value.as_str().map_or(0, str::len);
    }
    for (key, value) in object.entries("binaryData") {
        errors.all_invalid(&Path::new("binaryData").key(key), key, &config_key(key));
        bytes += decoded(value).len();
    }
    if bytes > DATA_BYTES_MAX {
        errors.too_long(&Path::new("[]"), DATA_BYTES_MAX);
    }
}

fn decoded(value: &Value) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap_or("")).unwrap_or_default()
}

pub(in crate::kinds) fn config_map_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    frozen(new, old, &["data", "binaryData"], errors);
    metadata::check(new, true, NameRule::Subdomain, errors);
    config_map(new, errors);
}

fn frozen(new: &Value, old: &Value, fields: &[&str], errors: &mut Errors) {
    if !old.truth("immutable") {
        return;
    }
    if !new.truth("immutable") {
        errors.forbidden(&Path::new("immutable"), WHEN_IMMUTABLE);
    }
    for field in fields.iter().filter(|field| new.at(field) != old.at(field)) {
        errors.forbidden(&Path::new(*field), WHEN_IMMUTABLE);
    }
}

pub(in crate::kinds) fn secret(object: &Value, errors: &mut Errors) {
    let at = Path::new("data");
    let mut bytes = 0;
    for (key, value) in object.entries("data") {
        errors.all_invalid(&at.key(key), key, &config_key(key));
        bytes += decoded(value).len();
    }
    if bytes > DATA_BYTES_MAX {
        errors.too_long(&at, DATA_BYTES_MAX);
    }
    let given = |key: &str| object.at("data").and_then(|data| data.get(key));
    match object.text("type") {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            let name = object.at("metadata.annotations").and_then(|all| all.get(key)).and_then(Value::as_str);
            if name.is_none_or(str::is_empty) {
                errors.required(&Path::new("metadata.annotations").key(key), "");
            }
        }
        "kubernetes.io/dockercfg" => docker(given(".dockercfg"), &at.key(".dockercfg"), errors),
        "kubernetes.io/dockerconfigjson" => {
            docker(given(".dockerconfigjson"), &at.key(".dockerconfigjson"), errors);
        }
        "kubernetes.io/basic-auth" => {
            let keys = ["username", "password"];
            if keys.iter().all(|key| given(key).is_none()) {
                keys.iter().for_each(|key| errors.required(&at.key(key), ""));
            }
        }
        "kubernetes.io/ssh-auth" if given("ssh-privatekey").is_none_or(|key| decoded(key).is_empty()) => {
            errors.required(&at.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"].into_iter().filter(|key| given(key).is_none()) {
                errors.required(&at.key(key), "");
            }
        }
        _ => {}
    }
}

fn docker(value: Option<&Value>, at: &Path, errors: &mut Errors) {
    let Some(value) = value else { return errors.required(at, "") };
    let bytes = decoded(value);
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(Value::Object(_) | Value::Null) => {}
        Ok(_) => errors.invalid(at, "<secret contents redacted>", "json: cannot unmarshal into an object"),
        Err(_) if bytes.is_empty() => {
            errors.invalid(at, "<secret contents redacted>", "unexpected end of JSON input");
        }
        Err(_) => {
            let first = char::from(bytes.first().copied().unwrap_or(b' '));
            let why = format!("invalid character '{first}' looking for beginning of value");
            errors.invalid(at, "<secret contents redacted>", &why);
        }
    }
}

pub(in crate::kinds) fn secret_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    immutable(new, old, "type", errors);
    frozen(new, old, &["data"], errors);
    metadata::check(new, true, NameRule::Subdomain, errors);
    secret(new, errors);
}

pub(in crate::kinds) fn account_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    metadata::check(new, true, NameRule::Subdomain, errors);
}

pub(in crate::kinds) fn namespace(object: &Value, errors: &mut Errors) {
    let at = Path::new("spec.finalizers");
    for finalizer in object.items("spec.finalizers").iter().filter_map(Value::as_str) {
        errors.all_invalid(&at, finalizer, &qualified_name(finalizer));
        metadata::known_finalizer(finalizer, &at, errors);
    }
}

pub(in crate::kinds) fn node(object: &Value, errors: &mut Errors) {
    pod::node_taints(object.items("spec.taints"), &Path::new("metadata.taints"), errors);
    let ranges = object.items("spec.podCIDRs");
    for (index, range) in ranges.iter().enumerate() {
        address::check_range(range.as_str().unwrap_or(""), &Path::new("spec.podCIDRs").index(index), errors);
    }
    let four = |range: &Value| range.as_str().is_some_and(|range| !range.contains(':'));
    let fours = ranges.iter().filter(|range| four(range)).count();
    if ranges.len() > 1 && (fours != 1 || ranges.len() > 2) {
        let why = "may specify no more than one CIDR for each IP family";
        errors.invalid(&Path::new("spec.podCIDRs"), ranges.to_vec(), why);
    }
}

pub(in crate::kinds) fn node_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    let before = old.text("spec.providerID");
    if !before.is_empty() && before != new.text("spec.providerID") {
        let why = "node updates may not change providerID except from \"\" to valid";
        errors.forbidden(&Path::new("spec.providerID"), why);
    }
    for (index, range) in old.items("spec.podCIDRs").iter().enumerate() {
        if new.items("spec.podCIDRs").get(index) != Some(range) {
            errors.forbidden(
                &Path::new("spec.podCIDRs"),
                "node updates may not change podCIDR except from \"\" to valid",
            );
            break;
        }
    }
    pod::node_taints(new.items("spec.taints"), &Path::new("metadata.taints"), errors);
}

pub(in crate::kinds) fn quota(object: &Value, errors: &mut Errors) {
    let at = Path::new("spec.hard");
    for (name, value) in object.entries("spec.hard") {
        let at = at.key(name);
        resources::quota_name(name, &at, errors);
        resources::quantity(name, value, &at, errors);
    }
    let scopes = object.items("spec.scopes");
    let at = Path::new("spec.scopes");
    let known = [
        "Terminating",
        "NotTerminating",
        "BestEffort",
        "NotBestEffort",
        "PriorityClass",
        "VolumeAttributesClass",
        "CrossNamespacePodAffinity",
    ];
    let shown = || Value::from(scopes.to_vec());
    for scope in scopes.iter().filter_map(Value::as_str) {
        if !known.contains(&scope) {
            errors.invalid(&at, shown(), "unsupported scope");
        }
        let unfit = |name: &str| resources::is_standard_quota(name) && !resources::fits_scope(scope, name);
        for _ in object.entries("spec.hard").filter(|(name, _)| unfit(name)) {
            errors.invalid(&at, shown(), "unsupported scope applied to resource");
        }
    }
    let has = |wanted: &str| scopes.iter().any(|scope| scope == wanted);
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| has(scope)) {
            errors.invalid(&at, shown(), "conflicting scopes");
        }
    }
}

pub(in crate::kinds) fn quota_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    quota(new, errors);
    let sorted = |object: &Value| {
        let mut scopes: Vec<String> =
            object.items("spec.scopes").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        scopes.sort();
        scopes
    };
    if sorted(new) != sorted(old) {
        errors.invalid(&Path::new("spec.scopes"), new.items("spec.scopes").to_vec(), words::IMMUTABLE);
    }
}

pub(in crate::kinds) fn limit_range(object: &Value, errors: &mut Errors) {
    let mut types: Vec<&str> = Vec::new();
    for (index, limit) in object.items("spec.limits").iter().enumerate() {
        let at = Path::new("spec.limits").index(index);
        let of = limit.text("type");
        let wrong = qualified_name(of);
        errors.all_invalid(&at.child("type"), of, &wrong);
        let standard = matches!(of, "Pod" | "Container" | "PersistentVolumeClaim");
        if wrong.is_empty() && !of.contains('/') && !standard {
            errors.invalid(&at.child("type"), of, "must be a standard limit type or fully qualified");
        }
        if types.contains(&of) {
            errors.duplicate(&at.child("type"), of);
        }
        types.push(of);
        let lists: &[&str] = if of == "Pod" {
            for field in ["default", "defaultRequest"].into_iter().filter(|field| limit.entries(field).next().is_some())
            {
                errors.forbidden(&at.child(field), "may not be specified when `type` is 'Pod'");
            }
            &["max", "min", "maxLimitRequestRatio"]
        } else {
            &["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
        };
        for list in lists {
            for (name, _) in limit.entries(list) {
                let at = at.child(list).key(name);
                if matches!(of, "Pod" | "Container") {
                    resources::container_name(name, &at, errors);
                } else {
                    resources::name(name, &at, errors);
                }
            }
        }
        if of == "PersistentVolumeClaim" && !["min", "max"].iter().any(|list| limit.has(&format!("{list}.storage"))) {
            let why = "either minimum or maximum storage value is required, but neither was provided";
            errors.required(&at.child("limits"), why);
        }
        limit_order(limit, &at, errors);
    }
}

/// The lesser may not be more.
fn limit_order(limit: &Value, at: &Path, errors: &mut Errors) {
    let pairs = [
        ("min", "min", "max", "min value", "max value"),
        ("defaultRequest", "min", "defaultRequest", "min value", "default request value"),
        ("defaultRequest", "defaultRequest", "max", "default request value", "max value"),
        ("defaultRequest", "defaultRequest", "default", "default request value", "default limit value"),
        ("default", "min", "default", "min value", "default value"),
        ("default", "default", "max", "default value", "max value"),
    ];
    let mut names: Vec<&String> = ["min", "max", "default", "defaultRequest"]
        .iter()
        .flat_map(|list| limit.entries(list))
        .map(|(name, _)| name)
        .collect();
    names.sort();
    names.dedup();
    for name in names {
        for (at_list, less, more, less_word, more_word) in pairs {
            let amount = |list: &str| limit.at(list).and_then(|list| list.get(name));
            let (Some(lesser), Some(greater)) = (amount(less), amount(more)) else { continue };
            if resources::is_more(lesser, greater) {
                let (less_text, more_text) = (lesser.as_str().unwrap_or(""), greater.as_str().unwrap_or(""));
                let why = format!("{less_word} {less_text} is greater than {more_word} {more_text}");
                let shown = match (at_list, less) {
                    ("default", "min") => lesser,
                    ("default", _) => greater,
                    _ => amount(at_list).unwrap_or(lesser),
                };
                errors.invalid(&at.child(at_list).key(name), shown.clone(), &why);
            }
        }
    }
}

pub(in crate::kinds) fn limit_range_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    metadata::check(new, true, NameRule::Subdomain, errors);
    limit_range(new, errors);
}

pub(in crate::kinds) fn endpoints(object: &Value, errors: &mut Errors) {
    for (index, subset) in object.items("subsets").iter().enumerate() {
        let at = Path::new("subsets").index(index);
        if subset.items("addresses").is_empty() && subset.items("notReadyAddresses").is_empty() {
            errors.required(&at, "must specify `addresses` or `notReadyAddresses`");
        }
        for list in ["addresses", "notReadyAddresses"] {
            for (index, given) in subset.items(list).iter().enumerate() {
                let at = at.child(list).index(index);
                address::check(given.text("ip"), &at.child("ip"), errors);
                let host = given.text("hostname");
                if !host.is_empty() {
                    errors.all_invalid(&at.child("hostname"), host, &dns_label(host));
                }
                if let Some(node) = given.at("nodeName").and_then(Value::as_str) {
                    errors.all_invalid(&at.child("nodeName"), node, &dns_subdomain(node));
                }
                address::check_endpoint(given.text("ip"), &at.child("ip"), errors);
            }
        }
        let ports = subset.items("ports");
        for (index, port) in ports.iter().enumerate() {
            let at = at.child("ports").index(index);
            match port.text("name") {
                "" if ports.len() > 1 => errors.required(&at.child("name"), ""),
                "" => {}
                name => errors.all_invalid(&at.child("name"), name, &dns_label(name)),
            }
            let number = port.number("port").unwrap_or(0);
            if !(1..=65535).contains(&number) {
                errors.invalid(&at.child("port"), number, PORT);
            }
            pod::one_of(port, "protocol", &["SCTP", "TCP", "UDP"], &at, errors);
        }
    }
}

pub(in crate::kinds) fn endpoints_update(new: &Value, old: &Value, errors: &mut Errors) {
    metadata::check_update(new, old, errors);
    metadata::check(new, true, NameRule::Subdomain, errors);
    endpoints(new, errors);
}
