//! The rows of a search as they go out: a chunk at a time.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::Frame;

use crate::{
    answer::form::Form,
    config::MemberName,
    read::{
        answer::CHUNK_BYTES,
        search::{
            document::{Annotation, CLUSTER_ANNOTATION, metadata_of, shadow},
            find::Hit,
        },
    },
    store::{Revision, Row},
};
use kubefold_wire::body::BodyError;

/// How a row is written.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) form: Form,
    /// As the visible object that it is, or is a part of; and not as its member's.
    pub(super) is_of_fleet: bool,
    /// Its metadata alone.
    pub(super) only_metadata: bool,
    /// The revision of the answer, which rows have that have none of their own.
    pub(super) at: Revision,
}

impl Written {
    /// Appends a row as one object, as of `revision`.
    pub(super) fn object(&self, row: &Row, revision: Revision, out: &mut Vec<u8>) {
        if self.is_of_fleet {
            return self.form.object(row.entry(), None, revision, out);
        }
        self.form.member_object(&self.document(row, revision), member_of(row), revision, out);
    }

    /// The document of a member's row.
    fn document(&self, row: &Row, revision: Revision) -> String {
        let given = [Annotation { name: CLUSTER_ANNOTATION, value: member_of(row) }];
        let shadow = shadow(&row.document(), &given, revision);
        if self.only_metadata { metadata_of(&shadow) } else { shadow }
    }

    fn item(&self, row: &Row, out: &mut Vec<u8>) {
        if self.is_of_fleet {
            return self.form.item(row.entry(), None, out);
        }
        let revision = Some(row.revision()).filter(|revision| *revision > Revision(0)).unwrap_or(self.at);
        self.form.member_item(&self.document(row, revision), member_of(row), out);
    }
}

fn member_of(row: &Row) -> &str {
    row.member().map(MemberName::as_str).unwrap_or_default()
}

/// A page as it goes out.
pub(super) struct RowsBody {
    /// What is before the items, then what was not given yet.
    pub(super) out: Vec<u8>,
    pub(super) hits: std::vec::IntoIter<Hit>,
    pub(super) written: Written,
    pub(super) first: bool,
    pub(super) done: bool,
}

impl http_body::Body for RowsBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        if this.done {
            return Poll::Ready(None);
        }
        let mut out = std::mem::take(&mut this.out);
        for hit in this.hits.by_ref() {
            out.push(if std::mem::take(&mut this.first) { b'[' } else { b',' });
            this.written.item(&hit.row, &mut out);
            if out.len() >= CHUNK_BYTES {
                return Poll::Ready(Some(Ok(Frame::data(out.into()))));
            }
        }
        this.written.form.end_items(this.first, &mut out);
        this.done = true;
        Poll::Ready(Some(Ok(Frame::data(out.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.done
    }
}
