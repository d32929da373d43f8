//! Conversions that wait for an answer: of kinds with a [`Converter`](crate::kinds::Converter). For all others each step here is
//! what it was without.
//!
//! Records are converted before they are read, and objects before they are stored. What is calculated of versions without waiting,
//! such as managed fields, is calculated again once the versions that it asked for are there.

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::Value;

use crate::{
    kinds::{Kind, Services},
    registry::{Object, Registry, WriteOptions, create::to_store, errors, from_store, meta, versions::Conversions},
    storage::Record,
    stored::encode,
};
use kubefold_wire::{
    resource::{api_version, split_api_version},
    status::{Reason, Status},
};

/// How often a calculation may ask for one more version of an object.
const ROUNDS_MAX: usize = 64;

/// What a write stores, and what it shows.
pub(super) struct Storable {
    pub(super) value: Bytes,
    /// What the conversions to the stored version and back made of the object; `None`: it stays as it is.
    pub(super) shown: Option<Value>,
}

impl Services for Registry {
    fn service<'a>(&'a self, namespace: &'a str, name: &'a str) -> BoxFuture<'a, Result<Option<Value>, Status>> {
        Box::pin(async move {
            let Some(kind) = self.kind("", "Service") else { return Ok(None) };
            match self.get(&kind, namespace, name).await {
                Ok(service) => Ok(Some(service.value())),
                Err(status) if status.reason == Reason::NotFound => Ok(None),
                Err(status) => Err(status),
            }
        })
    }
}

impl Registry {
    /// A record as it would be if it were stored in this version.
    ///
    /// Errors: 500, if it cannot be converted.
    pub(super) async fn readable(&self, kind: &Kind, record: Record) -> Result<Record, Status> {
        if kind.strategy.converter().is_none() {
            return Ok(record);
        }
        let records = Box::pin(self.all_readable(kind, vec![record])).await?;
        records.into_iter().next().ok_or_else(|| Status::internal("a record was lost in its conversion"))
    }

    /// Records as they would be if they were stored in this version, in their order.
    ///
    /// Errors: 500, if one of them cannot be converted.
    pub(super) async fn all_readable(&self, kind: &Kind, mut records: Vec<Record>) -> Result<Vec<Record>, Status> {
        let Some(converter) = kind.strategy.converter() else { return Ok(records) };
        let mut others = Vec::new();
        for record in &mut records {
            let object = Object::of_record(record);
            if !object.is_of(kind) {
                others.push(record);
            } else if kind.strategy.rereads() {
                let object = kind.strategy.from_storage(object.stored());
                record.value = encode(&object.map_err(|error| errors::unreadable(kind, &record.key, &error))?);
            }
        }
        if others.is_empty() {
            return Ok(records);
        }
        let objects = others.iter().map(|record| self.stored_now(kind, record)).collect::<Result<_, _>>()?;
        let wanted = api_version(&kind.group, &kind.version);
        let converted = converter.convert(self, objects, &wanted).await.map_err(|status| *status)?;
        for (record, object) in others.iter_mut().zip(converted) {
            record.value = encode(&kept(kind, object));
        }
        Ok(records)
    }

    /// A stored object as the version that it is stored in is known now, with its defaults.
    fn stored_now(&self, kind: &Kind, record: &Record) -> Result<Value, Status> {
        let object = Object::of_record(record);
        let value = object.value();
        let said = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let version = split_api_version(said).map(|(_, version)| version).unwrap_or_default();
        match self.resource(&kind.group, version, &kind.plural).filter(|stored| stored.strategy.rereads()) {
            Some(stored) => {
                let value = stored.strategy.from_storage(value);
                value.map_err(|error| errors::unreadable(kind, object.name(), &error))
            }
            None => Ok(value),
        }
    }

    /// The bytes that are stored of an object, and what is shown of it. Nothing is stored yet: what cannot be shown is not written.
    ///
    /// Errors: 400 or 500, if it cannot be converted to the version that is stored, or back.
    pub(super) async fn storable(&self, kind: &Kind, object: &Value) -> Result<Storable, Status> {
        let own = || api_version(&kind.group, &kind.version);
        match kind.strategy.converter().filter(|converter| converter.stored() != own()) {
            None => {
                let there = to_store(kind, object.clone())?;
                let value = encode(&there);
                // What the version that is stored does not know is lost, and the client is told so.
                let is_other = there.get("apiVersion") != object.get("apiVersion");
                let shown = is_other.then(|| from_store(kind, there, meta::text(object, "name"))).transpose()?;
                Ok(Storable { value, shown })
            }
            Some(_) => Box::pin(self.converted_to_store(kind, object)).await,
        }
    }

    async fn converted_to_store(&self, kind: &Kind, object: &Value) -> Result<Storable, Status> {
        let Some(converter) = kind.strategy.converter() else { return Err(Status::internal("no converter")) };
        let there = self.one_converted(kind, object.clone(), converter.stored()).await?;
        let there = to_store(kind, there)?;
        let value = encode(&there);
        let back = self.one_converted(kind, there, &api_version(&kind.group, &kind.version)).await?;
        Ok(Storable { value, shown: Some(kept(kind, back)) })
    }

    async fn one_converted(&self, kind: &Kind, object: Value, wanted: &str) -> Result<Value, Status> {
        let Some(converter) = kind.strategy.converter() else { return Ok(object) };
        let converted = converter.convert(self, vec![object], wanted).await.map_err(|status| *status)?;
        converted.into_iter().next().ok_or_else(|| Status::internal("an object was lost in its conversion"))
    }

    /// An object of a kind in another version of the kind; `None`: no converter is asked for that.
    ///
    /// Errors: 500, if it cannot be converted.
    pub(crate) async fn converted(&self, object: &Value, to: &Kind) -> Result<Option<Value>, Status> {
        if to.strategy.converter().is_none() {
            return Ok(None);
        }
        let wanted = api_version(&to.group, &to.version);
        let object = Box::pin(self.one_converted(to, object.clone(), &wanted)).await?;
        Ok(Some(kept(to, object)))
    }

    /// What a calculation comes to once all versions of objects are there that it asks for.
    ///
    /// Errors: those of the calculation; 500, if an object cannot be converted.
    pub(super) async fn calculated<T>(
        &self,
        kind: &Kind,
        mut calculate: impl FnMut(&Conversions) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let conversions = Conversions::default();
        for _ in 0..ROUNDS_MAX {
            let calculated = calculate(&conversions);
            let Some(missing) = conversions.take_missing() else { return calculated };
            let object = missing.object.clone();
            let converted = Box::pin(self.one_converted(kind, object, &missing.api_version)).await?;
            conversions.add(missing, converted);
        }
        Err(Status::internal("too many versions of the object are needed to say who owns its fields"))
    }

    /// An object that says whose its fields are, as of a write of this client.
    pub(super) async fn tracked(
        &self,
        kind: &Kind,
        live: Option<&Value>,
        mut new: Value,
        options: &WriteOptions,
        now: &str,
    ) -> Value {
        if kind.strategy.converter().is_none() {
            self.track(kind, live, &mut new, options, now, &Conversions::default());
            return new;
        }
        let calculate = |conversions: &Conversions| {
            let mut tracked = new.clone();
            self.track(kind, live, &mut tracked, options, now, conversions);
            Ok(tracked)
        };
        match Box::pin(self.calculated(kind, calculate)).await {
            Ok(tracked) => tracked,
            Err(status) => {
                // A write in the stored version needs no converter but for this.
                tracing::warn!(error = status.message, kind = kind.kind, "owners of fields stay as they were");
                let entries = live.and_then(|live| live.pointer("/metadata/managedFields")).cloned();
                meta::set(&mut new, "managedFields", entries);
                new
            }
        }
    }
}

/// What a version's schema keeps of a converted object.
fn kept(kind: &Kind, object: Value) -> Value {
    let mut object = kind.strategy.prune(object);
    meta::set_type(&mut object, kind);
    object
}
