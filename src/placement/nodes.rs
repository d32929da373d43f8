//! Names of nodes in what an object's pods ask of nodes: `node-0@east` chooses its member, and is plain there.
//!
//! These fields name nodes: `nodeName`, the label `kubernetes.io/hostname` in `nodeSelector` and in the terms of the node
//! affinity, and `matchFields` of these terms.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{
    config::MemberName,
    placement::{
        scheduling::{Misfit, PodRequirements, pod_spec},
        visible::VisibleNames,
    },
};
use kubefold_wire::{locate::NotAnObject, resource::Gvk};

/// The label by which nodes are chosen by name. A kubelet sets it to the node's name, unless it is told another.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The one field of nodes that terms may name.
const NODE_NAME: &str = "metadata.name";
/// The lists of requirements in a term, and what each calls a node's name.
const REQUIREMENTS: [(&str, &str); 2] = [("matchExpressions", HOSTNAME), ("matchFields", NODE_NAME)];
/// The terms of a node affinity of which one must match.
pub const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
/// The fields of a pod spec that name nodes. A server-side apply has each of them as a whole.
///
/// Source: kubernetes/api `core/v1/types.go`: `NodeSelector` is `+structType=atomic`, `nodeSelector` is `+mapType=atomic`.
const ROOTS: [&[&str]; 4] = [
    &["nodeName"],
    &["nodeSelector"],
    &["affinity", "nodeAffinity", REQUIRED],
    &["affinity", "nodeAffinity", PREFERRED],
];
/// What tokens of names are made of.
const TOKENS: Uuid = Uuid::from_u128(0x6b75_6265_666f_6c64_6e6f_6465_6e61_6d65);

/// Where objects of a kind name nodes, and how the fleet view names them.
#[derive(Clone, Copy, Debug)]
pub struct NodeNames<'a> {
    /// Where the pod spec stands; `None` of a kind that makes no pods.
    spec: Option<&'static [&'static str]>,
    names: &'a VisibleNames,
}

/// An object names nodes of other members alone, where a member would need one of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// Where the pod spec stands.
    pub field: &'static [&'static str],
    /// These nodes, by their visible names.
    pub nodes: Vec<String>,
}

/// Names that stand in a patch under other ones, since a member takes no visible names.
#[derive(Debug, Default)]
pub struct Hidden {
    /// Visible names by what stands for them.
    names: BTreeMap<String, String>,
}

/// What a term comes to in one member.
enum Term {
    /// It asks of nodes what it asks.
    Asks,
    /// It takes no node.
    Never,
    /// It takes every node.
    Always,
}

/// What a requirement comes to in one member.
enum Requirement {
    Asks,
    Never,
    Always,
}

impl<'a> NodeNames<'a> {
    /// Of the objects of a kind.
    pub fn of(gvk: &Gvk, names: &'a VisibleNames) -> Self {
        Self { spec: pod_spec(&gvk.group, &gvk.kind), names }
    }

    /// The visible names of nodes in an object, with their members.
    pub fn named(&self, object: &Value) -> BTreeSet<(String, MemberName)> {
        let Some(spec) = self.spec_of(object).filter(|spec| names_nodes(spec)) else { return BTreeSet::new() };
        let mut spec = spec.clone();
        let names = texts(&mut spec).into_iter().filter_map(|text| {
            let visible = text.as_str()?;
            Some((visible.to_owned(), self.names.split(visible)?.1.clone()))
        });
        names.collect()
    }

    /// Puts the names of a member's nodes in the place of visible ones. What names nodes of other members goes: a term of which
    /// nothing is left takes no node. Without visible names nothing changes.
    ///
    /// Errors: the object can run on no node of this member. It has what it asks all the same.
    pub fn localize(&self, object: &mut Value, member: &MemberName) -> Result<(), Elsewhere> {
        let named = self.named(object);
        let (Some(path), false) = (self.spec, named.is_empty()) else { return Ok(()) };
        let Some(spec) = path.iter().try_fold(object, |at, key| at.get_mut(*key)) else { return Ok(()) };
        let mut is_elsewhere = false;
        for at in [["nodeName"].as_slice(), &["nodeSelector", HOSTNAME]] {
            let Some(text) = at.iter().try_fold(&mut *spec, |value, key| value.get_mut(*key)) else { continue };
            is_elsewhere |= self.is_others(text, member);
            self.rename(text, member);
        }
        if let Some(affinity) = spec.pointer_mut("/affinity/nodeAffinity").and_then(Value::as_object_mut) {
            is_elsewhere |= self.require(affinity, member);
            self.prefer(affinity, member);
        }
        if !is_elsewhere {
            return Ok(());
        }
        let others = named.into_iter().filter(|(_, holder)| holder != member);
        Err(Elsewhere { field: path, nodes: others.map(|(visible, _)| visible).collect() })
    }

    /// The object as a member gets it.
    pub fn localized(&self, mut object: Value, member: &MemberName) -> Value {
        // A term that takes no node is what a member gets that has none.
        let _elsewhere = self.localize(&mut object, member);
        object
    }

    /// Has a patch name nodes by names that a member takes: its own ones plain, and others by tokens.
    pub fn hide(&self, patch: &mut Value, member: &MemberName) -> Hidden {
        let Some(spec) = self.spec.and_then(|path| path.iter().try_fold(patch, |at, key| at.get_mut(*key))) else {
            return Hidden::default();
        };
        let mut texts = texts(spec);
        let plain: BTreeSet<String> = texts.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect();
        let mut hidden = Hidden::default();
        for text in &mut texts {
            let Some(visible) = text.as_str().map(str::to_owned) else { continue };
            let Some((own, holder)) = self.names.split(&visible) else { continue };
            let token = || format!("kubefold-{}", Uuid::new_v5(&TOKENS, visible.as_bytes()).simple());
            let is_clear = holder == member && !plain.contains(own);
            let stands = if is_clear { own.to_owned() } else { token() };
            **text = stands.as_str().into();
            hidden.names.insert(stands, visible);
        }
        hidden
    }

    /// Puts visible names back that were [hidden](Self::hide).
    pub fn reveal(&self, hidden: &Hidden, object: &mut Value) {
        let Some(spec) = self.spec.and_then(|path| path.iter().try_fold(object, |at, key| at.get_mut(*key))) else {
            return;
        };
        for text in texts(spec) {
            if let Some(visible) = text.as_str().and_then(|text| hidden.names.get(text)) {
                *text = visible.as_str().into();
            }
        }
    }

    /// The field that a path of an object lies in, of those that name nodes and that an apply has as a whole.
    pub fn root<'p>(&self, path: &'p [&'p str]) -> Option<&'p [&'p str]> {
        let spec = self.spec?;
        let within = path.strip_prefix(spec)?;
        let root = ROOTS.iter().find(|root| within.starts_with(root))?;
        path.get(..spec.len() + root.len())
    }

    fn spec_of<'v>(&self, object: &'v Value) -> Option<&'v Value> {
        self.spec?.iter().try_fold(object, |at, key| at.get(*key))
    }

    fn is_others(&self, text: &Value, member: &MemberName) -> bool {
        text.as_str().and_then(|text| self.names.split(text)).is_some_and(|(_, holder)| holder != member)
    }

    fn rename(&self, text: &mut Value, member: &MemberName) {
        let own = text.as_str().and_then(|text| self.names.split(text)).filter(|(_, holder)| *holder == member);
        if let Some(own) = own.map(|(own, _)| Value::from(own)) {
            *text = own;
        }
    }

    /// Says whether no term takes a node of the member any more.
    fn require(&self, affinity: &mut Map<String, Value>, member: &MemberName) -> bool {
        let terms = affinity.get_mut(REQUIRED).and_then(|required| required.get_mut("nodeSelectorTerms"));
        let Some(terms) = terms.and_then(Value::as_array_mut).filter(|terms| !terms.is_empty()) else { return false };
        let mut is_always = false;
        terms.retain_mut(|term| {
            let comes_to = self.term(term, member);
            is_always |= matches!(comes_to, Term::Always);
            !matches!(comes_to, Term::Never)
        });
        let is_never = terms.is_empty();
        if is_never {
            // An empty term takes no node, and a list without terms is refused.
            // Source: component-helpers `scheduling/corev1/nodeaffinity/nodeaffinity.go` `isEmptyNodeSelectorTerm`.
            terms.push(json!({}));
        }
        if is_always {
            affinity.shift_remove(REQUIRED);
        }
        is_never
    }

    /// What prefers nodes of other members alone, or every node, says nothing.
    fn prefer(&self, affinity: &mut Map<String, Value>, member: &MemberName) {
        let Some(terms) = affinity.get_mut(PREFERRED).and_then(Value::as_array_mut) else { return };
        let had = terms.len();
        terms.retain_mut(|term| {
            term.get_mut("preference").is_none_or(|term| matches!(self.term(term, member), Term::Asks))
        });
        if terms.is_empty() && had > 0 {
            affinity.shift_remove(PREFERRED);
        }
    }

    fn term(&self, term: &mut Value, member: &MemberName) -> Term {
        let (mut is_freed, mut asks) = (false, false);
        for (field, key) in REQUIREMENTS {
            let Some(list) = term.get_mut(field).and_then(Value::as_array_mut).filter(|list| !list.is_empty()) else {
                continue;
            };
            let mut is_never = false;
            list.retain_mut(|one| match self.requirement(one, key, member) {
                Requirement::Asks => true,
                Requirement::Always => false,
                Requirement::Never => {
                    is_never = true;
                    true
                }
            });
            if is_never {
                return Term::Never;
            }
            let is_empty = list.is_empty();
            asks |= !is_empty;
            is_freed |= is_empty;
            if is_empty && let Some(fields) = term.as_object_mut() {
                fields.shift_remove(field);
            }
        }
        if is_freed && !asks { Term::Always } else { Term::Asks }
    }

    fn requirement(&self, requirement: &mut Value, key: &str, member: &MemberName) -> Requirement {
        let operator = requirement.get("operator").and_then(Value::as_str).unwrap_or_default().to_owned();
        if requirement.get("key").and_then(Value::as_str) != Some(key) {
            return Requirement::Asks;
        }
        let Some(values) = requirement.get_mut("values").and_then(Value::as_array_mut) else {
            return Requirement::Asks;
        };
        let had = values.len();
        if matches!(operator.as_str(), "In" | "NotIn") {
            values.retain(|value| !self.is_others(value, member));
        }
        values.iter_mut().for_each(|value| self.rename(value, member));
        match operator.as_str() {
            _ if !values.is_empty() || had == 0 => Requirement::Asks,
            "In" => Requirement::Never,
            _ => Requirement::Always,
        }
    }
}

impl Hidden {
    /// Says whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// A text in which visible names stand again.
    pub fn reveal_in(&self, text: &str) -> String {
        let tokens = self.names.iter().filter(|(stands, _)| stands.starts_with("kubefold-"));
        tokens.fold(text.to_owned(), |text, (token, visible)| text.replace(token.as_str(), visible))
    }
}

/// Says whether a pod spec has a field that may name nodes.
fn names_nodes(spec: &Value) -> bool {
    NAMING.iter().any(|field| spec.get(*field).is_some())
}

/// The fields of a pod spec in which [`texts`] looks.
const NAMING: [&str; 3] = ["nodeName", "nodeSelector", "affinity"];

/// The texts of a pod spec that name nodes, or may.
fn texts(spec: &mut Value) -> Vec<&mut Value> {
    let Some(fields) = spec.as_object_mut() else { return Vec::new() };
    let mut found = Vec::new();
    for (name, value) in fields.iter_mut() {
        match name.as_str() {
            "nodeName" => found.push(value),
            "nodeSelector" => found.extend(value.get_mut(HOSTNAME)),
            "affinity" => {
                let affinity = value.get_mut("nodeAffinity").and_then(Value::as_object_mut);
                for (name, terms) in affinity.into_iter().flatten() {
                    let terms = match name.as_str() {
                        REQUIRED => terms.get_mut("nodeSelectorTerms"),
                        PREFERRED => Some(terms),
                        _ => None,
                    };
                    let terms = terms.and_then(Value::as_array_mut).into_iter().flatten();
                    found.extend(terms.flat_map(texts_of_term));
                }
            }
            _ => {}
        }
    }
    found
}

/// Of a term, or of a preferred one.
fn texts_of_term(term: &mut Value) -> Vec<&mut Value> {
    let mut found = Vec::new();
    for (name, value) in term.as_object_mut().into_iter().flatten() {
        if name == "preference" {
            found.extend(texts_of_term(value));
            continue;
        }
        let Some((_, key)) = REQUIREMENTS.iter().find(|(field, _)| field == name) else { continue };
        let requirements = value.as_array_mut().into_iter().flatten();
        let its = requirements.filter(|one| one.get("key").and_then(Value::as_str) == Some(key));
        found.extend(its.filter_map(|one| one.get_mut("values")?.as_array_mut()).flatten());
    }
    found
}

/// What an object's pods ask of nodes, in each member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodsByMember {
    /// Where nothing else is said.
    common: PodRequirements,
    /// In members whose nodes are named, and in the others then.
    own: BTreeMap<MemberName, Result<PodRequirements, Elsewhere>>,
}

impl PodsByMember {
    /// Reads an object as the fleet view has it; `None` of a kind that makes no pods.
    ///
    /// Errors: the body is not a JSON object.
    pub fn of(gvk: &Gvk, names: &VisibleNames, body: &str) -> Result<Option<Self>, NotAnObject> {
        let (group, kind) = (&*gvk.group, &*gvk.kind);
        let Some(common) = PodRequirements::of(group, kind, body)? else { return Ok(None) };
        let object: Value = serde_json::from_str(body).unwrap_or_default();
        let nodes = NodeNames::of(gvk, names);
        if nodes.named(&object).is_empty() {
            return Ok(Some(Self { common, own: BTreeMap::new() }));
        }
        let in_member = |member: &MemberName| {
            let mut local = object.clone();
            let asked = nodes.localize(&mut local, member);
            let read = || PodRequirements::of(group, kind, &local.to_string()).ok().flatten().unwrap_or_default();
            (member.clone(), asked.map(|()| read()))
        };
        Ok(Some(Self { own: names.members().iter().map(in_member).collect(), common }))
    }

    /// Says whether they name a RuntimeClass.
    pub fn names_class(&self) -> bool {
        !self.common.runtime_class_name.is_empty()
    }

    /// What they ask in one member.
    ///
    /// Errors: they ask for nodes of other members.
    pub fn in_member(&self, member: &MemberName) -> Result<&PodRequirements, Misfit> {
        match self.own.get(member) {
            Some(Ok(own)) => Ok(own),
            Some(Err(elsewhere)) => Err(Misfit::NotHeld(elsewhere.nodes.clone())),
            None => Ok(&self.common),
        }
    }
}

#[cfg(test)]
mod tests;
