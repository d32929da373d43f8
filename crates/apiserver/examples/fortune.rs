//! A kind whose objects nobody stores: a fortune is made up when it is read, and whoever creates one asks the oracle, which
//! could as well be a cloud that starts a virtual machine.
//!
//! `kubectl --server=http://127.0.0.1:8080 get fortunes`

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use futures::{StreamExt, stream};
use kubefold_apiserver::{Changed, Kind, Rest, Server, Status, Target, TypedKind, Watch};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A saying.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Fortune {
    #[schemars(skip)]
    metadata: Metadata,
    /// What the oracle says.
    #[serde(default)]
    saying: String,
    /// What it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    question: Option<String>,
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct Metadata {
    name: String,
}

const SAYINGS: [&str; 3] = ["A watched pod never boils.", "Your next rollout is smooth.", "Read the events first."];

/// The world outside: what would be an API of somebody else's.
#[derive(Default)]
struct Oracle {
    asked: Mutex<BTreeMap<String, Fortune>>,
}

impl Oracle {
    fn asked(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Fortune>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sayings of its own, and answers that it gave.
    fn all(&self) -> Vec<Fortune> {
        let own = SAYINGS.iter().zip(["morning", "noon", "night"]).map(|(saying, name)| Fortune {
            metadata: Metadata { name: name.to_owned() },
            saying: (*saying).to_owned(),
            question: None,
        });
        own.chain(self.asked().values().cloned()).collect()
    }
}

impl Rest for Oracle {
    type Object = Fortune;
    const VERBS: &'static [&'static str] = &["get", "list", "watch", "create", "update", "patch", "delete"];

    async fn get(&self, target: &Target) -> Result<Option<Fortune>, Status> {
        Ok(self.all().into_iter().find(|fortune| fortune.metadata.name == target.name))
    }

    async fn list(&self, _: &Target) -> Result<Vec<Fortune>, Status> {
        Ok(self.all())
    }

    async fn watch(&self, _: &Target) -> Result<Watch<Fortune>, Status> {
        // An oracle that knows when it is asked would tell it here.
        Ok(stream::pending::<Result<Changed<Fortune>, Status>>().boxed())
    }

    async fn create(&self, target: &Target, mut fortune: Fortune) -> Result<Fortune, Status> {
        if self.all().iter().any(|other| other.metadata.name == target.name) {
            return Err(Status::conflict("oracle.example.com", "fortunes", &target.name, "the oracle repeats nothing"));
        }
        fortune.saying = format!("{}, it will be so.", target.caller.user);
        self.asked().insert(target.name.clone(), fortune.clone());
        Ok(fortune)
    }

    async fn update(&self, target: &Target, new: Fortune, old: Fortune) -> Result<Fortune, Status> {
        if !self.asked().contains_key(&target.name) {
            return Err(Status::forbidden(format!("\"{}\" is eternal", old.saying)));
        }
        let fortune = Fortune { saying: "Who asks twice does not want to know.".to_owned(), ..new };
        self.asked().insert(target.name.clone(), fortune.clone());
        Ok(fortune)
    }

    async fn delete(&self, target: &Target, fortune: Fortune) -> Result<Option<Fortune>, Status> {
        match self.asked().remove(&target.name) {
            Some(_) => Ok(None),
            None => Err(Status::forbidden(format!("\"{}\" is eternal", fortune.saying))),
        }
    }
}

fn fortune() -> TypedKind<Fortune> {
    Kind::of::<Fortune>("oracle.example.com", "v1", "Fortune")
        .schema()
        .cluster_scoped()
        .column("Saying", "string", ".saying")
        .rest(Oracle::default())
}

fn server() -> Server {
    Server::new().kind(fortune())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    Ok(server().serve(&address).await?)
}
