//! What a quota's parts have used together.
//!
//! A kind that is duplicated or shared has the same objects in every member: the largest part's count is the fleet's. Of
//! everything else the parts' counts add up.

use serde_json::{Map, Value};

use crate::placement::quota::is_summed;
use kubefold_wire::quantity::Quantity;

/// `status.used` of all parts; `None` where the first's own stands. A value that is no quantity is the first part's.
pub(super) fn used<'a>(mut parts: impl Iterator<Item = &'a Map<String, Value>>) -> Option<Vec<u8>> {
    let first = parts.next()?;
    let mut out = first.clone();
    for (name, value) in parts.flatten() {
        match out.get_mut(name) {
            None => {
                out.insert(name.clone(), value.clone());
            }
            Some(held) => {
                let quantity = |value: &Value| Quantity::parse(value.as_str()?).ok();
                let (Some(mine), Some(theirs)) = (quantity(held), quantity(value)) else { continue };
                if is_summed(name) {
                    *held = mine.plus(&theirs).to_string().into();
                } else if theirs > mine {
                    *held = value.clone();
                }
            }
        }
    }
    (out != *first).then(|| Value::Object(out).to_string().into_bytes())
}
