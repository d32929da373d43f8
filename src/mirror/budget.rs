//! Which kinds are in the tables alone, since memory has no room for all: decided at the start, by what the tables have.
//!
//! While kubefold runs nothing passes from memory to the tables: an open watch would end, and what could be written a moment ago
//! could not be any more. A process that was killed since it had no memory left decides anew.

use kubefold_sql::SqlError;

use crate::{
    config::{MirrorConfig, ResourcePattern},
    mirror::file::{File, unsigned},
};
use kubefold_wire::resource::Gvr;

/// What the tables have of a resource, in all versions and members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// One of its versions.
    gvr: Gvr,
    /// Of its objects' JSON.
    bytes: u64,
    /// Its objects were in the tables alone before this start.
    was_stored: bool,
}

impl File {
    /// How much there is of each resource. Shape: one look at each object.
    pub(super) fn sizes(&self) -> Result<Vec<Size>, SqlError> {
        let sizes = "SELECT feeds.\"group\", min(feeds.version), feeds.resource, sum(length(objects.document)),
                max(CASE WHEN objects.name IS NULL THEN 0 ELSE 1 END)
            FROM objects JOIN feeds ON feeds.id = objects.feed WHERE objects.deleted_us = 0
            GROUP BY feeds.\"group\", feeds.resource";
        self.database.read(|sql| {
            sql.rows(sizes, &[], |row| {
                let gvr = Gvr::new(row.get(0)?, row.get(1)?, row.get(2)?);
                Ok(Size { gvr, bytes: unsigned(row.get(3)?), was_stored: row.get(4)? })
            })
        })
    }
}

/// The resources that are in the tables alone so that all others have at most `mirror.memory`: as few as will do, the largest
/// first. One that was there before comes back only once a tenth of the bound is left over with it: so a kind whose size
/// moves about the bound is not in another place after each start.
pub(super) fn beyond(config: &MirrorConfig, mut sizes: Vec<Size>) -> Vec<Gvr> {
    let Some(max) = config.memory_max else { return Vec::new() };
    fn is_named(patterns: &[ResourcePattern], gvr: &Gvr) -> bool {
        patterns.iter().any(|pattern| pattern.names(gvr))
    }
    sizes.retain(|size| !is_named(&config.stored, &size.gvr));
    let mut in_memory: u64 = sizes.iter().map(|size| size.bytes).sum();
    sizes.retain(|size| is_named(&config.storable, &size.gvr));
    sizes.sort_by(|one, other| (other.was_stored, other.bytes, &one.gvr).cmp(&(one.was_stored, one.bytes, &other.gvr)));
    let mut passed = Vec::new();
    for Size { gvr, bytes, was_stored } in sizes {
        let most = if was_stored { max - max / 10 } else { max };
        if in_memory > most {
            in_memory -= bytes;
            passed.push(gvr);
        }
    }
    passed
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::load_text;

    /// Sizes in MiB, and whether the kind was stored, to what is in the tables alone.
    fn stored(sizes: &[(&str, u64, bool)]) -> Vec<String> {
        let yaml = "members: [{name: east, inCluster: true}]\n\
            mirror: {memory: 100Mi, stored: [always.example.com], storable: [events, \"*.example.com\"]}\n";
        let config = load_text(yaml, Path::new("clusters.yaml")).unwrap().mirror;
        let size = |(name, mib, was_stored): &(&str, u64, bool)| {
            let (resource, group) = name.split_once('.').unwrap_or((name, ""));
            Size { gvr: Gvr::new(group, "v1", resource), bytes: mib << 20, was_stored: *was_stored }
        };
        beyond(&config, sizes.iter().map(size).collect()).iter().map(Gvr::qualified).collect()
    }

    #[test]
    fn the_largest_kinds_that_may_pass_to_the_tables_until_the_others_have_room() {
        assert!(stored(&[("events", 60, false), ("pods", 40, false)]).is_empty(), "all have room");
        assert_eq!(
            stored(&[
                ("pods", 90, false),
                ("events", 5, false),
                ("a.example.com", 8, false),
                ("b.example.com", 7, false)
            ]),
            ["a.example.com", "b.example.com"],
            "the largest first, and as few as will do"
        );
        assert_eq!(stored(&[("pods", 200, false), ("events", 1, false)]), ["events"], "what may not pass stays");
        assert!(stored(&[("always.example.com", 900, true), ("events", 99, false)]).is_empty(), "no memory has it");
    }

    #[test]
    fn a_kind_comes_back_only_where_room_is_left_over_with_it() {
        for (mib, was_stored, is_stored) in
            [(60, false, false), (61, false, true), (60, true, true), (51, true, true), (50, true, false)]
        {
            let sizes = [("pods", 40, false), ("events", mib, was_stored)];
            assert_eq!(!stored(&sizes).is_empty(), is_stored, "{mib} MiB, in the tables before: {was_stored}");
        }
        assert_eq!(
            stored(&[("pods", 40, false), ("events", 30, true), ("a.example.com", 50, false)]),
            ["events"],
            "what was there before stays, and nothing else has to go"
        );
    }
}
