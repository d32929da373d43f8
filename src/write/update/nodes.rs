//! Names of nodes in an update: which parts they leave without a node, and which members they name in vain.

use serde_json::Value;

use crate::{
    placement::{
        divided::Division,
        nodes::{Elsewhere, NodeNames},
        policy::Strategy,
    },
    respond::{InvalidField, WriteError},
    write::{
        fleet::Fleet,
        update::{draft::Plan, work::Work},
    },
};
use kubefold_wire::warning::Warnings;

impl<F: Fleet> Work<'_, F> {
    /// Refuses what leaves a part no node that it could have run on, and warns of nodes in members without a part: where an object
    /// goes is chosen when it is created.
    ///
    /// Errors: 422.
    pub(super) fn check_nodes(&self, plan: &Plan, warnings: &mut Warnings) -> Result<(), WriteError> {
        let (rules, said) = (self.writer.fleet.rules(), &plan.said);
        let nodes = NodeNames::of(&self.key.gvk, rules.names());
        let named = nodes.named(said);
        if named.is_empty() || !self.subresource().is_empty() {
            return Ok(());
        }
        let is_left = |document: &Value, part| nodes.localize(&mut document.clone(), part);
        for part in self.parts() {
            if let Err(Elsewhere { field, nodes }) = is_left(said, &part.member)
                && is_left(&self.shown, &part.member).is_ok()
            {
                let member = part.member.clone();
                return Err(self
                    .request
                    .invalid(&self.key.name, InvalidField::NodesElsewhere { field, nodes, member }));
            }
        }
        let was = nodes.named(&self.shown);
        for (node, member) in named.difference(&was) {
            let has_part = self.parts().any(|part| part.member == *member)
                || plan.missing.iter().any(|missing| missing.member == *member);
            if !has_part {
                let (key, hint) = (self.key, self.hint());
                warnings.add(&format!("{key} names the node {node}, and has no part in member {member}{hint}"));
            }
        }
        Ok(())
    }

    /// What makes a part in a member that was not chosen at first.
    fn hint(&self) -> &'static str {
        let gains_parts = self.writer.division(self.key).is_some_and(Division::gains_parts);
        let policy = self.policy();
        let strategy = policy.map(|policy| policy.strategy);
        match strategy {
            Some(Strategy::Divide) if gains_parts => "; kubefold rebalance makes one",
            Some(Strategy::Duplicate) => "; kubefold extend makes one",
            _ => "",
        }
    }
}
