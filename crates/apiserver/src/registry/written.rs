//! What a write made.

use crate::registry::Object;

/// What a write made.
#[derive(Clone, Debug)]
pub struct Written {
    /// The object as it is now.
    pub object: Object,
    /// It was not there before.
    pub created: bool,
    /// For the client.
    pub warnings: Vec<String>,
}
