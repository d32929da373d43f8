//! Decoders of streams.

use serde_json::{Value, value::RawValue};

use kubefold_wire::{
    locate::entries,
    watch::{Event, Lines},
};

/// Frames a watch stream: the same lines however it is cut into chunks, and each line an event as a parser sees it.
pub fn watch(data: &[u8]) {
    let (seed, data) = data.split_first().unwrap_or((&0, data));
    let mut wanted: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let unended = wanted.pop().unwrap_or_default();
    wanted.retain(|line| !line.trim_ascii().is_empty());

    let (mut lines, mut got, mut rest, mut random) = (Lines::default(), Vec::new(), data, u32::from(*seed));
    while !rest.is_empty() {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let cut = if *seed == 0 { rest.len() } else { 1 + (random >> 16) as usize % 40 };
        let (now, later) = rest.split_at(cut.min(rest.len()));
        lines.push(now).expect("a short stream is within bounds");
        got.extend(std::iter::from_fn(|| lines.next_line()));
        rest = later;
    }
    assert_eq!(got, wanted);
    assert_eq!(lines.is_mid_line(), !unended.trim_ascii().is_empty());
    for line in &got {
        event(line);
    }
}

fn event(line: &[u8]) {
    const TYPES: [&str; 5] = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"];
    let parsed = Event::parse(line);
    if let Ok(event) = &parsed {
        assert!(TYPES.contains(&event.event_type.as_str()));
        assert!(serde_json::from_str::<&RawValue>(event.object).is_ok());
    }
    let Ok(text) = std::str::from_utf8(line) else {
        assert!(parsed.is_err());
        return;
    };
    let Ok(Value::Object(fields)) = serde_json::from_str(text) else { return };
    let once = |key: &str| entries(text).is_ok_and(|all| all.iter().filter(|entry| entry.name == key).count() == 1);
    let known = fields.get("type").and_then(Value::as_str).filter(|known| TYPES.contains(known));
    if let (Some(known), Some(object), true, true) = (known, fields.get("object"), once("type"), once("object")) {
        let event = parsed.expect("an event is taken");
        assert_eq!(event.event_type.as_str(), known);
        assert_eq!(serde_json::from_str::<Value>(event.object).expect("JSON"), *object);
    } else if known.is_none() {
        assert!(parsed.is_err(), "an event of no known type is refused");
    }
}
