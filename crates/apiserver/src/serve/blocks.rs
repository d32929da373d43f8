//! Large lists of whole objects, as they are stored: see [`kubefold_serving::packed`].

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use bytes::Bytes;
use http::Response;

use crate::{
    registry::{List, Object},
    serve::{form::Form, json_response, messages::encode, writing::Writing},
};
use kubefold_serving::packed::{self, BlockKey, Layout, Packer, Recorder, Run};
use kubefold_wire::{
    body::Body,
    protobuf::{EncodeError, MessageType},
};

/// Blocks that a server keeps, with the JSON that they were made of. Units: bytes.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// What was written before.
#[derive(Debug)]
pub(super) struct Blocks(Arc<packed::Blocks<Key>>);

impl Default for Blocks {
    fn default() -> Self {
        Self(Arc::new(packed::Blocks::new(KEPT_BYTES_MAX, KEPT_BYTES_MAX / packed::BLOCK_BYTES_MAX)))
    }
}

impl Blocks {
    /// A list in JSON as an answer.
    pub(super) async fn json(&self, list: List, how: &Writing<'_>, recorder: Option<Recorder>) -> Response<Body> {
        let head = how.head(&list);
        let packer = self.packer(how).recorded_by(recorder);
        let walk = list.objects.into_iter();
        if how.gzip {
            packed::json(packer, head, walk).await.response(json_response)
        } else {
            json_response(packed::plain(packer, head, walk))
        }
    }

    /// The same in protobuf. `None`: it is not large.
    ///
    /// Errors: an object has what its type has not.
    pub(super) async fn protobuf(
        &self,
        list: &List,
        how: &Writing<'_>,
        recorder: Option<Recorder>,
    ) -> Result<Option<Response<Body>>, EncodeError> {
        let head = how.head(list);
        let packer = self.packer(how).recorded_by(recorder);
        Ok(packed::protobuf(packer, &head, &list.objects).await?.map(|body| how.response(body)))
    }

    /// A list whose objects are those of a run that was written so.
    ///
    /// Errors: it is no list in protobuf.
    pub(super) fn again(&self, run: &Run, revision: u64, how: &Writing<'_>) -> Result<Response<Body>, EncodeError> {
        let head = how.head(&List { revision, ..List::default() });
        Ok(how.response(packed::again(self.packer(how), head, run)?))
    }

    fn packer(&self, how: &Writing<'_>) -> Packer<Objects> {
        Packer::new(Arc::clone(&self.0), Objects { form: how.form.clone(), of: how.of }).in_gzip(how.gzip)
    }
}

/// What a block is of.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Key {
    is_protobuf: bool,
    /// The list begins with it.
    is_first: bool,
    states: Box<[State]>,
}

/// An object by where its bytes are. They stay there as long as its block is kept, which holds them: so another state that has the
/// same revision, in a storage that was restored from a backup, is another one.
struct State {
    json: Bytes,
    revision: u64,
}

impl State {
    fn id(&self) -> (*const u8, u64) {
        (self.json.as_ptr(), self.revision)
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for State {}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id().hash(state);
    }
}

impl BlockKey for Key {
    fn weight(&self) -> usize {
        size_of::<Self>() + self.states.iter().map(|state| size_of::<State>() + state.json.len()).sum::<usize>()
    }
}

/// Whole objects.
struct Objects {
    form: Form,
    /// In protobuf.
    of: Option<MessageType>,
}

impl Layout for Objects {
    type Item = Object;
    type Key = Key;

    fn len(object: &Object) -> usize {
        object.len()
    }

    fn revision(object: &Object) -> u64 {
        object.revision()
    }

    fn key(&self, objects: &[Object], is_first: bool) -> Option<Key> {
        let state = |object: &Object| {
            object.is_stored().then(|| State { json: object.shared().clone(), revision: object.revision() })
        };
        let states = objects.iter().map(state).collect::<Option<_>>()?;
        Some(Key { is_protobuf: self.is_protobuf(), is_first, states })
    }

    fn is_protobuf(&self) -> bool {
        self.of.is_some()
    }

    fn item(&self, object: &Object, out: &mut Vec<u8>) {
        self.form.item(object, out);
    }

    fn message(&self, object: &Object, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode(object, self.of.ok_or(EncodeError::UnknownKind)?, out)
    }

    fn end(&self, is_empty: bool, out: &mut Vec<u8>) {
        self.form.end_list(is_empty, out);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use http::header;
    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::*;
    use crate::{
        serve::{built_in_kinds, messages::Messages, read},
        storage::Record,
        stored,
    };
    use kubefold_serving::encode::GZIP_ABOVE_BYTES;
    use kubefold_table::Now;
    use kubefold_wire::resource::Gvr;

    /// What the storage has of config maps of a revision each.
    fn kept(count: usize, text: &str) -> Vec<Object> {
        let object = |number: usize| {
            let name = format!("m{number:05}");
            let value =
                json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": {"a": text}});
            let (key, value) = (format!("configmaps/default/{name}").into(), stored::encode(&value));
            Object::of_record(&Record { key, value, revision: number as u64 + 1 })
        };
        (0..count).map(object).collect()
    }

    fn form() -> Form {
        let kinds = built_in_kinds();
        let kind = kinds.iter().find(|kind| kind.kind == "ConfigMap").unwrap();
        Form::new(None, kind, None, "", true, Now(0)).unwrap()
    }

    fn list(objects: &[Object]) -> List {
        List { objects: objects.to_vec(), revision: 7, next: None, remaining: None }
    }

    async fn sent(response: Response<Body>) -> Vec<u8> {
        let is_gzip = response.headers().contains_key(header::CONTENT_ENCODING);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let mut out = Vec::new();
        if is_gzip {
            flate2::read::GzDecoder::new(&*body).read_to_end(&mut out).unwrap();
        } else {
            out.extend_from_slice(&body);
        }
        out
    }

    #[tokio::test]
    async fn what_is_unpacked_is_the_list_and_so_is_its_run() {
        let gvr = Gvr::new("", "v1", "configmaps");
        let (of, form) = (MessageType::of("v1", "ConfigMap"), form());
        let (blocks, messages) = (Blocks::default(), Messages::default());
        for count in [0, 1, 40, 1_000] {
            let objects = kept(count, &"x".repeat(1_000));
            let how = |of, gzip| Writing { form: &form, of, gzip, gvr: &gvr };
            let json = sent(read::respond(list(&objects), &form, &gvr)).await;
            let message = sent(messages.respond(&list(&objects), &how(of, false)).unwrap()).await;
            for (of, gzip) in [(None, false), (None, true), (of, false), (of, true)] {
                let (how, plain) = (how(of, gzip), if of.is_some() { &message } else { &json });
                let is_large = plain.len() > GZIP_ABOVE_BYTES;
                for _ in 0..2 {
                    let (taken, run) = std::sync::mpsc::channel();
                    let recorder = Some(Recorder::new(1 << 30, move |run| taken.send(run).unwrap()));
                    let response = if of.is_some() {
                        blocks.protobuf(&list(&objects), &how, recorder).await.unwrap()
                    } else {
                        Some(blocks.json(list(&objects), &how, recorder).await)
                    };
                    let Some(response) = response else {
                        assert!(!is_large);
                        continue;
                    };
                    assert_eq!(response.headers().contains_key(header::CONTENT_ENCODING), gzip && is_large, "{count}");
                    assert!(sent(response).await == *plain, "{count} {of:?} {gzip}");
                    let Ok(run) = run.try_recv() else {
                        assert!(gzip && !is_large, "{count} {of:?}");
                        continue;
                    };
                    assert!(sent(blocks.again(&run, 7, &how).unwrap()).await == *plain, "{count} {of:?} {gzip}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_state_of_the_same_revision_is_not_taken_for_another() {
        let gvr = Gvr::new("", "v1", "configmaps");
        let form = form();
        let how = Writing { form: &form, of: None, gzip: true, gvr: &gvr };
        let blocks = Blocks::default();
        let made = async |objects: &[Object]| {
            let before = blocks.0.count();
            let text = String::from_utf8(sent(blocks.json(list(objects), &how, None).await).await).unwrap();
            (text, blocks.0.count() - before)
        };
        let (was, is) = (kept(400, &"x".repeat(1_000)), kept(400, &"y".repeat(1_000)));
        let (text, count) = made(&was).await;
        assert!(text.contains("xxxx") && count > 3, "{count}");
        assert_eq!(made(&was).await.1, 0);
        let (text, again) = made(&is).await;
        assert!(text.contains("yyyy") && !text.contains("xxxx"));
        assert_eq!(again, count);
        // What is made for one answer is nobody else's.
        let value = was[0].value();
        let answers: Vec<Object> =
            (0..400).map(|at| Object::of_value("configmaps/default/a", &value, at + 1)).collect();
        assert_eq!(made(&answers).await.1, 0);
    }
}
