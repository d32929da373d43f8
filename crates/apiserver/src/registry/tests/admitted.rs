//! Writes that admission changes, while others write, too.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::future::{BoxFuture, FutureExt};

use super::*;
use crate::kinds::{Author, Carried, Compose, Composed, Reading};

/// Says what it is asked about in the object, and writes the object itself when it is asked for the first time.
struct Meddler {
    registry: Registry,
    asked: AtomicUsize,
}

impl Admission for Meddler {
    fn is_idle(&self) -> bool {
        false
    }

    fn mutates(&self) -> bool {
        true
    }

    fn mutate<'a>(
        &'a self,
        _registry: &'a Registry,
        request: &'a AdmissionRequest<'a>,
        object: Option<Value>,
        rounds: &'a mut Rounds,
    ) -> BoxFuture<'a, Result<Option<Value>, Box<Status>>> {
        async move {
            if request.operation == Operation::Update && self.asked.fetch_add(1, Ordering::Relaxed) == 0 {
                let set = |object: &mut Value| {
                    object["spec"]["other"] = 1.into();
                    Ok(())
                };
                let options = WriteOptions::default();
                let written = self.registry.modify(request.kind, "default", request.name, &options, set);
                Box::pin(written).await.map_err(Box::new)?;
            }
            let mut object = object.unwrap_or_default();
            object["spec"]["admitted"] = 1.into();
            rounds.changed(Plugin::Webhooks);
            Ok(Some(object))
        }
        .boxed()
    }

    fn validate<'a>(
        &'a self,
        _registry: &'a Registry,
        _request: &'a AdmissionRequest<'a>,
        _object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Box<Status>>> {
        async { Ok(()) }.boxed()
    }
}

/// Shows what is stored, and stores what is written.
struct Plain;

impl Compose for Plain {
    fn compose<'a>(
        &'a self,
        _caller: &'a Caller,
        stored: Value,
        _reading: Reading,
    ) -> BoxFuture<'a, Result<Composed, Status>> {
        async { Ok(Composed { shown: stored, stored: None }) }.boxed()
    }

    fn create<'a>(&'a self, _author: Author<'a>, object: Value) -> BoxFuture<'a, Result<Carried, Status>> {
        async { Ok(Carried { stored: object.clone(), shown: object, ..Carried::default() }) }.boxed()
    }

    fn update<'a>(
        &'a self,
        author: Author<'a>,
        _stored: Value,
        _old: &'a Value,
        new: Value,
    ) -> BoxFuture<'a, Result<Carried, Status>> {
        self.create(author, new)
    }

    fn delete<'a>(
        &'a self,
        _author: Author<'a>,
        stored: Value,
        _propagation: Option<Propagation>,
    ) -> BoxFuture<'a, Result<Value, Status>> {
        async { Ok(stored) }.boxed()
    }

    fn settle<'a>(&'a self, _carried: &'a Carried, _is_stored: bool) -> BoxFuture<'a, ()> {
        async {}.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_admission_but_the_write_that_it_is_asked_about() {
    let composed = Arc::new(Kind {
        composer: Some(Arc::new(Plain)),
        ..Arc::unwrap_or_clone(kind("example.com", "v1", "Sum", "sums", true))
    });
    let world = world().await;
    world.registry.serve_kind(Arc::clone(&composed));
    for kind in [&world.things, &composed] {
        let meddler = Meddler { registry: world.registry.clone(), asked: AtomicUsize::new(0) };
        let meddler = Arc::new(meddler);
        let registry = world.registry.admitted_by(Arc::clone(&meddler) as Arc<dyn Admission>);
        let options = WriteOptions::default();
        let made = json!({"metadata": {"name": "a"}, "spec": {"x": 0}});
        registry.create(kind, "default", made, &options).await.unwrap();
        let set = |object: &mut Value| {
            object["spec"]["x"] = 1.into();
            Ok(())
        };
        // A lock that is held meanwhile is never free.
        let written = registry.modify(kind, "default", "a", &options, set);
        let written = tokio::time::timeout(Duration::from_secs(60), written).await.unwrap().unwrap();
        let spec = written.object.value()["spec"].clone();
        assert_eq!(spec, json!({"x": 1, "other": 1, "admitted": 1}), "{}", kind.plural);
        // The first two rounds were about an object that was changed meanwhile.
        assert_eq!(meddler.asked.load(Ordering::Relaxed), 4, "{}", kind.plural);
    }
}
