use super::*;

/// What `tests/testbed/jsonpath` saw client-go find.
#[test]
fn paths_lead_where_client_go_is_led() {
    let mut document = String::new();
    let (mut count, mut wrong) = (0, Vec::new());
    for line in include_str!("vectors.txt").lines().filter(|line| !line.starts_with('#')) {
        let vector: Vec<Value> = serde_json::from_str(line).unwrap();
        let [Value::String(kind), value, outcome @ ..] = vector.as_slice() else { panic!("{line}") };
        if kind == "document" {
            document = value.to_string();
            continue;
        }
        count += 1;
        let found = match JsonPath::parse(value.as_str().unwrap()) {
            None => "refused".into(),
            Some(path) => {
                path.first(&document, &mut None).map_or_else(|| "nothing".into(), |found| Value::from(vec![found]))
            }
        };
        if found != outcome[0] {
            wrong.push(format!("{value}: {found}, not {}", outcome[0]));
        }
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 1000, "{count}");
}
