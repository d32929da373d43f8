use serde_json::value::RawValue;

use super::*;

/// Verb, value and what Go printed.
fn vectors() -> Vec<(String, Value, String)> {
    let lines = include_str!("vectors.txt").lines().filter(|line| !line.starts_with('#'));
    let vector = |line| {
        let (verb, value, printed): (String, Box<RawValue>, String) = serde_json::from_str(line).unwrap();
        // serde_json may miss the last digit of a float.
        let float = value.get().parse::<f64>().ok().filter(|_| value.get().parse::<i64>().is_err());
        (verb, float.map_or_else(|| serde_json::from_str(value.get()).unwrap(), Value::from), printed)
    };
    lines.map(vector).collect()
}

#[test]
fn values_are_printed_as_go_prints_them() {
    let mut count = 0;
    for (verb, value, wanted) in vectors() {
        let ours = match verb.as_str() {
            "%q" => quoted(value.as_str().unwrap()),
            "%v" => plain(&value),
            "%#v" => syntax(&value),
            "%T" => type_name(&value).to_owned(),
            "json" => json(&value),
            _ => continue,
        };
        assert_eq!(ours, wanted, "{verb} of {value}");
        count += 1;
    }
    assert!(count > 900, "only {count} vectors");
}

#[test]
fn the_characters_that_go_prints_are_printed() {
    let mut count = 0;
    for (verb, value, _) in vectors() {
        let printable = match verb.as_str() {
            "printable" => true,
            "unprintable" => false,
            _ => continue,
        };
        let ranges: Vec<(u32, u32)> = serde_json::from_value(value).unwrap();
        for character in ranges.into_iter().flat_map(|(first, last)| first..=last).filter_map(char::from_u32) {
            assert_eq!(is_printable(character), printable, "{:x}", u32::from(character));
            count += 1;
        }
    }
    assert!(count > 280_000, "only {count} characters");
}
