//! Bodies and what a kube-apiserver 1.36 answered to them.

use super::*;
use crate::schema::builtin;

fn read(group: &str, kind: &str, body: &str, validation: FieldValidation) -> Result<Decoded, String> {
    let types = builtin();
    let typed = types.named(builtin_kind(group, "v1", kind).unwrap()).unwrap();
    let expected = Expected { group, version: "v1", kind, typed };
    read_body(expected, body.as_bytes(), validation).map_err(|error| error.to_string())
}

fn refusal(group: &str, kind: &str, body: &str) -> String {
    read(group, kind, body, FieldValidation::Warn).unwrap_err()
}

#[test]
fn says_which_value_has_the_wrong_type() {
    let deployments = [
        (r#"{"spec":{"replicas":"3"}}"#, "string into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (r#"{"spec":{"replicas":1.5}}"#, "number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32"),
        (
            r#"{"spec":{"replicas":30000000000}}"#,
            "number 30000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (r#"{"spec":[]}"#, "array into Go struct field Deployment.spec of type v1.DeploymentSpec"),
        (
            r#"{"spec":{"template":{"spec":{"containers":{}}}}}"#,
            "object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            r#"{"spec":{"template":{"spec":{"containers":[{"name":7,"ports":[{"containerPort":"x"}]}]}}}}"#,
            "number into Go struct field Container.spec.template.spec.containers.name of type string",
        ),
        (r#"{"metadata":{"labels":{"a":1}}}"#, "number into Go struct field ObjectMeta.metadata.labels of type string"),
        (
            r#"{"metadata":{"labels":[]}}"#,
            "array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        ),
    ];
    for (body, wanted) in deployments {
        let start = "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal ";
        assert_eq!(refusal("apps", "Deployment", body), format!("{start}{wanted}"), "{body}");
    }
    let quantity =
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".to_owned();
    let unmarshal = |rest: &str| format!("json: cannot unmarshal {rest}");
    let pods = [
        (
            r#"{"metadata":{"creationTimestamp":7}}"#,
            unmarshal("number into Go struct field ObjectMeta.metadata.creationTimestamp of type string"),
        ),
        (
            r#"{"spec":{"volumes":[{"name":"a","hostPath":7}]}}"#,
            unmarshal(
                "number into Go struct field Volume.spec.volumes.VolumeSource.hostPath of type v1.HostPathVolumeSource",
            ),
        ),
        (
            r#"{"spec":{"restartPolicy":7,"volumes":[{"name":"a","hostPath":{"path":{}}}]}}"#,
            unmarshal("number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy"),
        ),
        // A literal that its type refuses is worse than a wrong type before it.
        (r#"{"spec":{"restartPolicy":7,"containers":[{"resources":{"limits":{"cpu":"x"}}}]}}"#, quantity),
        (r#"{"spec":true}"#, unmarshal("bool into Go struct field Pod.spec of type v1.PodSpec")),
        (r#"{"metadata":7}"#, unmarshal("number into Go struct field Pod.metadata of type v1.ObjectMeta")),
        (
            r#"{"spec":{"hostNetwork":1e400}}"#,
            unmarshal("number into Go struct field PodSpec.spec.hostNetwork of type bool"),
        ),
    ];
    for (body, wanted) in pods {
        let start = "Pod in version \"v1\" cannot be handled as a Pod: ";
        assert_eq!(refusal("", "Pod", body), format!("{start}{wanted}"), "{body}");
    }
    let secrets = [
        (r#"{"data":{"a":"***"}}"#, "illegal base64 data at input byte 0".to_owned()),
        (r#"{"data":{"a":7}}"#, unmarshal("number into Go struct field Secret.data of type []uint8")),
        (
            r#"{"metadata":{"managedFields":[{"time":7}]},"data":[]}"#,
            unmarshal("number into Go struct field ManagedFieldsEntry.metadata.managedFields.time of type string"),
        ),
    ];
    for (body, wanted) in secrets {
        let start = "Secret in version \"v1\" cannot be handled as a Secret: ";
        assert_eq!(refusal("", "Secret", body), format!("{start}{wanted}"), "{body}");
    }
}

#[test]
fn says_what_is_no_object_of_the_kind() {
    let unrecognized = "the object provided is unrecognized (must be of type Deployment): couldn't get version/kind; \
                        json parse error: ";
    let go = "json: cannot unmarshal";
    let fields =
        r#"type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let cases = [
        ("", "unexpected end of JSON input (<empty>)".to_owned()),
        ("x", "invalid character 'x' looking for beginning of value (78)".to_owned()),
        ("[]", format!("{go} array into Go value of {fields} (5b5d)")),
        (r#""a""#, format!("{go} string into Go value of {fields} (226122)")),
        (
            r#"{"kind":7,"apiVersion":"apps/v1"}"#,
            format!(r#"{go} number into Go struct field .kind of type string ({{"kind":7,"apiVersion":"apps/v ...)"#),
        ),
    ];
    for (body, wanted) in cases {
        assert_eq!(refusal("apps", "Deployment", body), format!("{unrecognized}{wanted}"), "{body}");
    }
    let handled = "in version \"v1\" cannot be handled as a Deployment:";
    assert_eq!(
        refusal("apps", "Deployment", r#"{"kind":"Pod","apiVersion":"v1"}"#),
        format!("Pod {handled} converting (v1.Pod) to (apps.Deployment): unknown conversion")
    );
    assert_eq!(
        refusal("apps", "Deployment", r#"{"kind":"Pody","apiVersion":"apps/v1"}"#),
        format!(
            "Pody {handled} no kind \"Pody\" is registered for version \"apps/v1\" in scheme \"pkg/runtime/scheme.go:111\""
        )
    );
}

#[test]
fn tells_what_is_unknown_or_there_twice() {
    let body = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"x\"y":1,
        "spec":{"foo":1,"replicas":2,"Replicas":3,"replicas":3,
            "template":{"spec":{"containers":[{"nam":3},{"x.y":3}],"containers":[]}},"template":{}}}"#;
    let wanted = [
        r#"unknown field "x\"y""#,
        r#"unknown field "spec.foo""#,
        r#"unknown field "spec.Replicas""#,
        r#"duplicate field "spec.replicas""#,
        r#"unknown field "spec.template.spec.containers[0].nam""#,
        r#"unknown field "spec.template.spec.containers[1].x.y""#,
        r#"duplicate field "spec.template.spec.containers""#,
        r#"duplicate field "spec.template""#,
    ];
    let warned = read("apps", "Deployment", body, FieldValidation::Warn).unwrap();
    assert_eq!(warned.findings, wanted);
    assert_eq!(warned.object.pointer("/spec/replicas").unwrap(), 3);
    assert!(warned.object.pointer("/spec/foo").is_none());
    assert_eq!(read("apps", "Deployment", body, FieldValidation::Ignore).unwrap().findings, [""; 0]);
    assert_eq!(
        read("apps", "Deployment", body, FieldValidation::Strict).unwrap_err(),
        format!(
            "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: {}",
            wanted.join(", ")
        )
    );
}

#[test]
fn fills_in_what_go_prints() {
    let body = r#"{"metadata":{"name":"a","labels":{"a":null}},"data":{"a":null,"b":"YQ==","b":"Yg=="}}"#;
    let read = read("", "Secret", body, FieldValidation::Warn).unwrap();
    assert_eq!(read.findings, [r#"duplicate field "data.b""#]);
    assert_eq!(
        read.object.to_string(),
        r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a","labels":{"a":""}},"data":{"a":"","b":"Yg=="}}"#
    );
}
