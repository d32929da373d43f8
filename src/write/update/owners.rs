//! Owners that a change adds: a member that holds a part and not its owner would collect the part.

use serde_json::Value;

use crate::{
    respond::{InvalidField, WriteError},
    write::{
        fleet::{Fleet, Owner},
        update::work::Work,
    },
};
use kubefold_wire::golang::Quoted;

impl<F: Fleet> Work<'_, F> {
    /// Sees to it that every member that holds a part holds the owners that a document, or a patch, names and the object has
    /// not yet.
    ///
    /// Errors: 422, as of a create.
    pub(super) async fn hold_owners(&self, said: &Value) -> Result<(), WriteError> {
        let has: Vec<Owner> = owners(&self.shown);
        for owner in owners(said).into_iter().filter(|owner| !has.iter().any(|known| known.uid == owner.uid)) {
            let holders = self.writer.fleet.holders(&self.key.namespace, &owner).await;
            let lack: Vec<String> = self
                .parts()
                .filter(|part| !holders.contains(&part.member))
                .map(|part| {
                    format!("{}: it does not hold the owner {} {}", part.member, owner.kind, Quoted(&owner.name))
                })
                .collect();
            if lack.is_empty() {
                continue;
            }
            let field = InvalidField::OwnerMissing { owner: owner.name, lack };
            return Err(WriteError::Invalid { gvk: self.key.gvk.clone(), name: self.key.name.clone(), field });
        }
        Ok(())
    }
}

/// Without those that a strategic merge patch takes away, and those that no member takes.
fn owners(document: &Value) -> Vec<Owner> {
    let all = document.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let named = all.into_iter().flatten().filter(|one| one.get("$patch").is_none());
    let owners = named.filter_map(|one| serde_json::from_value::<Owner>(one.clone()).ok());
    owners.filter(|owner| !owner.name.is_empty() && !owner.uid.is_empty()).collect()
}
