//! The objects as they were read last. They are looked at each second, and seldom change: one that has not is not read again.

use std::{collections::HashMap, mem, sync::Arc};

use parking_lot::Mutex;
use serde_json::Value;

use super::{KIND, object::MemberObject};
use crate::own::GROUP;
use kubefold_apiserver::registry::{ListOptions, Object, Registry};
use kubefold_wire::{access::text, status::Status};

/// An object as it is stored.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) object: MemberObject,
    pub(super) uid: String,
    /// When it was made.
    created: String,
}

impl Known {
    /// `None`: another version wrote it.
    pub(super) fn read(value: Value) -> Option<Self> {
        let [uid, created] = ["/metadata/uid", "/metadata/creationTimestamp"].map(|at| text(&value, at).to_owned());
        Some(Self { object: serde_json::from_value(value).ok()?, uid, created })
    }

    fn name(&self) -> &str {
        &self.object.metadata.name
    }
}

/// What was read of each object, and at which revision.
#[derive(Default)]
pub(super) struct Readings(Mutex<HashMap<String, Reading>>);

struct Reading {
    revision: u64,
    known: Option<Arc<Known>>,
}

impl Readings {
    /// All objects that can be read, the oldest first.
    ///
    /// Errors: the storage's.
    pub(super) async fn all(&self, registry: &Registry) -> Result<Vec<Arc<Known>>, Status> {
        let Some(kind) = registry.kind(GROUP, KIND) else { return Ok(Vec::new()) };
        let listed = registry.list(&kind, "", &ListOptions::default()).await?;
        let mut all = self.read(&listed.objects);
        all.sort_by(|one, other| (&one.created, one.name()).cmp(&(&other.created, other.name())));
        Ok(all)
    }

    fn read(&self, objects: &[Object]) -> Vec<Arc<Known>> {
        let mut readings = self.0.lock();
        let mut before = mem::take(&mut *readings);
        for object in objects {
            let (name, revision) = (object.name(), object.revision());
            let same = before.remove_entry(name).filter(|(_, reading)| reading.revision == revision);
            let (name, reading) = same.unwrap_or_else(|| {
                let known = Known::read(object.value()).map(Arc::new);
                (name.to_owned(), Reading { revision, known })
            });
            readings.insert(name, reading);
        }
        readings.values().filter_map(|reading| reading.known.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_not_changed_is_not_read_again_and_what_is_gone_is_forgotten() {
        let readings = Readings::default();
        let object = |name: &str, weight: u32, revision: u64| {
            let value = json!({"metadata": {"name": name, "uid": name}, "spec": {"weight": weight}});
            Object::of_value(&format!("members/{name}"), &value, revision)
        };
        let read = |objects: &[Object]| {
            let mut all = readings.read(objects);
            all.sort_by(|one, other| one.name().cmp(other.name()));
            all
        };
        let first = read(&[object("a", 1, 1), object("b", 1, 2)]);
        let second = read(&[object("a", 1, 1), object("b", 7, 3)]);
        assert!(Arc::ptr_eq(&first[0], &second[0]) && !Arc::ptr_eq(&first[1], &second[1]));
        assert_eq!((second[1].object.spec.weight, &*second[1].uid), (7, "b"));
        assert_eq!(read(&[object("b", 7, 3)]).len(), 1);
        let again = read(&[object("a", 1, 1)]);
        assert!(!Arc::ptr_eq(&first[0], &again[0]), "it was gone meanwhile");
    }
}
