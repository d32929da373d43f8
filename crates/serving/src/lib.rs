//! What a server of the Kubernetes API needs around its answers: who asks, bodies in, encodings out, upgrades, audit ids.
//!
//! It knows nothing of fleets and nothing of storage: kubefold and the embedded API server both stand on it.

pub mod audit;
pub mod caller;
pub mod encode;
mod indent;
pub mod request;
pub mod upgrade;
