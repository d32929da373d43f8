//! A part's document: as its member sent it, or as what is different in it from another part's.
//!
//! The parts of one object are nearly the same: one text with other UIDs, revisions and times in between. In a fleet of 200
//! members the differences are what can be kept.

use std::{borrow::Cow, ops::Range, sync::Arc};

use memchr::memmem;

/// A document is kept whole if more than this share of it is its own.
const OWN_MAX: usize = 2;
/// Shorter documents are kept whole.
const THIN_MIN: usize = 256;
/// Two documents go on together where so many bytes are equal.
const ANCHOR: usize = 16;
/// Such a place is looked for in so many bytes behind a difference.
const LOOK_AHEAD: usize = 2048;
/// Between two places whose bytes are looked for elsewhere in the base.
const STRIDE: usize = 8;

/// The document of a part.
#[derive(Clone, Debug)]
pub struct Document(Form);

#[derive(Clone, Debug)]
enum Form {
    Whole(Arc<str>),
    Thin {
        base: Arc<str>,
        runs: Box<[Run]>,
        /// What is its own, one piece behind the other.
        own: Box<[u8]>,
    },
}

/// A stretch of the base, and how much that is the document's own follows it. Units: bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: u32,
    len: u32,
    own: u32,
}

impl Document {
    /// Keeps a text as it is.
    pub(super) fn whole(text: Arc<str>) -> Self {
        Self(Form::Whole(text))
    }

    /// The same document, kept as what is different in it from `base`, where that is much less.
    ///
    /// Shape: costs O(length), and a search of up to 2 KiB for each difference.
    pub(super) fn beside(self, base: &Arc<str>) -> Self {
        let Form::Whole(text) = &self.0 else { return self };
        let fits = text.len() >= THIN_MIN && u32::try_from(base.len().max(text.len())).is_ok();
        match fits.then(|| Differences::between(base.as_bytes(), text.as_bytes())).flatten() {
            Some(Differences { runs, own }) => {
                Self(Form::Thin { base: Arc::clone(base), runs: runs.into(), own: own.into() })
            }
            None => self,
        }
    }

    /// Its text, if it is kept whole.
    pub(super) fn as_whole(&self) -> Option<&Arc<str>> {
        match &self.0 {
            Form::Whole(text) => Some(text),
            Form::Thin { .. } => None,
        }
    }

    /// Its text.
    pub fn text(&self) -> Cow<'_, str> {
        let (base, runs, own) = match &self.0 {
            Form::Whole(text) => return Cow::Borrowed(text),
            Form::Thin { base, runs, own } => (base.as_bytes(), runs, own),
        };
        let len = runs.iter().map(|run| run.len as usize).sum::<usize>() + own.len();
        let (mut out, mut rest) = (Vec::with_capacity(len), &**own);
        for run in runs {
            out.extend_from_slice(base.get(run.range()).unwrap_or_default());
            let (own, behind) = rest.split_at(rest.len().min(run.own as usize));
            out.extend_from_slice(own);
            rest = behind;
        }
        // It is made of the pieces of a text.
        Cow::Owned(String::from_utf8(out).unwrap_or_default())
    }
}

impl Run {
    fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.len as usize
    }
}

/// What is different in a text from a base.
#[derive(Default)]
struct Differences {
    runs: Vec<Run>,
    own: Vec<u8>,
}

impl Differences {
    /// `None`: too much of it is.
    fn between(base: &[u8], text: &[u8]) -> Option<Self> {
        let (mut all, mut at_base, mut at_text) = (Self::default(), 0, 0);
        while at_text < text.len() {
            let (rest_of_base, rest) = (base.get(at_base..)?, text.get(at_text..)?);
            let equal = equal_len(rest_of_base, rest);
            let (skipped, own) = go_on(rest_of_base.get(equal..)?, rest.get(equal..)?);
            let own_bytes = rest.get(equal..equal + own)?;
            all.own.extend_from_slice(own_bytes);
            if all.own.len() > text.len() / OWN_MAX {
                return None;
            }
            let (start, len) = (u32::try_from(at_base).ok()?, u32::try_from(equal).ok()?);
            all.runs.push(Run { start, len, own: u32::try_from(own).ok()? });
            at_base += equal + skipped;
            at_text += equal + own;
        }
        Some(all)
    }
}

/// Bytes that both begin with.
fn equal_len(one: &[u8], other: &[u8]) -> usize {
    const CHUNK: usize = 32;
    let chunks = one.chunks_exact(CHUNK).zip(other.chunks_exact(CHUNK));
    let whole = chunks.take_while(|(one, other)| one == other).count() * CHUNK;
    let rests = one.iter().skip(whole).zip(other.iter().skip(whole));
    whole + rests.take_while(|(one, other)| one == other).count()
}

/// How much of a base and of a text, which begin with different bytes, is skipped to where they go on together. All of the
/// text if they do not.
fn go_on(base: &[u8], text: &[u8]) -> (usize, usize) {
    let near = base.get(..LOOK_AHEAD).unwrap_or(base);
    for at in 0..LOOK_AHEAD {
        let Some(anchor) = text.get(at..at + ANCHOR) else { break };
        // Most often something is in the place of something else of the same length.
        if base.get(at..at + ANCHOR) == Some(anchor) {
            return (at, at);
        }
        if at % STRIDE == 0
            && let Some(found) = memmem::find(near, anchor)
        {
            return (found, at);
        }
    }
    (0, text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(member: usize, more: &str) -> String {
        let filler =
            (0..40).map(|at| format!(r#"{{"name":"E{at}","value":"v{}"}}"#, at * 7)).collect::<Vec<_>>().join(",");
        format!(
            r#"{{"metadata":{{"name":"web","uid":"{member:08x}-0000","resourceVersion":"{}"{more}}},"spec":{{"env":[{filler}]}},"status":{{"at":"2026-01-01T00:00:{:02}Z"}}}}"#,
            member * 1000,
            member % 60
        )
    }

    #[test]
    fn a_part_is_its_differences_from_another() {
        let base: Arc<str> = pod(1, "").into();
        for more in ["", r#","labels":{"a":"ä"}"#] {
            let text = pod(77_777, more);
            let thin = Document::whole(text.as_str().into()).beside(&base);
            assert_eq!(thin.text(), text);
            let Form::Thin { runs, own, .. } = &thin.0 else { panic!("it is kept whole") };
            assert!(runs.len() < 8 && own.len() < 100, "{runs:?} {}", String::from_utf8_lossy(own));
        }
    }

    #[test]
    fn what_has_little_in_common_is_kept_whole() {
        let base: Arc<str> = pod(1, "").into();
        for text in ["x".repeat(3000), pod(2, "")[..100].to_owned()] {
            assert!(Document::whole(text.as_str().into()).beside(&base).as_whole().is_some());
        }
    }

    proptest! {
        /// Whatever is cut out, put in or replaced.
        #[test]
        fn the_text_comes_back(edits in prop::collection::vec((0..2000_usize, 0..80_usize, "[a-c\"ä]{0,80}"), 0..12), at in 0..99_usize) {
            let base: Arc<str> = pod(at, "").into();
            let mut text = pod(at + 1, "");
            for (start, len, new) in edits {
                let at = |place: usize| (0..=place.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
                let (from, to) = (at(start), at(start + len));
                text.replace_range(from..to, &new);
            }
            let document = Document::whole(text.as_str().into()).beside(&base);
            prop_assert_eq!(document.text(), text);
        }
    }
}
