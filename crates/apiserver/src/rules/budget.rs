//! What the rules of one schema may cost together, and each of them alone.
//!
//! Source: kubernetes/apiextensions-apiserver `pkg/apis/apiextensions/validation/{validation,cel_validation}.go`.

use kubefold_wire::{access::text, status::Cause};
use serde_json::Value;

use super::sizes::limit;

/// What one expression may cost, times how often there may be a value. Source: `StaticEstimatedCostLimit`.
pub(super) const EXPRESSION_COST_MAX: u64 = 10_000_000;
/// What all expressions of a schema may cost. Source: `StaticEstimatedCRDCostLimit`.
const SCHEMA_COST_MAX: u64 = 100_000_000;
/// How many of the expressions are named that cost most.
const NAMED_MAX: usize = 4;

/// What the expressions of a schema cost so far.
#[derive(Default)]
pub(super) struct Budget {
    total: u64,
    /// The one that costs most first.
    most: Vec<Spent>,
}

struct Spent {
    path: String,
    cost: u64,
}

impl Budget {
    pub(super) fn spend(&mut self, path: &str, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost < SCHEMA_COST_MAX / 100 {
            return;
        }
        self.most.push(Spent { path: path.to_owned(), cost });
        self.most.sort_by_key(|spent| std::cmp::Reverse(spent.cost));
        self.most.truncate(NAMED_MAX);
    }

    /// What is wrong if all cost too much together.
    pub(super) fn faults(&self, path: &str, found: &mut Vec<Cause>) {
        if self.total <= SCHEMA_COST_MAX {
            return;
        }
        let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        found.extend(self.most.iter().map(|spent| Cause::forbidden(spent.path.as_str(), why)));
        let of = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        found.push(Cause::forbidden(path, &exceeded(of, self.total, SCHEMA_COST_MAX)));
    }
}

/// How often there may be a value inside a value of this schema; `None`: there is no limit.
pub(super) fn values_max(schema: &Value) -> Option<u64> {
    match text(schema, "/type") {
        "object" if schema.get("additionalProperties").is_some_and(|values| !values.is_null()) => {
            limit(schema, "maxProperties")
        }
        "array" => limit(schema, "maxItems"),
        _ => Some(1),
    }
}

/// In what words a kube-apiserver says that something costs too much.
#[allow(clippy::cast_precision_loss, reason = "as in Go")]
pub(super) fn exceeded(of: &str, cost: u64, limit: u64) -> String {
    let factor = match cost as f64 / limit as f64 {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{of} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_told_as_a_kube_apiserver_tells_them() {
        let told = |cost: u64| exceeded("it", cost, 10).split_once(" (").map(|(told, _)| told.to_owned()).unwrap();
        assert_eq!(told(11), "it exceeds budget by factor of 1.100000x");
        assert_eq!(told(154), "it exceeds budget by factor of 15.4x");
        assert_eq!(told(1000), "it exceeds budget by factor of 100.0x");
        assert_eq!(told(1001), "it exceeds budget by factor of more than 100x");
    }

    #[test]
    fn those_that_cost_most_are_named() {
        let mut budget = Budget::default();
        for (path, cost) in [("a", 1), ("b", 30), ("c", 40), ("d", 30), ("e", 50), ("f", 30)] {
            budget.spend(path, cost * 1_000_000);
        }
        let mut found = Vec::new();
        budget.faults("all", &mut found);
        let fields: Vec<&str> = found.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, ["e", "c", "b", "d", "all"]);
    }
}
