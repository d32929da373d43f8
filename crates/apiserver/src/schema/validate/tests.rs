//! Objects and what a kube-apiserver 1.36 answered to them.

use serde_json::json;

use super::*;
use crate::schema::{Expected, FieldValidation, read_body, structural};

fn schema() -> Value {
    serde_json::from_str(include_str!("widget.json")).unwrap()
}

fn read(body: &Value, validation: FieldValidation) -> Result<(Value, Vec<String>), String> {
    read_text(&body.to_string(), validation)
}

fn read_text(body: &str, validation: FieldValidation) -> Result<(Value, Vec<String>), String> {
    let types = structural("Widget", Some(&schema()));
    let typed = types.named("Widget").unwrap();
    let expected = Expected { group: "example.com", version: "v1", kind: "Widget", typed };
    let decoded = read_body(expected, body.as_bytes(), validation).map_err(|error| error.to_string())?;
    Ok((decoded.object, decoded.findings))
}

fn widget(spec: &Value) -> Value {
    json!({"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":spec})
}

/// What is told of an object, as `field: message`.
fn told(spec: &Value) -> Vec<String> {
    let types = structural("Widget", Some(&schema()));
    let (object, _) = read(&widget(spec), FieldValidation::Ignore).unwrap();
    let causes = validate(types.named("Widget").unwrap(), &object);
    causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn says_what_a_kube_apiserver_says() {
    let nil = "<nil>: Invalid value: \"\":";
    let cases: Vec<(Value, Vec<String>)> = [
        (json!({}), vec!["spec.size: Required value"]),
        (json!({"size":null}), vec!["spec.size: Required value"]),
        (
            json!({"size":0}),
            vec!["spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"],
        ),
        (
            json!({"size":11}),
            vec!["spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"],
        ),
        (
            json!({"size":"x"}),
            vec![r#"spec.size: Invalid value: "string": spec.size in body must be of type integer: "string""#],
        ),
        (
            json!({"size":1.5}),
            vec![
                r#"spec.size: Invalid value: "float64": spec.size in body must be of type int32: "float64""#,
                r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.size"#,
            ],
        ),
        (
            json!({"size":99_999_999_999_i64}),
            vec![
                r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.size"#,
                "spec.size: Invalid value: 99999999999: spec.size in body should be less than or equal to 10",
            ],
        ),
        (
            json!({"size":1,"ratio":0}),
            vec![
                "spec.ratio: Invalid value: 0: factor MultipleOf declared for spec.ratio must be positive: 0",
                "spec.ratio: Invalid value: 0: spec.ratio in body should be greater than 0",
            ],
        ),
        (
            json!({"size":1,"ratio":0.7}),
            vec!["spec.ratio: Invalid value: 0.7: spec.ratio in body should be a multiple of 0.5"],
        ),
        (
            json!({"size":1,"big":1_000_001}),
            vec!["spec.big: Invalid value: 1000001: spec.big in body should be less than or equal to 1000000"],
        ),
        (
            json!({"size":1,"big":1_000_000.5}),
            vec!["spec.big: Invalid value: 1.0000005e+06: spec.big in body should be less than or equal to 1e+06"],
        ),
        (
            json!({"size":1,"name":"a"}),
            vec![r#"spec.name: Invalid value: "a": spec.name in body should be at least 2 chars long"#],
        ),
        (json!({"size":1,"name":"abcdef"}), vec!["spec.name: Too long: may not be more than 5 bytes"]),
        (
            json!({"size":1,"name":"AB"}),
            vec![r#"spec.name: Invalid value: "AB": spec.name in body should match '^[a-z]+$'"#],
        ),
        (json!({"size":1,"mode":"C"}), vec![r#"spec.mode: Unsupported value: "C": supported values: "A", "B""#]),
        (json!({"size":1,"num":3}), vec![r#"spec.num: Unsupported value: 3: supported values: "1", "2""#]),
        (
            json!({"size":1,"port":true}),
            vec![r#"spec.port: Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean""#],
        ),
        (
            json!({"size":1,"list":[]}),
            vec!["spec.list: Invalid value: 0: spec.list in body should have at least 1 items"],
        ),
        (json!({"size":1,"list":["a","b","c"]}), vec!["spec.list: Too many: 3: must have at most 2 items"]),
        (
            json!({"size":1,"list":["a",1]}),
            vec![r#"spec.list[1]: Invalid value: "integer": spec.list[1] in body must be of type string: "integer""#],
        ),
        (json!({"size":1,"set":["a","b","a"]}), vec![r#"spec.set[2]: Duplicate value: "a""#]),
        (json!({"size":1,"map":[{"k":"a"},{"k":"a"}]}), vec![r#"spec.map[1]: Duplicate value: {"k":"a"}"#]),
        (json!({"size":1,"map":[{"v":1}]}), vec!["spec.map[0].k: Required value"]),
        (
            json!({"size":1,"dict":{}}),
            vec!["spec.dict: Invalid value: 0: spec.dict in body should have at least 1 properties"],
        ),
        (json!({"size":1,"dict":{"a":1,"b":2,"c":3}}), vec!["spec.dict: Too many: 3: must have at most 2 items"]),
        (
            json!({"size":1,"dict":{"a":-1}}),
            vec!["spec.dict.a: Invalid value: -1: spec.dict.a in body should be greater than or equal to 0"],
        ),
        (
            json!({"size":1,"when":"x"}),
            vec![r#"spec.when: Invalid value: "x": spec.when in body must be of type date-time: "x""#],
        ),
        (json!({"size":1,"ip":"x"}), vec![r#"spec.ip: Invalid value: "x": spec.ip in body must be of type ipv4: "x""#]),
        (
            json!({"size":1,"anyof":{"a":1}}),
            vec![
                r#"<nil>: Invalid value: "": "spec.anyof" must validate at least one schema (anyOf)"#,
                "spec.anyof.a: Invalid value: 1: spec.anyof.a in body should be greater than or equal to 5",
            ],
        ),
        (
            json!({"size":1,"anyof":{}}),
            vec![
                r#"<nil>: Invalid value: "": "spec.anyof" must validate at least one schema (anyOf)"#,
                "spec.anyof.a: Required value",
            ],
        ),
        (
            json!({"size":1,"allof":8}),
            vec![
                "spec.allof: Invalid value: 8: spec.allof in body should be less than or equal to 7",
                r#"<nil>: Invalid value: "": "spec.allof" must validate all the schemas (allOf)"#,
            ],
        ),
        (json!({"size":1,"emb":{}}), vec!["spec.emb.apiVersion: Required value", "spec.emb.kind: Required value"]),
        (json!([]), vec![r#"spec: Invalid value: "array": spec in body must be of type object: "array""#]),
        (json!(null), vec!["spec: Required value"]),
        (json!({"size":1,"odd":"anything","any":7,"open":{"x":1}}), vec![]),
    ]
    .into_iter()
    .map(|(spec, told)| (spec, told.into_iter().map(str::to_owned).collect()))
    .chain([
        (
            json!({"size":1,"one":{}}),
            vec![
                format!("{nil} \"spec.one\" must validate one and only one schema (oneOf). Found none valid"),
                "spec.one.a: Required value".to_owned(),
            ],
        ),
        (
            json!({"size":1,"one":{"a":1,"b":1}}),
            vec![format!(
                "{nil} \"spec.one\" must validate one and only one schema (oneOf). Found 2 valid alternatives"
            )],
        ),
        (json!({"size":1,"not":"bad"}), vec![format!("{nil} \"spec.not\" must not validate the schema (not)")]),
    ])
    .collect();
    for (spec, wanted) in cases {
        assert_eq!(told(&spec), wanted, "{spec}");
    }
}

#[test]
fn fills_in_defaults_and_prunes() {
    let (object, _) = read(&widget(&json!({"size":1,"nonnul":null,"nul":null})), FieldValidation::Warn).unwrap();
    let spec = object.get("spec").unwrap();
    assert_eq!(spec, &json!({"size":1,"nul":null,"name":"abc","mode":"A","flag":true,"sub":{"x":5}}));
    let body = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1,"foo":1,
        "sub":{"q":1,"y":{"z":"a","w":2}},"open":{"a":1,"typed":{"b":1}},"any":{"x":1},"map":[{"k":"a","z":1}],
        "emb":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x","foo":1},"spec":{"a":1}},"size":2}}"#;
    let (object, warnings) = read_text(body, FieldValidation::Warn).unwrap();
    let wanted = [
        "duplicate field \"spec.size\"",
        "unknown field \"spec.foo\"",
        "unknown field \"spec.map[0].z\"",
        "unknown field \"spec.open.typed.b\"",
        "unknown field \"spec.sub.q\"",
        "unknown field \"spec.sub.y.w\"",
        "unknown field \"spec.emb.metadata.foo\"",
    ];
    assert_eq!(warnings, wanted);
    assert_eq!(object.pointer("/spec/map").unwrap(), &json!([{"k":"a","v":7}]));
    assert_eq!(object.pointer("/spec/open").unwrap(), &json!({"a":1,"typed":{}}));
    assert_eq!(object.pointer("/spec/emb/spec").unwrap(), &json!({"a":1}));
    assert_eq!(
        read_text(body, FieldValidation::Strict).unwrap_err(),
        format!("Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: {}", wanted.join(", "))
    );
    let body = r#"{"apiVersion":"example.com/v1","kind":"Widget","foo":{"a":1},
        "metadata":{"name":"a","foo":1,"labels":{"a":"b","a":"c"}},"spec":{"size":1}}"#;
    assert_eq!(
        read_text(body, FieldValidation::Warn).unwrap().1,
        ["duplicate field \"metadata.labels.a\"", "unknown field \"metadata.foo\"", "unknown field \"foo\""]
    );
}

#[test]
fn refuses_what_is_no_widget() {
    let cases = [
        ("{}", "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in '{}' ({})"),
        (
            r#"{"kind":"Widget"}"#,
            "the API version in the data () does not match the expected API version (example.com/v1)",
        ),
        (
            r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":7}"#,
            "Widget in version \"v1\" cannot be handled as a Widget: json: cannot unmarshal number into Go value of type \
             v1.ObjectMeta",
        ),
        (
            r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"a":7}}}"#,
            "Widget in version \"v1\" cannot be handled as a Widget: json: cannot unmarshal number into Go struct field \
             ObjectMeta.labels of type string",
        ),
        (
            r#"{"apiVersion":"example.com/v1","kind":"Widget","spec":{"emb":{"metadata":{"labels":{"a":7}}}}}"#,
            "Widget in version \"v1\" cannot be handled as a Widget: spec.emb.metadata: Invalid value: \
             {\"labels\":{\"a\":7}}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
        ),
    ];
    for (body, wanted) in cases {
        assert_eq!(read_text(body, FieldValidation::Warn).unwrap_err(), wanted, "{body}");
    }
}

#[test]
fn lets_pass_what_was_wrong_before() {
    let types = structural("Widget", Some(&schema()));
    let typed = types.named("Widget").unwrap();
    let old = widget(&json!({"size":11,"mode":"C","map":[{"k":"a","v":"x"}]}));
    let changed = widget(&json!({"size":11,"mode":"D","map":[{"k":"b"},{"k":"a","v":"x"}]}));
    let causes = validate_update(typed, &changed, &old);
    let told: Vec<_> = causes.iter().map(|cause| cause.field.as_str()).collect();
    assert_eq!(told, ["spec.mode"]);
}
