use proptest::prelude::*;

use super::*;

/// What apimachinery makes of each text.
const VECTORS: &str = include_str!("vectors.txt");

#[test]
fn quantities_are_read_and_printed_as_apimachinery_does() {
    let mut wrong = Vec::new();
    for line in VECTORS.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let made = match fields[0] {
            "parse" => parsed(fields[1]),
            _ => added(fields[1], fields[2]),
        };
        let wanted = fields[if fields[0] == "parse" { 2 } else { 3 }..].join("\t");
        if made != wanted {
            wrong.push(format!("{line}\n  made {made}"));
        }
    }
    assert!(VECTORS.lines().count() > 4000);
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn parsed(text: &str) -> String {
    match Quantity::parse(text) {
        Err(error) => error.to_string(),
        Ok(quantity) => {
            let (value, milli) = (quantity.value(), quantity.milli_value());
            format!("{quantity}\t{}\t{value}\t{milli}", quantity.clone().rounded_to_milli())
        }
    }
}

fn added(left: &str, right: &str) -> String {
    let (left, right) = (Quantity::parse(left).unwrap(), Quantity::parse(right).unwrap());
    format!("{}\t{}", left.plus(&right), left.cmp(&right) as i8)
}

/// Source: kubernetes/apimachinery `pkg/api/resource/quantity_test.go` `TestQuantityParse`: text, digits, power of ten.
const PARSED: &[(&str, i128, i32)] = &[
    ("0.00000012345", 124, -9),
    ("0.00000012354", 124, -9),
    ("9Ei", 9_223_372_036_854_775_807, 0),
    ("9223372036854775807Ki", 9_223_372_036_854_775_807, 0),
    ("12E", 12, 18),
    ("100.035Ki", 10_243_584, -2),
    ("0.5Mi", 1 << 19, 0),
    ("0.05Gi", 536_870_912, -1),
    ("0.025Ti", 274_877_906_944, -1),
    ("0.000000000001Ki", 2, -9),
];

#[test]
fn upstreams_own_cases() {
    for (text, digits, tens) in PARSED {
        let written = Quantity::parse(&format!("{digits}e{tens}")).unwrap();
        assert_eq!(Quantity::parse(text).unwrap(), written, "{text}");
        assert_eq!(
            Quantity::parse(&format!("-{text}")).unwrap(),
            Quantity::parse(&format!("-{digits}e{tens}")).unwrap()
        );
    }
}

#[test]
fn values_end_at_what_an_i64_holds() {
    let read = |text: &str| Quantity::parse(text).unwrap();
    assert_eq!((read("1e100").value(), read("-1e100").value()), (i64::MAX, i64::MIN));
    assert_eq!((read("1e2147483646").milli_value(), read("9223372036854775807").milli_value()), (i64::MAX, i64::MAX));
    assert_eq!(read(&format!("0.{}", "1".repeat(200))).milli_value(), 112);
    assert_eq!(read("1e2147483646").plus(&read("1")), read("1e2147483646"));
    assert!(read(&"9".repeat(100_000)) < read(&"9".repeat(100_001)));
}

proptest! {
    #[test]
    fn anything_may_be_given(text in "[-+]?[0-9.]{0,30}[eEinumkKMGTP]{0,2}[-+]?[0-9]{0,4}") {
        let Ok(quantity) = Quantity::parse(&text) else { return Ok(()) };
        // Go prints what exceeds its largest unit without one, and reads that as another amount.
        if quantity.top() <= 18 {
            prop_assert_eq!(&Quantity::parse(&quantity.to_string()).unwrap(), &quantity);
        }
        prop_assert_eq!(quantity.plus(&Quantity { negative: !quantity.negative, ..quantity.clone() }), Quantity::default());
    }
}

#[test]
fn quantities_are_subtracted_and_rounded_to_floats() {
    let read = |text: &str| Quantity::parse(text).unwrap();
    assert_eq!(read("1Gi").minus(&read("512Mi")).to_string(), "512Mi");
    assert_eq!(read("1").minus(&read("1500m")).to_string(), "-500m");
    assert_eq!(read("0").minus(&read("1Ki")).to_string(), "-1Ki");
    let floats = ["0", "1500m", "-2k", "1Ki"].map(|text| read(text).approximate());
    assert_eq!(floats.map(|float| float.to_string()), ["0", "1.5", "-2000", "1024"]);
}
