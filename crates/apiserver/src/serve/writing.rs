//! What is around the objects of a list.

use http::Response;

use crate::{
    registry::List,
    serve::{form::Form, json_response, protobuf_response},
};
use kubefold_serving::encode::in_gzip;
use kubefold_wire::{body::Body, protobuf::MessageType, resource::Gvr, token::ContinueToken};

/// Room for what surrounds the items of a list. Units: bytes.
pub(super) const OUTSIDE_BYTES: usize = 512;

/// How a list of whole objects is written.
pub(super) struct Writing<'a> {
    pub(super) form: &'a Form,
    /// In protobuf; absent: in JSON.
    pub(super) of: Option<MessageType>,
    /// In gzip, if it is large.
    pub(super) gzip: bool,
    pub(super) gvr: &'a Gvr,
}

impl Writing<'_> {
    /// What is before the objects of a list in JSON; for protobuf the JSON of the list without them.
    pub(super) fn head(&self, list: &List) -> Vec<u8> {
        let mut out = Vec::with_capacity(OUTSIDE_BYTES);
        begin(list, self.form, self.gvr, &mut out);
        if self.of.is_some() {
            self.form.end_list(true, &mut out);
        }
        out
    }

    /// An answer with a body that is written so.
    pub(super) fn response(&self, body: Body) -> Response<Body> {
        let response = if self.of.is_some() { protobuf_response(body) } else { json_response(body) };
        if self.gzip { in_gzip(response) } else { response }
    }
}

/// Appends what is before the items of a list, with the token of the next page if there is one.
pub(super) fn begin(list: &List, form: &Form, gvr: &Gvr, out: &mut Vec<u8>) {
    let token = |after| ContinueToken::new(gvr.label(), list.revision, after, list.remaining).encode();
    form.begin_list(list.revision, list.next.clone().map(token).as_deref(), list.remaining, out);
}
