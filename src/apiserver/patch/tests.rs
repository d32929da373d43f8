mod judge;
mod rules;

mod under_test {
    pub(super) use crate::{
        apiserver::{patch, schema},
        wire::status::Status,
    };
}

/// What a kube-apiserver did with hundreds of writes. `tests/e2e/embedded_patch.rs` makes it, and holds it to be true.
#[test]
fn every_recorded_write_comes_out_as_it_did_at_a_kube_apiserver() {
    let recording = judge::Recording::of(include_str!("tests/recorded.json"));
    let mut wrong = String::new();
    for write in &recording.writes {
        if let Err(why) = judge::judge(&recording, write) {
            wrong.push_str(&format!("{}: {} {}: {why}\n\n", write.what, write.method, write.path));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
