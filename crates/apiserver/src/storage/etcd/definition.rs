//! Custom resource definitions as a kube-apiserver stores them: in `v1beta1`, which it does not serve any more.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/apis/apiextensions/v1beta1/conversion.go`, `v1/conversion.go`.

use serde_json::{Map, Value};

const OLD: &str = "apiextensions.k8s.io/v1beta1";
const NEW: &str = "apiextensions.k8s.io/v1";
/// What the first version has stands beside the versions where all have the same.
const OF_ALL: [(&str, &str); 4] = [
    ("validation", "schema"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// Says whether [`modernize`] has something to do with an object that begins as those do that are stored here.
pub(super) fn is_old(json: &str) -> bool {
    json.strip_prefix("{\"kind\":\"CustomResourceDefinition\",\"apiVersion\":\"")
        .is_some_and(|rest| rest.starts_with(OLD))
}

/// Brings a definition to `v1`. Any other object stays.
pub(super) fn modernize(object: &mut Value) {
    if object.get("apiVersion").and_then(Value::as_str) != Some(OLD) {
        return;
    }
    object["apiVersion"] = NEW.into();
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.shift_remove("version");
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(false)) {
        spec.shift_remove("preserveUnknownFields");
    }
    let common: Map<String, Value> =
        OF_ALL.iter().filter_map(|(old, new)| Some(((*new).to_owned(), spec.shift_remove(*old)?))).collect();
    for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(version) = version.as_object_mut() else { continue };
        for (name, value) in &common {
            version.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let columns = version.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut);
        for column in columns.into_iter().flatten().filter_map(Value::as_object_mut) {
            if let Some(path) = column.shift_remove("JSONPath") {
                column.insert("jsonPath".to_owned(), path);
            }
        }
    }
    let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) else { return };
    let (client, reviews) =
        (conversion.shift_remove("webhookClientConfig"), conversion.shift_remove("conversionReviewVersions"));
    if let Some(client) = client {
        let mut webhook = Map::new();
        webhook.insert("clientConfig".to_owned(), client);
        webhook.extend(reviews.map(|reviews| ("conversionReviewVersions".to_owned(), reviews)));
        conversion.insert("webhook".to_owned(), webhook.into());
    }
}
