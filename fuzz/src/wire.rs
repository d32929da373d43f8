//! The decoders, and what they name of their room.

#[path = "../../src/wire/accept.rs"]
pub mod accept;
#[path = "../../src/wire/body.rs"]
pub mod body;
#[path = "../../src/wire/list.rs"]
pub mod list;
#[path = "../../src/wire/locate.rs"]
pub mod locate;
#[path = "../../src/wire/protobuf/mod.rs"]
pub mod protobuf;
#[path = "../../src/wire/resource.rs"]
pub mod resource;
#[path = "../../src/wire/scan.rs"]
mod scan;
#[path = "../../src/wire/selector/mod.rs"]
pub mod selector;
#[path = "../../src/wire/splice.rs"]
pub mod splice;
#[path = "../../src/wire/status.rs"]
pub mod status;
#[path = "../../src/wire/token.rs"]
pub mod token;
#[path = "../../src/wire/warning.rs"]
pub mod warning;
#[path = "../../src/wire/watch.rs"]
pub mod watch;
