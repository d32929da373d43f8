//! What an admission plugin answers to what it refuses.

use serde_json::Value;

use super::doc::Doc;
use kubefold_wire::{
    golang::Quoted,
    status::{Status, qualified},
};

/// 403 as an admission plugin says it.
pub(crate) fn forbidden(group: &str, resource: &str, object: &Value, why: &str) -> Box<Status> {
    let name = match object.text("metadata.name") {
        "" => match object.text("metadata.generateName") {
            "" => "Unknown",
            prefix => prefix,
        },
        name => name,
    };
    let message = format!("{} {name} is forbidden: {why}", qualified(group, resource), name = Quoted(name));
    Box::new(Status::forbidden(message).about(group, resource, name))
}
