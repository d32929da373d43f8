//! The API catalog: what each member serves, and what the fleet serves.
//!
//! [`MemberCatalog`] is one member's own word, parsed from its discovery documents; [`Catalog`] is the
//! merge of all of them, which answers lookups and from which the fleet's documents are made;
//! [`FleetCatalogue`] keeps it current.
//!
//! Source: KEP-3352 (aggregated discovery); kubernetes/api `apidiscovery/v2/types.go`.
//!
//! May name: `config`, `search`. How a member is asked, a [`Fetcher`] says.

mod fetch;
mod fleet;
mod kept;
mod merge;
mod merged;
mod order;
mod parse;
mod search;
mod served;
#[cfg(test)]
pub(crate) mod testdata;
#[cfg(test)]
mod tests;

pub use self::{
    fetch::{CatalogError, FetchError, Fetched, Fetcher},
    fleet::FleetCatalogue,
    kept::words,
    merged::{Catalog, MergedGroup, MergedResource, MergedVersion},
    parse::{
        ListedGroup, ParseError, is_aggregated, parse_aggregated, parse_api_versions, parse_group_list,
        parse_resource_list, parse_server_version,
    },
    search::search_group,
    served::{Freshness, Group, MemberCatalog, Resource, ResponseKind, Scope, ServerVersion, Subresource, Version},
};
