//! The two orders of the page: to drain a member, and to divide anew.

use crate::{
    config::MemberName,
    respond::UiRefused,
    write::moves::{Command, Verb},
};

/// Bytes of an order.
pub(super) const ORDER_BYTES_MAX: usize = 4096;
/// What has to be typed for a rebalance, which is of no member.
const REBALANCE: &str = "rebalance";

/// What the page sends.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Order {
    verb: Verb,
    #[serde(default)]
    member: Option<MemberName>,
    #[serde(default)]
    dry_run: bool,
    /// What the person typed: the member, or `rebalance`. A plan needs none.
    #[serde(default)]
    confirm: String,
}

/// The command that an order is.
///
/// Errors: it is another order, or nobody has confirmed it.
pub(super) fn command(body: &[u8]) -> Result<Command, UiRefused> {
    let refused = |why: &str| UiRefused::Order(why.to_owned());
    let order: Order = serde_json::from_slice(body).map_err(|error| UiRefused::Order(error.to_string()))?;
    let Order { verb, member, dry_run, confirm } = order;
    let expected = match (verb, &member) {
        (Verb::Drain, Some(member)) => member.as_str(),
        (Verb::Rebalance, None) => REBALANCE,
        (Verb::Drain, None) => return Err(refused("a drain names a member")),
        (Verb::Rebalance, Some(_)) => return Err(refused("a rebalance is of all members")),
        _ => return Err(refused("only drain and rebalance; use the commands of kubefold for the others")),
    };
    if !dry_run && confirm != expected {
        return Err(refused(&format!("it is not confirmed: type {expected}")));
    }
    Ok(Command { verb, member, members: Vec::new(), object: None, dry_run, force: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_a_drain_or_a_rebalance_that_somebody_has_confirmed() {
        let of = |body: &str| command(body.as_bytes()).map_err(|refused| refused.to_string());
        let drain = of(r#"{"verb":"drain","member":"east","confirm":"east"}"#).unwrap();
        assert_eq!((drain.verb, drain.dry_run, drain.force), (Verb::Drain, false, false));
        assert!(of(r#"{"verb":"drain","member":"east","dryRun":true}"#).unwrap().dry_run);
        assert!(of(r#"{"verb":"rebalance","confirm":"rebalance"}"#).is_ok());
        for (body, why) in [
            (r#"{"verb":"drain","member":"east"}"#, "type east"),
            (r#"{"verb":"drain","member":"east","confirm":"west"}"#, "type east"),
            (r#"{"verb":"rebalance","confirm":"yes"}"#, "type rebalance"),
            (r#"{"verb":"drain","dryRun":true}"#, "names a member"),
            (r#"{"verb":"rebalance","member":"east","dryRun":true}"#, "of all members"),
            (r#"{"verb":"forget","member":"east","confirm":"east"}"#, "only drain and rebalance"),
            (r#"{"verb":"cordon","member":"east","dryRun":true}"#, "only drain and rebalance"),
            (r#"{"verb":"drain","member":"east","confirm":"east","force":true}"#, "unknown field"),
            (r#"{"verb":"drain","member":"../x","dryRun":true}"#, "does not take"),
            ("", "does not take"),
        ] {
            let said = of(body).unwrap_err();
            assert!(said.contains(why), "{body}: {said}");
        }
    }
}
