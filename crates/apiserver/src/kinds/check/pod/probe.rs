//! Probes and what is done at the start and end of a container.

use serde_json::Value;

use super::{
    super::{metadata::nonnegative, words::PORT},
    Doc, Errors, Path,
};
use kubefold_wire::names::{header_name, port_name};

/// The probes and the lifecycle of a container.
pub(super) fn all(container: &Value, grace: Option<i64>, at: &Path, errors: &mut Errors) {
    if let Some(lifecycle) = container.at("lifecycle") {
        for event in ["postStart", "preStop"] {
            if let Some(what) = lifecycle.at(event) {
                handler(what, grace, &at.child("lifecycle").child(event), errors);
            }
        }
    }
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.at(kind) else { continue };
        let at = at.child(kind);
        check(probe, grace, &at, errors);
        if kind == "readinessProbe" {
            if let Some(seconds) = probe.number("terminationGracePeriodSeconds") {
                errors.invalid(
                    &at.child("terminationGracePeriodSeconds"),
                    seconds,
                    "must not be set for readinessProbes",
                );
            }
        } else if probe.number("successThreshold").unwrap_or(0) != 1 {
            let given = probe.number("successThreshold").unwrap_or(0);
            errors.invalid(&at.child("successThreshold"), given, "must be 1");
        }
    }
}

fn check(probe: &Value, grace: Option<i64>, at: &Path, errors: &mut Errors) {
    handler(probe, grace, at, errors);
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        nonnegative(probe.number(field), &at.child(field), errors);
    }
    if let Some(seconds) = probe.number("terminationGracePeriodSeconds").filter(|seconds| *seconds <= 0) {
        errors.invalid(&at.child("terminationGracePeriodSeconds"), seconds, "must be greater than 0");
    }
}

fn handler(what: &Value, grace: Option<i64>, at: &Path, errors: &mut Errors) {
    let mut handlers = 0;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let Some(action) = what.at(kind) else { continue };
        let at = at.child(kind);
        if handlers > 0 {
            errors.forbidden(&at, "may not specify more than 1 handler type");
            continue;
        }
        handlers += 1;
        match kind {
            "exec" if action.items("command").is_empty() => errors.required(&at.child("command"), ""),
            "httpGet" => http(action, &at, errors),
            "tcpSocket" | "grpc" => port(action.at("port"), &at.child("port"), errors),
            "sleep" => {
                let seconds = action.number("seconds").unwrap_or(0);
                if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.invalid(&at, seconds, &why);
                }
            }
            _ => {}
        }
    }
    if handlers == 0 {
        errors.required(at, "must specify a handler type");
    }
}

fn http(action: &Value, at: &Path, errors: &mut Errors) {
    if action.text("path").is_empty() {
        errors.required(&at.child("path"), "");
    }
    port(action.at("port"), &at.child("port"), errors);
    let scheme = action.text("scheme");
    if !matches!(scheme, "HTTP" | "HTTPS") {
        errors.unsupported(&at.child("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in action.items("httpHeaders") {
        let name = header.text("name");
        errors.all_invalid(&at.child("httpHeaders"), name, &header_name(name));
    }
}

/// A port by number or name.
pub(in crate::kinds::check) fn port(port: Option<&Value>, at: &Path, errors: &mut Errors) {
    match port {
        Some(Value::String(name)) => errors.all_invalid(at, name, &port_name(name)),
        port => {
            let number = port.and_then(Value::as_i64).unwrap_or(0);
            if !(1..=65535).contains(&number) {
                errors.invalid(at, number, PORT);
            }
        }
    }
}
