//! Jobs whose pods have numbers.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Work;
use crate::sim::{
    fields::{number, text},
    view::Phase,
};

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

impl Work<'_> {
    pub(super) fn is_indexed(&self) -> bool {
        text(&self.tree, "/spec/completionMode") == "Indexed"
    }

    /// The numbers of which a pod has succeeded.
    fn done(&self) -> BTreeSet<i64> {
        let mut done = numbers(text(&self.tree, "/status/completedIndexes"));
        let succeeded = self.pods.iter().filter(|(_, _, pod)| pod.phase == Phase::Succeeded);
        done.extend(succeeded.filter_map(|(_, entry, _)| entry.label(INDEX)?.parse::<i64>().ok()));
        done
    }

    pub(super) fn index_status(&mut self) {
        let ranges = ranges(&self.done());
        if !ranges.is_empty() {
            self.tree["status"]["completedIndexes"] = ranges.into();
        }
    }

    pub(super) fn create_indexed(&mut self, count: usize) {
        let mut taken = self.done();
        let present = self.pods.iter().filter(|(_, _, pod)| !pod.finished());
        taken.extend(present.filter_map(|(_, entry, _)| entry.label(INDEX)?.parse::<i64>().ok()));
        let completions = number(&self.tree, "/spec/completions").unwrap_or(0);
        let free: Vec<i64> = (0..completions).filter(|index| !taken.contains(index)).take(count).collect();
        for index in free {
            let name = format!("{}-{index}", self.context.key.name);
            self.create(json!({"generateName": format!("{name}-")}), |pod| dress(pod, index, &name));
        }
    }
}

fn dress(pod: &mut Value, index: i64, name: &str) {
    for field in ["annotations", "labels"] {
        if !pod["metadata"][field].is_object() {
            pod["metadata"][field] = json!({});
        }
        pod["metadata"][field][INDEX] = index.to_string().into();
    }
    pod["spec"]["hostname"] = name.into();
    let path = format!("metadata.labels['{INDEX}']");
    let variable =
        json!({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}});
    for container in pod["spec"]["containers"].as_array_mut().into_iter().flatten() {
        if !container["env"].is_array() {
            container["env"] = json!([]);
        }
        if let Some(env) = container["env"].as_array_mut() {
            env.push(variable.clone());
        }
    }
}

/// Of `0,2-4`.
fn numbers(ranges: &str) -> BTreeSet<i64> {
    let ranges = ranges.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<i64>().ok()?..=last.parse::<i64>().ok()?)
    });
    ranges.flatten().collect()
}

fn ranges(numbers: &BTreeSet<i64>) -> String {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    // As Kubernetes has it: two numbers in a row are no range worth a dash.
    let texts = ranges.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ranges_of_three_or_more() {
        let set = numbers("0,2-4,7");
        assert_eq!(set.iter().copied().collect::<Vec<_>>(), [0, 2, 3, 4, 7]);
        assert_eq!(ranges(&set), "0,2-4,7");
        assert_eq!(ranges(&[1, 2].into_iter().collect()), "1,2");
    }
}
