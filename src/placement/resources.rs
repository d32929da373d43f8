//! What pods ask of nodes: CPU, memory, and a place.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use kubefold_wire::{matching::nullable, quantity::Quantity};

/// An amount of what pods ask of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resources {
    /// Units: thousandths of a CPU.
    pub cpu_milli: u64,
    /// Units: bytes.
    pub memory_bytes: u64,
    /// How many pods.
    pub pods: u64,
}

pub(super) type Amounts = BTreeMap<String, Amount>;

/// A string or a bare number, as the API takes both. One that is malformed is nothing: its member refuses it.
#[derive(Clone, Debug, Default)]
pub(super) struct Amount(Quantity);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => text,
            serde_json::Value::Number(number) => number.to_string(),
            _ => String::new(),
        };
        Ok(Self(Quantity::parse(&text).unwrap_or_default()))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResourceRequirements {
    #[serde(deserialize_with = "nullable")]
    requests: Amounts,
    #[serde(deserialize_with = "nullable")]
    limits: Amounts,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    #[serde(deserialize_with = "nullable")]
    resources: ResourceRequirements,
    #[serde(deserialize_with = "nullable")]
    restart_policy: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    #[serde(deserialize_with = "nullable")]
    pub(super) node_name: String,
    #[serde(deserialize_with = "nullable")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "nullable")]
    init_containers: Vec<Container>,
    #[serde(deserialize_with = "nullable")]
    overhead: Amounts,
    #[serde(deserialize_with = "nullable")]
    resources: ResourceRequirements,
}

impl Resources {
    /// What one pod requests, by its spec as JSON. A malformed one requests nothing but its place: its member refuses it.
    ///
    /// Source: kubernetes/component-helpers `resource/helpers.go` `PodRequests`; an unset request is the limit
    /// (kubernetes `pkg/apis/core/v1/defaults.go`).
    pub fn of_pod(spec: &str) -> Self {
        Self::requested(&serde_json::from_str(spec).unwrap_or_default())
    }

    /// What one pod is limited to, by its spec as JSON: what no container limits is 0.
    ///
    /// Source: kubernetes/component-helpers `resource/helpers.go` `PodLimits`.
    pub fn limits_of_pod(spec: &str) -> Self {
        let spec: PodSpec = serde_json::from_str(spec).unwrap_or_default();
        let limits = Self::summed(&spec, |of| Self { pods: 0, ..Self::of(&of.limits) });
        let overhead = Self::of(&spec.overhead);
        // Overhead counts where there is a limit.
        let with = |limit: u64, overhead: u64| if limit == 0 { 0 } else { limit.saturating_add(overhead) };
        Self {
            cpu_milli: with(limits.cpu_milli, overhead.cpu_milli),
            memory_bytes: with(limits.memory_bytes, overhead.memory_bytes),
            pods: 1,
        }
    }

    pub(super) fn requested(spec: &PodSpec) -> Self {
        let mut sum = Self::summed(spec, ResourceRequirements::amount);
        sum.add(&Self::of(&spec.overhead));
        Self { pods: 1, ..sum }
    }

    /// What all containers come to, or the pod as a whole where it says so.
    fn summed(spec: &PodSpec, amount: impl Fn(&ResourceRequirements) -> Self) -> Self {
        let mut sum = Self::default();
        spec.containers.iter().for_each(|container| sum.add(&amount(&container.resources)));
        let (mut sidecars, mut starting) = (Self::default(), Self::default());
        for container in &spec.init_containers {
            let mut own = amount(&container.resources);
            if container.restart_policy == "Always" {
                sum.add(&own);
                sidecars.add(&own);
                own = sidecars;
            } else {
                own.add(&sidecars);
            }
            starting = starting.largest(&own);
        }
        sum = sum.largest(&starting);
        let whole = &spec.resources;
        if whole.has("cpu") {
            sum.cpu_milli = amount(whole).cpu_milli;
        }
        if whole.has("memory") {
            sum.memory_bytes = amount(whole).memory_bytes;
        }
        sum
    }

    pub(super) fn of(amounts: &Amounts) -> Self {
        let amount = |name: &str, of: fn(&Quantity) -> i64| {
            amounts.get(name).map_or(0, |amount| u64::try_from(of(&amount.0)).unwrap_or(0))
        };
        Self {
            cpu_milli: amount("cpu", Quantity::milli_value),
            memory_bytes: amount("memory", Quantity::value),
            pods: amount("pods", Quantity::value),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.cpu_milli = self.cpu_milli.saturating_add(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        self.pods = self.pods.saturating_add(other.pods);
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        self.cpu_milli = self.cpu_milli.saturating_sub(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.saturating_sub(other.memory_bytes);
        self.pods = self.pods.saturating_sub(other.pods);
    }

    fn largest(&self, other: &Self) -> Self {
        Self {
            cpu_milli: self.cpu_milli.max(other.cpu_milli),
            memory_bytes: self.memory_bytes.max(other.memory_bytes),
            pods: self.pods.max(other.pods),
        }
    }

    /// How often `one` goes into it.
    pub(super) fn holds(&self, one: &Self) -> u64 {
        let times = |mine: u64, asked: u64| mine.checked_div(asked).unwrap_or(u64::MAX);
        times(self.cpu_milli, one.cpu_milli)
            .min(times(self.memory_bytes, one.memory_bytes))
            .min(times(self.pods, one.pods))
    }
}

impl ResourceRequirements {
    fn amount(&self) -> Resources {
        let mut amounts = self.limits.clone();
        amounts.extend(self.requests.iter().map(|(name, amount)| (name.clone(), amount.clone())));
        Resources { pods: 0, ..Resources::of(&amounts) }
    }

    fn has(&self, name: &str) -> bool {
        self.requests.contains_key(name) || self.limits.contains_key(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(cpu: &str, memory: &str) -> String {
        format!(r#"{{"resources":{{"requests":{{"cpu":"{cpu}","memory":"{memory}"}}}}}}"#)
    }

    #[test]
    fn a_pod_requests_what_the_scheduler_counts() {
        let of = |spec: &str| {
            let all = Resources::of_pod(spec);
            assert_eq!(all.pods, 1);
            (all.cpu_milli, all.memory_bytes)
        };
        let (small, large) = (container("100m", "1Ki"), container("1", "10Ki"));
        assert_eq!(of(&format!(r#"{{"containers":[{small},{large}]}}"#)), (1100, 11 << 10));
        assert_eq!(of(&format!(r#"{{"containers":[{small}],"initContainers":[{large}]}}"#)), (1000, 10 << 10));
        let sidecar = small.replace(r#"{"resources"#, r#"{"restartPolicy":"Always","resources"#);
        assert_eq!(
            of(&format!(r#"{{"containers":[{small}],"initContainers":[{sidecar},{large}]}}"#)),
            (1100, 11 << 10)
        );
        assert_eq!(of(&format!(r#"{{"containers":[{large}],"initContainers":[{sidecar}]}}"#)), (1100, 11 << 10));
        assert_eq!(of(&format!(r#"{{"containers":[{small}],"overhead":{{"cpu":"50m"}}}}"#)), (150, 1 << 10));
        assert_eq!(
            of(&format!(r#"{{"containers":[{small}],"resources":{{"requests":{{"cpu":2}}}}}}"#)),
            (2000, 1 << 10)
        );
        assert_eq!(of(r#"{"containers":[{"resources":{"limits":{"cpu":"3"},"requests":{"memory":"1"}}}]}"#), (3000, 1));
        assert_eq!(of(r#"{"containers":null,"resources":null}"#), (0, 0));
    }
}
