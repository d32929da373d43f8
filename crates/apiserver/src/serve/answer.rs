//! How a request is answered.

use http::{Response, StatusCode};

use crate::{
    kinds::Kind,
    registry::Object,
    serve::{ApiServer, context::RequestContext, form::Form, json_response},
};
use kubefold_table::Now;
use kubefold_wire::{
    body::{Body, full},
    media::Negotiated,
    options::query_value,
    status::{Reason, Status},
    warning::Warnings,
};

impl ApiServer {
    /// The form of an answer about objects of a kind.
    ///
    /// Errors: 400, 406.
    pub(super) fn form(
        &self,
        kind: &Kind,
        asked: RequestContext<'_>,
        wanted: Negotiated,
        is_list: bool,
    ) -> Result<Form, Status> {
        let include = query_value(asked.query, "includeObject").unwrap_or_default();
        let composed = kind.composer.as_ref().and_then(|composer| composer.printer());
        let printer =
            composed.or_else(|| kind.strategy.printer()).or_else(|| self.inner.settings.printers.printer(kind));
        let now = Now(self.inner.registry.env().now().as_microsecond());
        Form::new(wanted.transform, kind, printer, &include, is_list, now)
    }

    /// One object as an answer.
    ///
    /// Errors: 400, 406.
    pub(super) fn object_response(
        &self,
        kind: &Kind,
        object: &Object,
        asked: RequestContext<'_>,
        wanted: Negotiated,
        code: StatusCode,
        warnings: &[String],
    ) -> Result<Response<Body>, Status> {
        let form = self.form(kind, asked, wanted, false)?;
        let mut out = Vec::new();
        form.object(object, &mut out);
        Ok(answered(out, code, warnings))
    }
}

/// What nobody can do where there are no kubelets.
pub(super) fn no_kubelet(subresource: &str) -> Status {
    let message = format!("this server has no kubelets: nothing runs in its pods that {subresource} could reach");
    Status::new(StatusCode::NOT_IMPLEMENTED, Reason::MethodNotAllowed, message)
}

/// JSON as an answer.
pub(super) fn answered(mut json: Vec<u8>, code: StatusCode, warnings: &[String]) -> Response<Body> {
    json.push(b'\n');
    let mut response = json_response(full(json));
    *response.status_mut() = code;
    let mut told = Warnings::default();
    warnings.iter().for_each(|warning| told.add(warning));
    told.write_to(response.headers_mut());
    response
}
