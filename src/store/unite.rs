//! The Endpoints of a placed Service: one object with the addresses of all its parts.

use std::{ops::Range, sync::LazyLock};

use smallvec::SmallVec;

use crate::{
    placement::fold::united,
    store::{
        entry::{Edits, Entry},
        incoming::{Incoming, Scratch},
        part::Part,
        parts::Parts,
        references::References,
        rewrite::Rewriter,
        sequencer::Sequencer,
    },
};
use kubefold_wire::locate::Paths;

static SUBSETS: LazyLock<Paths> = LazyLock::new(|| Paths::new([(0, ["subsets"].as_slice())]));

/// Hashes of what an object refers to.
type Hashes = SmallVec<[u64; 8]>;

impl Sequencer {
    /// The body with the subsets of all parts, each with its own member's visible names in it.
    ///
    /// Shape: walks all parts' documents at each event of one of them, which costs about as much as the object that each
    /// watcher gets.
    pub(super) fn united(&self, body: Entry, parts: &Parts, scratch: &mut Scratch) -> Entry {
        if parts.list.len() < 2 {
            return body;
        }
        let mut referents: Hashes = body.referents().collect();
        let subsets: Vec<String> =
            parts.list.iter().filter_map(|part| self.subsets(part, &mut referents, scratch)).collect();
        let union = united(&subsets);
        let text = body.text_and_metadata().0;
        let place = place(text);
        let edits = &mut scratch.edits;
        edits.clear();
        match place {
            _ if union.is_empty() => {}
            Some(now) => edits.put(now, |out| out.extend_from_slice(&union)),
            None => put_last(text, &union, edits),
        }
        body.draft(&referents).build(edits)
    }

    /// A part's subsets as they are shown. `None`: it has none.
    fn subsets(&self, part: &Part, referents: &mut Hashes, scratch: &mut Scratch) -> Option<String> {
        let Scratch { edits, found, referent, .. } = scratch;
        let text = part.document.text();
        let incoming = Incoming::read(&self.spec, &text, found).ok()?;
        let at = place(&text)?;
        edits.clear();
        let mut references = References::new(&self.kinds, &part.member);
        let mut rewriter = Rewriter {
            naming: &self.shared.naming,
            identities: &self.shared.identities,
            member: &part.member,
            refs: &mut references,
            referent,
        };
        rewriter.references(&text, &incoming.facts, found, edits);
        referents
            .extend(references.hashes.iter().filter(|hash| !referents.contains(hash)).copied().collect::<Hashes>());
        String::from_utf8(edits.spliced(&text, &at)).ok()
    }
}

fn place(text: &str) -> Option<Range<usize>> {
    let mut found = Vec::new();
    // The document was walked when it came in.
    let _known_good = SUBSETS.locate_valid(text, &mut found);
    found.pop().map(|found| found.range)
}

/// Puts subsets into an object that has none.
fn put_last(text: &str, union: &[u8], edits: &mut Edits) {
    let end = text.trim_ascii_end().len().saturating_sub(1);
    edits.put(end..end, |out| {
        out.extend_from_slice(b",\"subsets\":");
        out.extend_from_slice(union);
    });
}
