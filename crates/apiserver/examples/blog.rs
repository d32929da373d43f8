//! An API server of one kind. `kubectl --server=http://127.0.0.1:8080 create -f post.yaml` works against it, and so do `get`,
//! `apply`, `edit`, `explain`, `wait` and `delete`.

use kubefold_apiserver::{Cause, Kind, Server};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An article of the blog.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Post {
    spec: PostSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<PostStatus>,
}

/// What the author wants.
#[derive(Serialize, Deserialize, JsonSchema)]
struct PostSpec {
    /// The headline, of at most 80 characters.
    title: String,
    /// Who wrote it; whoever created the post, if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    author: Option<String>,
    /// The text.
    #[serde(default)]
    body: String,
}

/// What became of it.
#[derive(Serialize, Deserialize, JsonSchema)]
struct PostStatus {
    /// How often it was read.
    views: u64,
}

fn server() -> Server {
    let post = Kind::of::<Post>("blog.example.com", "v1", "Post")
        .schema()
        .short_name("po")
        .column("Title", "string", ".spec.title")
        .column("Author", "string", ".spec.author")
        .selectable_field(".spec.author")
        .status()
        .default(|post| post.spec.title = post.spec.title.trim().to_owned())
        .prepare_create(|post, context| {
            post.spec.author = post.spec.author.take().or_else(|| Some(context.caller.user.clone()))
        })
        .validate(|post, _| match post.spec.title.chars().count() {
            0 => vec![Cause::required("spec.title", "a post has a headline")],
            1..=80 => Vec::new(),
            _ => vec![Cause::invalid_text("spec.title", &post.spec.title, "may not have more than 80 characters")],
        });
    Server::new().kind(post)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    Ok(server().serve(&address).await?)
}
