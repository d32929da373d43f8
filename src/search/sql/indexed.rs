//! What the tables have of an object beside its document, so that it is found without a look into that.

use std::sync::LazyLock;

use crate::search::{Facts, facts::first, query::controller, time};
use kubefold_wire::{
    locate::Paths,
    selector::{Labels, text_of},
};

/// What the tables have of an object beside its document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexed {
    /// When it was created; absent where the document does not say. Units: microseconds of Unix time.
    pub created_us: Option<i64>,
    /// The UID of the owner that controls it.
    pub owner: Option<String>,
    /// Its labels, each once.
    pub labels: Vec<Label>,
}

/// One label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Its value where that is a whole number, as `>` and `<` of a label selector read it.
    pub number: Option<i64>,
}

impl Indexed {
    /// Finds it in a document that a JSON parser has accepted.
    pub fn of(json: &str) -> Self {
        let created = Facts::default().created(json);
        let labels = Facts::labels_of(json).map(Labels::read).unwrap_or_default();
        let mut all: Vec<Label> = Vec::new();
        for (key, value) in labels.iter() {
            if !all.iter().any(|known| known.key == key) {
                let (key, value, number) = (key.to_owned(), value.to_owned(), value.parse().ok());
                all.push(Label { key, value, number });
            }
        }
        Self { created_us: created.and_then(|text| time::of_object(&text)), owner: controller(json), labels: all }
    }

    /// The UID that a document has.
    pub fn uid_of(json: &str) -> Option<String> {
        static UID: LazyLock<Paths> = LazyLock::new(|| Paths::new([(0, ["metadata", "uid"].as_slice())]));
        first(&UID, json).and_then(text_of).map(std::borrow::Cow::into_owned)
    }
}
