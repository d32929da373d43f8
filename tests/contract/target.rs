//! Something that answers requests: a base URL, who asks, and how it names objects.

use std::time::Duration;

use bytes::Bytes;
use http::Request;

use crate::{check::Check, seen::Seen};
use testbed::{Answer, Api};

/// For an answer to be complete, watches of a second or two included.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Any API server.
pub(crate) struct Target {
    /// For reports.
    pub(crate) name: String,
    pub(crate) api: Api,
    /// What it adds to the names of the first member's objects: nothing, or `@east`.
    pub(crate) suffix: String,
    /// What `{@}` stands for: the suffix or, for another member than the first, something that no name ends with.
    pub(crate) at: String,
    /// A revision that it has given out, when all objects were there.
    pub(crate) revision: String,
    /// A token for the second page of a list.
    pub(crate) token: String,
}

impl Target {
    /// `revision` is read from a list.
    pub(crate) async fn new(name: &str, api: Api, suffix: &str) -> Self {
        let list = api.get("/api/v1/namespaces/shop/configmaps?limit=1").await;
        let of_list = |field: &str| list["metadata"][field].as_str().expect("a page").to_owned();
        let (revision, token) = (of_list("resourceVersion"), of_list("continue"));
        Self { name: name.to_owned(), api, suffix: suffix.to_owned(), at: suffix.replace('@', "%40"), revision, token }
    }

    /// The path as this target understands it.
    pub(crate) fn path(&self, path: &str) -> String {
        path.replace("{@}", &self.at).replace("{rv}", &self.revision).replace("{token}", &self.token)
    }

    /// Asks, and reduces the answer to what must agree. No whole answer is one, too.
    pub(crate) async fn ask(&self, check: &Check) -> Seen {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.answer(check)).await;
        Seen::of(self, answer.unwrap_or_else(|_| Err(format!("no whole answer in {ANSWER_TIMEOUT:?}"))).as_ref())
    }

    async fn answer(&self, check: &Check) -> Result<Answer, String> {
        let mut request = Request::builder().method(check.method).uri(self.path(&check.path));
        for (name, value) in &check.headers {
            request = request.header(*name, value);
        }
        let label = format!("{}: {}", self.name, check.label());
        let request = request.body(Bytes::from(check.body.clone())).unwrap_or_else(|error| panic!("{label}: {error}"));
        self.api.send(request).await
    }
}
