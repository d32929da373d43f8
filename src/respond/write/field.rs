//! What is wrong with an object that is written: the words of its 422, after `Deployment.apps "web" is invalid`.

use std::str::Utf8Error;

use crate::{
    config::MemberName,
    placement::{divided::NotANumber, overrides::OverrideError, policy::PolicyError},
};
use kubefold_wire::{golang::Quoted, locate::NotAnObject};

/// A field that cannot be as it is, or a policy that does not go with the object.
#[derive(Debug, thiserror::Error)]
pub enum InvalidField {
    /// Neither a name nor a base for one.
    #[error("metadata.name: Required value: name or generateName is required")]
    NameRequired,
    /// The `@` in a name is followed by no member.
    #[error("metadata.name: Invalid value: {name}: an `@` only pins to a member: {}", pins(.members), name = Quoted(.name))]
    NoPin {
        /// The name.
        name: String,
        /// The members that there are.
        members: Vec<MemberName>,
    },
    /// The annotations ask for a placement that cannot be.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A number that is divided among members is none.
    #[error(transparent)]
    Division(#[from] NotANumber),
    /// One member's part cannot be made of it.
    #[error(transparent)]
    Part(#[from] PartError),
    /// The owner of one member's object is in another member.
    #[error(
        "metadata.ownerReferences: Invalid value: {owner}: the owner is in member {holder}: member {member} would \
         collect the object as one whose owner is gone", owner = Quoted(.owner))]
    OwnerElsewhere {
        /// The owner's visible name.
        owner: String,
        /// The owner's member.
        holder: MemberName,
        /// The object's member.
        member: MemberName,
    },
    /// Members hold a part and not its owner.
    #[error(
        "metadata.ownerReferences: Invalid value: {owner}: the garbage collector would delete the part in member {}",
        .lack.join("; "), owner = Quoted(.owner))]
    OwnerMissing {
        /// The owner's visible name.
        owner: String,
        /// One sentence per member.
        lack: Vec<String>,
    },
    /// The addresses of a placed Service are what its members' controllers find.
    #[error(
        "subsets: Forbidden: they are the addresses that the endpoints controllers of {} find for Service {}: change its \
         selector, or write in one member (/clusters/<member>/)", members_listed(.members), Quoted(.service))]
    Subsets {
        /// The Service's name.
        service: String,
        /// The members of its parts.
        members: Vec<MemberName>,
    },
    /// An object in one member names nodes of other members alone.
    #[error("{}: Invalid value: {}: the object is in member {member}, and needs a node of it", .field.join("."), Quoted(&.nodes.join(", ")))]
    NodesElsewhere {
        /// The path of the pod spec.
        field: &'static [&'static str],
        /// The nodes, by their visible names.
        nodes: Vec<String>,
        /// The object's member.
        member: MemberName,
    },
    /// A pod is to be bound to the node of another member.
    #[error("target.name: Invalid value: \"{node}@{holder}\": the pod is in member {member}")]
    NodeElsewhere {
        /// The node's own name.
        node: String,
        /// The node's member.
        holder: MemberName,
        /// The pod's member.
        member: MemberName,
    },
    /// A pod with several parts is to be bound to a node whose member is not named.
    #[error(
        "target.name: Invalid value: {}: the pod has parts in several members: name the node as the fleet view \
         does, <node>@<member>",
        Quoted(.0)
    )]
    NodeUnnamed(
        /// The node, as the client wrote it.
        String,
    ),
}

/// `member east`, `members east, west`.
fn members_listed(members: &[MemberName]) -> String {
    let names: Vec<&str> = members.iter().map(MemberName::as_str).collect();
    format!("{} {}", if names.len() == 1 { "member" } else { "members" }, names.join(", "))
}

/// `@east, @west`.
fn pins(members: &[MemberName]) -> String {
    members.iter().map(|member| format!("@{member}")).collect::<Vec<_>>().join(", ")
}

/// Why one member's part cannot be made of a body.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// The body is no text.
    #[error(transparent)]
    Text(#[from] Utf8Error),
    /// The body is no object.
    #[error(transparent)]
    Body(#[from] NotAnObject),
    /// What the policy overrides does not go with it.
    #[error(transparent)]
    Override(#[from] OverrideError),
}
