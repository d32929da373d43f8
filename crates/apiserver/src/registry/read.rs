//! Get and list.

use crate::{
    kinds::Kind,
    registry::{At, ListOptions, Object, Registry, errors, key_of, prefix_of},
    storage::{Page, Range, StorageError},
};
use kubefold_wire::{options::too_large, status::Status};

/// Keys that are read at once where a selector may leave most of them out.
const READ_MAX: usize = 10_000;

/// Some objects of one kind, as they were at one revision.
#[derive(Clone, Debug, Default)]
pub struct List {
    /// In the order of their keys: namespace, name.
    pub objects: Vec<Object>,
    /// The revision.
    pub revision: u64,
    /// The key behind which the next page begins, if there is one.
    pub next: Option<String>,
    /// How many objects come after these, where that is known.
    pub remaining: Option<u64>,
}

impl Registry {
    /// One object.
    ///
    /// Errors: 404; 500 if it cannot be said in this version.
    pub async fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Object, Status> {
        if let Some(rest) = &kind.rest {
            let there = self.get_elsewhere(&**rest, kind, namespace, name).await?;
            return Ok(there.ok_or_else(|| errors::not_found(kind, name))?.shown(kind));
        }
        if let Some(composer) = &kind.composer {
            return Box::pin(self.get_composed(&**composer, kind, namespace, name)).await;
        }
        let record = self.record(&key_of(kind, namespace, name)).await?;
        let record = self.readable(kind, record.ok_or_else(|| errors::not_found(kind, name))?).await?;
        let revision = record.revision;
        Self::shown(kind, record, revision)
    }

    /// Objects of a kind: of one namespace, or of all where it is empty.
    ///
    /// Errors: 410 for a revision that is forgotten, 504 for one that has not been; 500 if an object cannot be said in this version.
    pub async fn list(&self, kind: &Kind, namespace: &str, options: &ListOptions) -> Result<List, Status> {
        if let Some(rest) = &kind.rest {
            return self.list_elsewhere(&**rest, kind, namespace, options).await;
        }
        let mut list = self.list_stored(kind, namespace, options).await?;
        if kind.composer.is_some() {
            list.objects = Box::pin(self.compose_all(kind, list.objects)).await?;
        }
        Ok(list)
    }

    async fn list_stored(&self, kind: &Kind, namespace: &str, options: &ListOptions) -> Result<List, Status> {
        let prefix = prefix_of(kind, namespace);
        let mut at = match options.at {
            At::Newest | At::NotOlder(_) => 0,
            At::Exact(revision) => revision,
        };
        let everything = options.selection.is_everything();
        let limit = if options.limit == 0 { usize::MAX } else { options.limit };
        let mut list = List::default();
        let mut after = options.after.clone();
        loop {
            let wanted = if options.limit == 0 {
                0
            } else if everything {
                limit
            } else {
                // As many again as were wanted, and then ever more: few may match.
                (limit.saturating_sub(list.objects.len())).clamp(500.min(READ_MAX), READ_MAX)
            };
            let count = everything && options.limit > 0 && options.known_remaining.is_none();
            let range = Range { prefix: &prefix, after: after.as_deref(), limit: wanted, at, count };
            let Page { records, revision, more, remaining } =
                self.inner.storage.range(range).await.map_err(|error| of_list(&error))?;
            if let At::NotOlder(asked) = options.at
                && asked > revision
            {
                return Err(too_large(asked, revision));
            }
            (list.revision, at) = (revision, revision);
            let last = records.last().map(|record| record.key.to_string());
            if everything {
                list.objects.reserve_exact(records.len());
            }
            for record in self.all_readable(kind, records).await? {
                let revision = record.revision;
                let object = Self::shown(kind, record, revision)?;
                if !everything && !options.selection.matches(&object) {
                    continue;
                }
                if list.objects.len() == limit {
                    // One more than was wanted: there is a next page.
                    list.next = list.objects.last().map(|object| object.key().to_owned());
                    return Ok(list);
                }
                list.objects.push(object);
            }
            if !more {
                return Ok(list);
            }
            if everything {
                list.next.clone_from(&last);
                let given = list.objects.len() as u64;
                list.remaining = remaining.or_else(|| Some(options.known_remaining?.saturating_sub(given)));
                return Ok(list);
            }
            after = last;
        }
    }
}

fn of_list(error: &StorageError) -> Status {
    match error {
        StorageError::Compacted { .. } => Status::expired("The resourceVersion for the provided list is too old."),
        other => errors::of_storage(other),
    }
}
