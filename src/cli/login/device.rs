//! Logging in with a code that is typed in elsewhere: for machines without a browser.
//!
//! Source: RFC 8628.

use std::time::Duration;

use anyhow::{anyhow, bail};
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout_at};

use crate::cli::login::{cache::Kept, flags::Parameter, issuer::Issuer, machine::say};
use kubefold_wire::golang::Quoted;

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Between two questions, where the issuer says nothing else. Section 3.2.
const ASK_EVERY_S: u64 = 5;
/// What is added to it each time that the issuer says so. Section 3.5.
const SLOWER_S: u64 = 5;
/// No issuer means more.
const ASK_EVERY_MAX_S: u64 = 60;

/// Source: section 3.2.
#[derive(Deserialize)]
struct Given {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

/// Shows the code, and waits until somebody has typed it in.
pub(super) async fn log_in(issuer: &Issuer, parameters: &[Parameter]) -> anyhow::Result<Kept> {
    let url = issuer.url();
    let endpoint = issuer.metadata.device_authorization_endpoint.as_deref();
    let endpoint = endpoint.ok_or_else(|| anyhow!("{url} has no device authorization; use --flow loopback"))?;
    let mut form = vec![("scope", &*issuer.scope)];
    form.extend(parameters.iter().map(|Parameter { name, value }| (&**name, &**value)));
    let given: Given = match issuer.post(endpoint, &form).await? {
        Ok(given) => given,
        Err(refusal) => bail!(
            "{url} refuses a login by device: {refusal}; may the client {} use the device flow?",
            Quoted(&issuer.client)
        ),
    };
    match &given.verification_uri_complete {
        Some(complete) => {
            say(&format!("open {complete} in a browser on any machine, and check the code {}", given.user_code))
        }
        None => say(&format!(
            "open {} in a browser on any machine, and type in {}",
            given.verification_uri, given.user_code
        )),
    }
    let ends = Instant::now() + Duration::from_secs(given.expires_in);
    let waited = timeout_at(ends, wait(issuer, &given)).await;
    waited
        .unwrap_or_else(|_| Err(anyhow!("nobody typed in the code {} in time; run the command again", given.user_code)))
}

async fn wait(issuer: &Issuer, given: &Given) -> anyhow::Result<Kept> {
    let mut every_s = given.interval.unwrap_or(ASK_EVERY_S).min(ASK_EVERY_MAX_S);
    loop {
        sleep(Duration::from_secs(every_s)).await;
        let form = [("grant_type", GRANT), ("device_code", &*given.device_code)];
        let refusal = match issuer.token(&form).await? {
            Ok(tokens) => return issuer.kept(tokens, None, None),
            Err(refusal) => refusal,
        };
        match &*refusal.error {
            "authorization_pending" => {}
            "slow_down" => every_s = (every_s + SLOWER_S).min(ASK_EVERY_MAX_S),
            _ => bail!("{} refuses the login: {refusal}", issuer.url()),
        }
    }
}
