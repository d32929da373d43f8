//! What a webhook of conversion is asked, and what its answer means.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/apiserver/conversion/webhook_converter.go`.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::GROUP;
use crate::{kinds::put, patch::kind_shown, registry::faults_of_maps, schema::Text, webhook::ClientError};
use kubefold_wire::{
    access::text,
    golang::{self, Quoted},
};

/// The versions of a `ConversionReview` that this server speaks.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const KIND: &str = "ConversionReview";

/// A `ConversionReview`.
pub(super) struct Review<'a> {
    pub(super) version: &'static str,
    pub(super) uid: &'a str,
    /// The version that is wanted.
    pub(super) api_version: &'a str,
}

/// Why objects were not converted, as it stands behind whose they are.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    /// The webhook supports no version of `ConversionReview` that this server sends.
    #[error("no supported conversion review versions")]
    Version,
    /// It did not answer.
    #[error("failed: {0}")]
    Client(#[from] ClientError),
    /// It answered what is no answer to this review, or that it failed.
    #[error("failed: {0}")]
    Failed(String),
    /// It lost objects, or made some.
    #[error("returned {is} objects, expected {wanted}")]
    Count {
        /// How many came back.
        is: usize,
        /// How many were sent.
        wanted: usize,
    },
    /// It made something that is no object.
    #[error("Object 'Kind' is missing in '{0}'")]
    Kind(Value),
    /// It made something else of an object.
    #[error("returned invalid object{0}")]
    Object(String),
    /// It changed what is alike in all versions.
    #[error("returned invalid metadata: {0}")]
    Metadata(String),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Body {
    api_version: String,
    kind: String,
    response: Option<Response>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Response {
    uid: String,
    converted_objects: Option<Vec<Value>>,
    result: Outcome,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Outcome {
    status: String,
    message: String,
}

impl Review<'_> {
    /// A version of reviews, if this server speaks it.
    pub(super) fn known(version: &str) -> Option<&'static str> {
        VERSIONS.into_iter().find(|known| *known == version)
    }

    /// The body of the call about objects, which are JSON with commas between.
    pub(super) fn body(&self, objects: &str) -> Bytes {
        let Self { version, uid, api_version } = self;
        let (uid, api_version) = (json!(uid), json!(api_version));
        format!(
            "{{\"kind\":\"{KIND}\",\"apiVersion\":\"{GROUP}/{version}\",\"request\":{{\"uid\":{uid},\
             \"desiredAPIVersion\":{api_version},\"objects\":[{objects}]}}}}"
        )
        .into()
    }

    /// The converted objects of an answer, with the metadata of those that were sent.
    ///
    /// Errors: it is no answer to this review, or says what may not be said.
    pub(super) fn read(&self, sent: &[Value], body: &[u8]) -> Result<Vec<Value>, ReviewError> {
        let unreadable =
            |why: &dyn std::error::Error| failed(format!("couldn't get version/kind; json parse error: {why}"));
        let body = String::from_utf8_lossy(body);
        let body = Text::read(&body).map_err(|error| unreadable(&error))?.value();
        let body = Body::deserialize(body).map_err(|error| unreadable(&error))?;
        let expected = format!("{GROUP}/{}", self.version);
        // Webhooks of the first version were not held to this.
        let is_strict = self.version == "v1";
        if is_strict && (body.api_version != expected || body.kind != KIND) {
            let got = kind_shown(&body.api_version, &body.kind);
            return Err(failed(format!("expected webhook response of {}, got {got}", kind_shown(&expected, KIND))));
        }
        let response = body.response.ok_or_else(|| failed("no response provided".to_owned()))?;
        if is_strict && response.uid != self.uid {
            let (wanted, got) = (Quoted(self.uid), Quoted(&response.uid));
            return Err(failed(format!("expected response.uid={wanted}, got {got}")));
        }
        match response.result {
            Outcome { status, .. } if status == "Success" => {}
            Outcome { message, .. } if !message.is_empty() => return Err(failed(message)),
            Outcome { status, .. } => {
                return Err(failed(format!("response.result.status was '{status}', not 'Success'")));
            }
        }
        let converted = response.converted_objects.unwrap_or_default();
        if converted.len() != sent.len() {
            return Err(ReviewError::Count { is: converted.len(), wanted: sent.len() });
        }
        let both = converted.into_iter().zip(sent).enumerate();
        both.map(|(index, (converted, sent))| self.restored(index, converted, sent)).collect()
    }

    /// A converted object with the metadata of the one that was sent. Only labels and annotations may be others.
    fn restored(&self, index: usize, mut converted: Value, sent: &Value) -> Result<Value, ReviewError> {
        let at = |why: String| Err(ReviewError::Object(format!(" at index {index}: {why}")));
        if text(&converted, "/kind").is_empty() {
            return Err(ReviewError::Kind(converted));
        }
        let (wanted, got) = (self.api_version, text(&converted, "/apiVersion"));
        if wanted != got {
            return at(format!("invalid groupVersion (expected {wanted}, received {got})"));
        }
        let (wanted, got) = (text(sent, "/kind"), text(&converted, "/kind"));
        if wanted != got {
            return at(format!("invalid kind (expected {wanted}, received {got})"));
        }
        for (what, place) in
            [("name", "/metadata/name"), ("namespace", "/metadata/namespace"), ("UID", "/metadata/uid")]
        {
            let (wanted, got) = (text(sent, place), text(&converted, place));
            if wanted != got {
                return Err(ReviewError::Object(format!(": must have the same {what}: {wanted} != {got}")));
            }
        }
        let metadata = restored_metadata(converted.get("metadata"), sent.get("metadata"));
        put(&mut converted, "metadata", Some(metadata?));
        Ok(converted)
    }
}

fn failed(why: String) -> ReviewError {
    ReviewError::Failed(why)
}

/// Metadata as it was sent, with the labels and annotations of what was converted.
fn restored_metadata(converted: Option<&Value>, sent: Option<&Value>) -> Result<Value, ReviewError> {
    let invalid = |why: String| Err(ReviewError::Metadata(why));
    let Some(converted) = converted else { return invalid("missing metadata in converted object".to_owned()) };
    let Some(said) = converted.as_object() else {
        return invalid(format!("invalid metadata of type {} in converted object", golang::type_name(converted)));
    };
    let mut metadata = sent.filter(|sent| sent.is_object()).cloned().unwrap_or_else(|| json!({}));
    for name in ["labels", "annotations"] {
        let Some(value) = said.get(name).filter(|value| !value.is_null()) else {
            put(&mut metadata, name, None);
            continue;
        };
        let Some(fields) = value.as_object() else {
            let of = golang::type_name(value);
            return invalid(format!("invalid metadata.{name} of type {of} in converted object"));
        };
        if let Some((key, value)) = fields.iter().find(|(_, value)| !value.is_string()) {
            let of = golang::type_name(value);
            return invalid(format!("metadata.{name}[{key}] must be a string, but is {of} in converted object"));
        }
        if metadata.get(name) != Some(value) {
            let faults = faults_of_maps(&json!({"metadata": {name: value}}));
            // A kube-apiserver names the field so.
            let told = |cause: &kubefold_wire::status::Cause| cause.text().replacen("annotations:", "annotation:", 1);
            let told: Vec<String> = faults.iter().map(told).collect();
            match told.as_slice() {
                [] => {}
                [one] => return invalid(one.clone()),
                several => return invalid(format!("[{}]", several.join(", "))),
            }
        }
        put(&mut metadata, name, Some(value.clone()));
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REVIEW: Review<'_> = Review { version: "v1", uid: "u", api_version: "example.com/v2" };

    fn sent() -> Value {
        json!({
            "apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": "a", "uid": "1", "generation": 3, "labels": {"x": "y"}}, "spec": {"old": 1},
        })
    }

    fn converted() -> Value {
        json!({
            "apiVersion": "example.com/v2", "kind": "Widget",
            "metadata": {"name": "a", "uid": "1", "generation": 9, "annotations": {"k": "v"}}, "spec": {"new": 1},
        })
    }

    fn answer(objects: Value) -> Value {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response":
            {"uid": "u", "result": {"status": "Success"}, "convertedObjects": objects}})
    }

    fn read(answer: &Value) -> Result<Vec<Value>, String> {
        REVIEW.read(&[sent()], answer.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn asks_as_a_kube_apiserver() {
        let body: Value = serde_json::from_slice(&REVIEW.body(&sent().to_string())).unwrap();
        let request = json!({"uid": "u", "desiredAPIVersion": "example.com/v2", "objects": [sent()]});
        let kind = "ConversionReview";
        assert_eq!(body, json!({"kind": kind, "apiVersion": "apiextensions.k8s.io/v1", "request": request}));
    }

    #[test]
    fn only_labels_and_annotations_of_the_metadata_change() {
        let read = read(&answer(json!([converted()]))).unwrap();
        let metadata = json!({"name": "a", "uid": "1", "generation": 3, "annotations": {"k": "v"}});
        let wanted =
            json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": metadata, "spec": {"new": 1}});
        assert_eq!(read, [wanted]);
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let with = |at: &str, value: Value| {
            let mut all = answer(json!([converted()]));
            *all.pointer_mut(at).unwrap() = value;
            read(&all).unwrap_err()
        };
        let object = |at: &str, value: Value| with(&format!("/response/convertedObjects/0{at}"), value);
        assert_eq!(with("/response/uid", "w".into()), "failed: expected response.uid=\"u\", got \"w\"");
        assert_eq!(with("/response", Value::Null), "failed: no response provided");
        assert_eq!(
            with("/kind", "".into()),
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got \
             apiextensions.k8s.io/v1, Kind="
        );
        let outcome = |value| with("/response/result", value);
        assert_eq!(outcome(json!({"status": "Failure", "message": "no"})), "failed: no");
        assert_eq!(outcome(json!({})), "failed: response.result.status was '', not 'Success'");
        assert_eq!(with("/response/convertedObjects", json!([])), "returned 0 objects, expected 1");
        assert_eq!(
            object("/apiVersion", "example.com/v3".into()),
            "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)"
        );
        assert_eq!(
            object("/kind", "Gadget".into()),
            "returned invalid object at index 0: invalid kind (expected Widget, received Gadget)"
        );
        assert_eq!(object("/metadata/name", "b".into()), "returned invalid object: must have the same name: a != b");
        assert_eq!(
            object("/metadata/annotations", json!({"k": 7})),
            "returned invalid metadata: metadata.annotations[k] must be a string, but is int64 in converted object"
        );
        let wrong = object("/metadata/annotations", json!({"a b": ""}));
        assert!(wrong.starts_with("returned invalid metadata: metadata.annotation: Invalid value: \"a b\""), "{wrong}");
    }

    #[test]
    fn the_first_version_is_held_to_less() {
        let review = Review { version: "v1beta1", ..REVIEW };
        let mut answer = answer(json!([converted()]));
        answer["kind"] = "".into();
        answer["response"]["uid"] = "w".into();
        assert_eq!(review.read(&[sent()], answer.to_string().as_bytes()).unwrap().len(), 1);
    }
}
