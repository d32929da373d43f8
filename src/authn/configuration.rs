//! A kube-apiserver's `AuthenticationConfiguration`, as far as kubefold takes it: whatever it does not, it refuses.
//!
//! Source: kubernetes/apiserver `pkg/apis/apiserver/v1/types.go`, `pkg/apis/apiserver/validation/validation.go`.

use serde::Deserialize;
use serde_json::Value;

use crate::authn::{
    AuthnError,
    issuer::{Claim, Required, Rules},
};

pub(super) const FLAG: &str = "--authentication-config";
const VERSIONS: [&str; 2] = ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Raw {
    api_version: String,
    kind: String,
    #[serde(default)]
    jwt: Vec<RawJwt>,
    #[serde(default)]
    anonymous: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawJwt {
    issuer: RawIssuer,
    claim_mappings: RawMappings,
    #[serde(default)]
    claim_validation_rules: Vec<RawRule>,
    #[serde(default)]
    user_validation_rules: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawIssuer {
    url: String,
    #[serde(rename = "discoveryURL", default)]
    discovery_url: Option<String>,
    #[serde(default)]
    certificate_authority: Option<String>,
    audiences: Vec<String>,
    #[serde(default)]
    audience_match_policy: Option<String>,
    #[serde(default)]
    egress_selector_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawMappings {
    username: RawClaim,
    #[serde(default)]
    groups: Option<RawClaim>,
    #[serde(default)]
    uid: Option<RawClaim>,
    #[serde(default)]
    extra: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawClaim {
    #[serde(default)]
    claim: Option<String>,
    #[serde(default)]
    prefix: Option<String>,
    #[serde(default)]
    expression: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawRule {
    #[serde(default)]
    claim: Option<String>,
    #[serde(default)]
    required_value: String,
    #[serde(default)]
    expression: Option<String>,
    #[serde(default)]
    #[allow(dead_code, reason = "the message of an expression, which is refused")]
    message: Option<String>,
}

/// Reads it.
pub(super) fn parse(text: &str) -> Result<Vec<Rules>, AuthnError> {
    let raw: Raw =
        serde_saphyr::from_str(text).map_err(|source| AuthnError::Form { flag: FLAG, source: Box::new(source) })?;
    if raw.kind != "AuthenticationConfiguration" || !VERSIONS.contains(&raw.api_version.as_str()) {
        return refuse("apiVersion and kind", "are not apiserver.config.k8s.io/v1 and AuthenticationConfiguration");
    }
    if raw.anonymous.is_some() {
        return refuse("anonymous", "is not supported: kubefold answers nobody but to health checks; leave it out");
    }
    let rules: Vec<Rules> =
        raw.jwt.into_iter().enumerate().map(|(at, jwt)| rules(&format!("jwt[{at}]"), jwt)).collect::<Result<_, _>>()?;
    for (at, one) in rules.iter().enumerate() {
        if rules.iter().take(at).any(|other| other.url == one.url) {
            return refuse(&format!("jwt[{at}].issuer.url"), "is another issuer's, too");
        }
    }
    Ok(rules)
}

fn rules(at: &str, raw: RawJwt) -> Result<Rules, AuthnError> {
    let RawJwt { issuer, claim_mappings: mappings, claim_validation_rules, user_validation_rules } = raw;
    let field = |name: &str| format!("{at}.{name}");
    for (name, url) in [("issuer.url", Some(&issuer.url)), ("issuer.discoveryURL", issuer.discovery_url.as_ref())] {
        let Some(url) = url else { continue };
        let uri = url.parse::<http::Uri>().ok().filter(|uri| uri.scheme_str() == Some("https") && uri.host().is_some());
        if uri.is_none_or(|uri| uri.query().is_some()) {
            return refuse(&field(name), "is no https URL without a query");
        }
    }
    if issuer.audiences.is_empty() || issuer.audiences.iter().any(String::is_empty) {
        return refuse(&field("issuer.audiences"), "names no audience, or an empty one");
    }
    match issuer.audience_match_policy.as_deref() {
        None | Some("") if issuer.audiences.len() > 1 => {
            return refuse(
                &field("issuer.audienceMatchPolicy"),
                "has to be MatchAny where there are several audiences",
            );
        }
        None | Some("" | "MatchAny") => {}
        Some(_) => return refuse(&field("issuer.audienceMatchPolicy"), "is not MatchAny"),
    }
    if issuer.egress_selector_type.is_some() {
        return refuse(&field("issuer.egressSelectorType"), "is not supported; leave it out");
    }
    if !mappings.extra.is_empty() {
        return refuse(&field("claimMappings.extra"), "needs CEL, which is not supported; leave it out");
    }
    if !user_validation_rules.is_empty() {
        return refuse(&field("userValidationRules"), "needs CEL, which is not supported; leave it out");
    }
    let required = claim_validation_rules.into_iter().enumerate().map(|(rule, raw)| {
        let field = field(&format!("claimValidationRules[{rule}]"));
        match raw {
            RawRule { expression: Some(_), .. } => {
                refuse(&field, "has an expression, which needs CEL, which is not supported")
            }
            RawRule { claim: Some(claim), required_value, .. } if !claim.is_empty() => {
                Ok(Required { claim, value: required_value })
            }
            RawRule { .. } => refuse(&field, "names no claim"),
        }
    });
    let required = required.collect::<Result<_, _>>()?;
    let prefixed = |name: &str, raw: RawClaim| claim(&field(&format!("claimMappings.{name}")), raw, true);
    Ok(Rules {
        required,
        user: prefixed("username", mappings.username)?,
        groups: mappings.groups.map(|raw| prefixed("groups", raw)).transpose()?,
        uid: mappings.uid.map(|raw| claim(&field("claimMappings.uid"), raw, false)).transpose()?.map(|uid| uid.claim),
        url: issuer.url,
        discovery_url: issuer.discovery_url,
        authority: issuer.certificate_authority.filter(|pem| !pem.is_empty()),
        audiences: issuer.audiences,
    })
}

fn claim(field: &str, raw: RawClaim, has_prefix: bool) -> Result<Claim, AuthnError> {
    if raw.expression.is_some() {
        return refuse(field, "has an expression, which needs CEL, which is not supported; use claim and prefix");
    }
    let Some(claim) = raw.claim.filter(|claim| !claim.is_empty()) else { return refuse(field, "names no claim") };
    match raw.prefix {
        // Without one, an issuer's user could be anybody's: a kube-apiserver wants it said, too.
        None if has_prefix => refuse(field, "has no prefix; write \"\" for none"),
        Some(_) if !has_prefix => refuse(field, "has a prefix, which only username and groups have"),
        prefix => Ok(Claim { claim, prefix: prefix.unwrap_or_default() }),
    }
}

fn refuse<T>(field: &str, cause: &str) -> Result<T, AuthnError> {
    Err(AuthnError::Field { flag: FLAG, field: field.to_owned(), cause: cause.to_owned() })
}
