//! Pods that kubectl names after a node.

use bytes::Bytes;

use crate::store::Naming;
use kubefold_wire::{
    locate::Paths,
    splice::{Edit, splice, string},
};

/// A pod's body, pinned to the member of its node where its name is made of the node's: `kubectl debug node/node-0@east` calls
/// it `node-debugger-node-0@east-x7k2p`, which becomes `node-debugger-node-0-x7k2p@east`.
pub(super) fn named_after_its_node(body: Bytes, naming: &Naming) -> Bytes {
    let renamed = || {
        let text = std::str::from_utf8(&body).ok()?;
        let mut found = Vec::new();
        let paths = Paths::new([(0, ["metadata", "name"].as_slice()), (1, &["spec", "nodeName"])]);
        paths.locate(text, &mut found).ok()?;
        let at = |id| Some(found.iter().find(|one| one.id == id)?.range.clone());
        let [name, node]: [String; 2] =
            [serde_json::from_str(text.get(at(0)?)?).ok()?, serde_json::from_str(text.get(at(1)?)?).ok()?];
        let (own, member) = naming.split(&node)?;
        // What ends in the member is a pin already.
        let (before, behind) = name.split_once(&node).filter(|(_, behind)| !behind.is_empty())?;
        let pinned = string(&format!("{before}{own}{behind}@{member}"));
        let mut out = Vec::with_capacity(body.len() + pinned.len());
        splice(&body, &mut [Edit::new(at(0)?, pinned)], &mut out);
        Some(Bytes::from(out))
    };
    renamed().unwrap_or(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubefold_serving::request::body_name;

    #[test]
    fn a_pod_that_is_called_by_its_node_is_pinned_to_its_member() {
        let east = crate::config::MemberName::new("east").unwrap();
        let naming = Naming::of(crate::config::Names::Suffixed, Vec::new(), vec![east]);
        let say = |name: &str, node: &str| {
            let body = format!("{{\"spec\":{{\"nodeName\":{node:?}}},\"metadata\":{{\"name\":{name:?}}}}}");
            body_name(&named_after_its_node(body.into(), &naming)).unwrap()
        };
        assert_eq!(say("debugger-node-0@east-x7k2p", "node-0@east"), "debugger-node-0-x7k2p@east");
        for (name, node) in [
            ("debugger-node-0@east", "node-0@east"),
            ("web@east", "node-0@east"),
            ("a-node-0@west-b", "node-0@west"),
            ("a-node-0-b", "node-0"),
        ] {
            assert_eq!(say(name, node), name);
        }
        assert_eq!(named_after_its_node(Bytes::from_static(b"{"), &naming), "{");
    }
}
