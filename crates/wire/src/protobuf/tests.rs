//! The oracle is Go: `testdata/vectors.txt` holds what its encoder wrote and its JSON printed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proptest::prelude::*;
use serde_json::Value;

use super::leaf::length_delimited;
use super::{
    EncodeError, JSON_BYTES_MAX, ListOpening, MessageType, ProtobufError, from_json, is_protobuf, record_len, to_json,
    watch_frame,
};
use crate::locate::{TypeOf, type_of};
use crate::types::Schema;

struct Vector {
    /// apiVersion, kind and filling.
    name: String,
    body: Vec<u8>,
    json: String,
    /// What Go encodes of the JSON.
    encoded: Vec<u8>,
}

/// Reads the committed vectors, or those of the file that KUBEFOLD_PROTOBUF_VECTORS names.
fn vectors() -> Vec<Vector> {
    let text = match std::env::var("KUBEFOLD_PROTOBUF_VECTORS") {
        Ok(path) => std::fs::read_to_string(path).expect("the file of vectors is there"),
        Err(_) => include_str!("testdata/vectors.txt").to_owned(),
    };
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines
        .chunks_exact(4)
        .map(|chunk| Vector {
            name: chunk[0].to_owned(),
            body: BASE64.decode(chunk[1]).expect("the body is base64"),
            json: chunk[2].to_owned(),
            encoded: BASE64.decode(if chunk[3] == "-" { chunk[1] } else { chunk[3] }).expect("the body is base64"),
        })
        .collect()
}

#[test]
fn prints_what_go_prints() {
    let vectors = vectors();
    assert!(vectors.len() >= 180, "only {} vectors", vectors.len());
    for vector in vectors {
        let json = to_json(&vector.body).unwrap_or_else(|error| panic!("{}: {error}", vector.name));
        let json = String::from_utf8(json).expect("JSON is UTF-8");
        let ours: Value =
            serde_json::from_str(&json).unwrap_or_else(|error| panic!("{}: {error}: {json}", vector.name));
        let theirs: Value = serde_json::from_str(&vector.json).expect("Go prints JSON");
        assert_eq!(ours, theirs, "{}", vector.name);
        // Not only the same value: the same order of fields, and the same digits.
        let differs = json.bytes().zip(vector.json.bytes()).position(|(a, b)| a != b);
        assert_eq!(
            differs.map(|at| (&json[at - 40..at + 20], &vector.json[at - 40..at + 20])),
            None,
            "{}",
            vector.name
        );
    }
}

#[test]
fn writes_what_go_writes() {
    for vector in vectors() {
        let ours = from_json(&vector.json).unwrap_or_else(|error| panic!("{}: {error}", vector.name));
        if ours != vector.encoded {
            let both = [&ours, &vector.encoded]
                .map(|body| to_json(body).map(|json| String::from_utf8(json).expect("JSON is UTF-8")));
            panic!("{}: {both:?}", vector.name);
        }
    }
}

#[test]
fn a_list_of_messages_is_the_list_that_go_writes() {
    let (mut lists, mut items) = (0, 0);
    for vector in vectors() {
        let (one, TypeOf { kind, api_version }) = (&vector.json, type_of(&vector.json));
        let of_kind = MessageType::of(api_version, kind).expect("a kind");
        let head = format!(
            r#"{{"kind":"{kind}List","apiVersion":"{api_version}","metadata":{{"resourceVersion":"7","continue":"t"}},"items":"#
        );
        // Of some kinds there are no lists.
        let Ok(opening) = ListOpening::new(&format!("{head}null}}")) else { continue };
        let (mut message, mut list) = (b"before".to_vec(), Vec::new());
        of_kind.encode(one, &mut message).expect("it fits");
        let message = message.strip_prefix(b"before").expect("it is appended");
        for count in [0, 1, 3] {
            list.clear();
            opening.open(count * record_len(message.len()), &mut list);
            for _ in 0..count {
                ListOpening::begin_item(message.len(), &mut list);
                list.extend_from_slice(message);
            }
            ListOpening::close(&mut list);
            let json = format!("{head}[{}]}}", vec![one.as_str(); count].join(","));
            assert!(from_json(&json).expect("a list") == list, "{}", vector.name);
            items += count;
        }
        lists += 1;
    }
    assert!(lists > 30 && items > 100, "{lists} {items}");
}

#[test]
fn what_does_not_fit_leaves_no_trace() {
    let pod = MessageType::of("v1", "Pod").expect("a kind");
    let mut out = b"before".to_vec();
    let newer = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{"nodeName":"n","newer":1}}"#;
    assert!(matches!(pod.encode(newer, &mut out), Err(EncodeError::Unfit(_))));
    assert_eq!(out, b"before");
    assert_eq!(MessageType::of("example.com/v1", "Pod"), None);
}

#[test]
fn the_length_of_a_record_is_known_before_it_is_written() {
    for len in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152] {
        let mut record = Vec::new();
        length_delimited(&mut record, 2, &vec![0; len]);
        assert_eq!(record_len(len), record.len(), "{len}");
    }
}

/// Writes a record of wire type 2.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut record = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        record.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    record.push(length as u8);
    record.extend_from_slice(bytes);
    record
}

/// Wraps a message as Go's serializer does.
fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, raw), field(3, b""), field(4, b"")].concat()
}

fn printed(api_version: &str, kind: &str, raw: &[u8]) -> String {
    let json = to_json(&envelope(api_version, kind, raw)).expect("the body is good");
    String::from_utf8(json).expect("JSON is UTF-8")
}

fn refused(api_version: &str, kind: &str, raw: &[u8]) -> ProtobufError {
    to_json(&envelope(api_version, kind, raw)).expect_err("the body is bad")
}

#[test]
fn what_does_not_fit_has_no_protobuf_form() {
    let bad = |json: &str| from_json(json).expect_err("it does not fit").to_string();
    assert!(matches!(from_json(r#"{"kind":"Thing","apiVersion":"example.com/v1"}"#), Err(EncodeError::UnknownKind)));
    assert!(matches!(from_json(r#"{"items":[]}"#), Err(EncodeError::UnknownKind)));
    let newer = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{"newer":{"a":1}}}"#;
    assert!(bad(newer).contains("unknown field \"newer\""), "{}", bad(newer));
    for json in [
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":7}}"#,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"creationTimestamp":"soon"}}"#,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"generation":1.5}}"#,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"labels":[]}}"#,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{}} {}"#,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{}"#,
        "[]",
    ] {
        assert!(from_json(json).is_err(), "{json}");
    }
}

#[test]
fn a_frame_of_a_watch_has_its_length_and_the_whole_object() {
    let event = r#"{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}}"#;
    let frame = watch_frame(event).expect("an event");
    let object = from_json(r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}"#).expect("an object");
    let expected = [field(1, b"ADDED"), field(2, &field(1, &object))].concat();
    assert_eq!(frame.split_at(4), (&u32::try_from(expected.len()).unwrap().to_be_bytes()[..], &*expected));
}

#[test]
fn every_kind_has_its_messages() {
    let schema = Schema::get().expect("the committed schema parses");
    assert!(schema.kinds().count() > 300);
    for (api_version, kind, _) in schema.kinds() {
        let empty: Value = serde_json::from_str(&printed(api_version, kind, b"")).expect("JSON");
        assert_eq!((&empty["apiVersion"], &empty["kind"]), (&api_version.into(), &kind.into()));
    }
}

#[test]
fn knows_its_media_type() {
    assert!(is_protobuf("application/vnd.kubernetes.protobuf"));
    assert!(is_protobuf(" Application/vnd.kubernetes.protobuf ; charset=x"));
    assert!(!is_protobuf("application/vnd.kubernetes.protobuf+x"));
    assert!(!is_protobuf("application/json"));
    assert!(!is_protobuf(""));
}

#[test]
fn delete_options_are_found_under_any_group() {
    let json = printed("example.com/v1", "DeleteOptions", &field(4, b"Foreground"));
    assert_eq!(json, r#"{"kind":"DeleteOptions","apiVersion":"example.com/v1","propagationPolicy":"Foreground"}"#);
}

#[test]
fn repeated_messages_merge_and_the_last_scalar_wins() {
    let first = field(1, &[field(1, b"old"), field(3, b"ns")].concat());
    let second = field(1, &field(1, b"new"));
    let json = printed("v1", "ConfigMap", &[first, second].concat());
    assert_eq!(json, r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"new","namespace":"ns"}}"#);
}

#[test]
fn the_last_of_equal_map_keys_wins_and_keys_are_sorted() {
    let entry = |key: &[u8], value: &[u8]| field(2, &[field(1, key), field(2, value)].concat());
    let raw = [entry(b"b", b"1"), entry(b"a", b"2"), entry(b"b", b"3"), field(2, &field(1, b"c"))].concat();
    let json = printed("v1", "ConfigMap", &raw);
    assert!(json.ends_with(r#""data":{"a":"2","b":"3","c":""}}"#), "{json}");
}

#[test]
fn packed_numbers_are_accepted() {
    // PodSecurityContext.supplementalGroups is field 4: packed, and one by one.
    for groups in [vec![4 << 3 | 2, 3, 1, 0x80, 1], vec![4 << 3, 1, 4 << 3, 0x80, 1]] {
        let pod = field(2, &field(14, &groups));
        let json: Value = serde_json::from_str(&printed("v1", "Pod", &pod)).expect("JSON");
        assert_eq!(json["spec"]["securityContext"], serde_json::json!({"supplementalGroups": [1, 128]}));
    }
}

#[test]
fn json_in_the_envelope_is_passed_on() {
    let with = |text: &[u8], content_type: &[u8], encoding: &[u8]| {
        to_json(&[b"k8s\0".to_vec(), field(2, text), field(3, encoding), field(4, content_type)].concat())
    };
    assert_eq!(with(b"{\"a\": 1}", b"application/json", b"").expect("good"), b"{\"a\": 1}");
    assert!(matches!(with(b"{", b"application/json", b""), Err(ProtobufError::Json { .. })));
    assert!(matches!(with(b"{}", b"application/yaml", b""), Err(ProtobufError::Content { .. })));
    assert!(matches!(with(b"{}", b"", b"gzip"), Err(ProtobufError::Content { .. })));
    assert!(matches!(with(b"", b"", b""), Err(ProtobufError::MissingKind { .. })));
}

#[test]
fn refusals_name_the_place() {
    assert!(matches!(to_json(b"{}"), Err(ProtobufError::Prefix)));
    assert!(matches!(refused("example.com/v1", "Thing", b""), ProtobufError::UnknownKind { .. }));

    let error = refused("v1", "ConfigMap", &field(1, &[0xf8, 0x7f, 1]));
    assert!(
        matches!(&error, ProtobufError::UnknownField { kind, path, number: 2047 } if kind == "ConfigMap" && path == "metadata"),
        "{error}"
    );
    let error = refused("v1", "ConfigMap", &field(1, &field(1, b"\xff")));
    assert!(matches!(&error, ProtobufError::Utf8 { path, .. } if path == "metadata.name"), "{error}");
    let error = refused("v1", "ConfigMap", &field(1, &[1 << 3, 1]));
    assert!(matches!(&error, ProtobufError::WireType { path, .. } if path == "metadata.name"), "{error}");
    let error = refused("v1", "ConfigMap", &field(1, &[1 << 3 | 2, 9]));
    assert!(matches!(&error, ProtobufError::Malformed { path, .. } if path == "metadata"), "{error}");
    let error = refused("apps/v1", "ControllerRevision", &field(2, &field(1, b"{\"a\":")));
    assert!(matches!(&error, ProtobufError::Json { path, .. } if path == "data"), "{error}");
}

#[test]
fn a_retired_field_is_accepted_empty_and_refused_otherwise() {
    let json = printed("v1", "ConfigMap", &field(1, &field(15, b"")));
    assert_eq!(json, r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{}}"#);
    let error = refused("v1", "ConfigMap", &field(1, &field(15, b"east")));
    assert!(matches!(error, ProtobufError::UnknownField { number: 15, .. }), "{error}");
}

#[test]
fn times_without_a_json_form_are_refused() {
    // metadata.deletionTimestamp, one second after the year 9999.
    let seconds = [1 << 3, 0x80, 0x83, 0xd1, 0xff, 0xaf, 0x07];
    let error = refused("v1", "ConfigMap", &field(1, &field(9, &seconds)));
    assert!(matches!(&error, ProtobufError::Value { path, .. } if path == "metadata.deletionTimestamp"), "{error}");
}

#[test]
fn deep_and_swelling_bodies_are_refused() {
    // JSONSchemaProps.not (field 28) inside itself, under a CRD's first version.
    let mut schema = Vec::new();
    for _ in 0..200 {
        let mut outer = vec![0xe2, 0x01];
        outer.extend_from_slice(&field(1, &schema)[1..]);
        schema = outer;
    }
    let version = field(4, &field(1, &schema));
    let crd = field(2, &field(7, &version));
    let error = refused("apiextensions.k8s.io/v1", "CustomResourceDefinition", &crd);
    assert!(matches!(error, ProtobufError::TooDeep { .. }), "{error}");

    // Two bytes for each empty Pod.
    let pods = field(2, b"").repeat(JSON_BYTES_MAX / 50);
    assert!(matches!(refused("v1", "PodList", &pods), ProtobufError::TooLarge { .. }));
}

/// Returns bodies small enough to damage many times over.
fn small_bodies() -> Vec<Vec<u8>> {
    vectors().into_iter().map(|vector| vector.body).filter(|body| body.len() < 4096).collect()
}

/// Good or bad, an answer must be JSON or an error.
fn survives(body: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(json) = to_json(body) {
        prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&json).is_ok());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_damage_ends_in_json_or_an_error(
        body in prop::sample::select(small_bodies()),
        cut: prop::sample::Index,
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 0..4),
    ) {
        let mut body = body;
        for (place, bit) in flips {
            let place = place.index(body.len());
            body[place] ^= 1 << bit;
        }
        survives(&body)?;
        body.truncate(cut.index(body.len()));
        survives(&body)?;
    }

    #[test]
    fn any_bytes_end_in_json_or_an_error(
        kind in prop::sample::select(vec!["Pod", "Secret", "Node", "DeleteOptions", "Event", "List"]),
        raw in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        survives(&raw)?;
        survives(&envelope("v1", kind, &raw))?;
    }
}

/// A cut is noticed anywhere but between two fields of the envelope, where Go does not either.
#[test]
fn every_cut_of_a_pod_is_refused() {
    let pod = vectors().into_iter().find(|vector| vector.name == "v1 Pod sparse").expect("it is committed");
    let type_meta_end = b"k8s\0".len() + 2 + usize::from(pod.body[5]);
    for cut in (0..pod.body.len() - 4).filter(|&cut| cut != type_meta_end) {
        assert!(to_json(&pod.body[..cut]).is_err(), "cut at {cut}");
    }
}
