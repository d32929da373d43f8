//! `kubefold aggregation manifest`: what a host cluster needs so that its kube-aggregator serves groups of the fleet.

mod manifest;

use std::path::PathBuf;

use anyhow::{Context, bail};
use kube::Client;
use serde_json::{Value, json};

use self::manifest::{Address, Manifest, served_by_host};
use crate::{
    cli::{
        client::{Connection, cause},
        print as print_text,
    },
    config::{self, Aggregation, GroupVersion},
    own::{GROUP, VERSION},
    serve::Published,
    upstream::access::client,
};

const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const WHO_AM_I: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

#[derive(Debug, clap::Args)]
pub(super) struct HostFlags {
    #[command(subcommand)]
    command: AggregationCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AggregationCommand {
    /// Print what a host cluster needs to serve groups of the fleet: Service, APIServices and RBAC.
    #[command(after_help = super::help::AGGREGATION)]
    Manifest(Flags),
}

#[derive(Debug, clap::Args)]
struct Flags {
    /// The clusters.yaml, whose section `aggregation` has the host.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The state directory of `kubefold serve`, which has the authority of its certificate.
    #[arg(long, value_name = "DIR")]
    state_dir: PathBuf,
    /// Where the host's API server reaches kubefold, HOST:PORT; a Service for it is printed, too. Default: the Service is
    /// there already.
    #[arg(long, value_name = "ADDR")]
    address: Option<Address>,
    /// A further group of the fleet, such as apps.example.com/v1, beside those in the configuration; may be repeated.
    #[arg(long = "group", value_name = "GROUP", value_parser = group)]
    groups: Vec<GroupVersion>,
    /// The user that kubefold is in the host. Default: the host is asked with kubefold's own login there.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// A kubeconfig of an administrator of the host, who is asked what the host serves. Default: $KUBECONFIG, then
    /// ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context to use. Default: the current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// Prints it on standard output.
pub(super) fn run(flags: &HostFlags) -> anyhow::Result<()> {
    let AggregationCommand::Manifest(flags) = &flags.command;
    let config = config::load(&flags.config)?;
    let Some(host) = &config.aggregation else {
        bail!("{}: it has no section \"aggregation\"; add one with the host", flags.config.display());
    };
    let mut groups = vec![GroupVersion { group: GROUP.to_owned(), version: VERSION.to_owned() }];
    groups.extend(host.groups.iter().cloned());
    groups.extend(flags.groups.iter().filter(|group| !host.groups.contains(group)).cloned());
    let unread = |group: &&GroupVersion| group.group != GROUP && !host.groups.contains(group);
    if let (Some(member), Some(group)) = (&host.member, groups.iter().find(unread)) {
        bail!(
            "the host is member {member}, and kubefold would read {}/{} from itself there; add it to \"groups\" of the \
             section \"aggregation\" in {}",
            group.group,
            group.version,
            flags.config.display()
        );
    }
    let authority = Published::read(&flags.state_dir)?.certificate_authority;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (registered, user) = runtime.block_on(Box::pin(asked(flags, host)))?;
    if let Some((group, services)) = served_by_host(&registered, &groups, &host.service) {
        bail!(
            "the host serves the group {group} itself ({}), and it can serve a group from one place only; leave it out",
            services.join(", ")
        );
    }
    let (service, address) = (&host.service, flags.address.as_ref());
    let manifest = Manifest { service, address, groups: &groups, authority: &authority, user: &user };
    print_text(&manifest.text()?)
}

/// The APIServices of the host, and who kubefold is there.
async fn asked(flags: &Flags, host: &Aggregation) -> anyhow::Result<(Vec<Value>, String)> {
    let administrator = Connection::of(flags.kubeconfig.clone(), flags.context.clone()).config().await?;
    let url = administrator.cluster_url.to_string();
    let administrator = Client::try_from(administrator).with_context(|| format!("cannot connect to {url}"))?;
    let request = http::Request::get(API_SERVICES).body(Vec::new())?;
    let mut list: Value = ask(&administrator, request).await.with_context(|| {
        format!("cannot read the APIServices of the host at {url}; give an administrator's --kubeconfig and --context")
    })?;
    let Value::Array(registered) = list["items"].take() else {
        bail!("the host at {url} has no list of APIServices: is it a cluster with an aggregator?")
    };
    if let Some(user) = &flags.user {
        return Ok((registered, user.clone()));
    }
    let login = "kubefold's own login at the host does not work; mend it, or say with --user who it is";
    let own = client(&host.access).context(login)?;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let request = http::Request::post(WHO_AM_I).header("content-type", "application/json").body(review.into_bytes())?;
    let answer = ask(&own, request).await.context(login)?;
    match answer["status"]["userInfo"]["username"].as_str() {
        Some(user) => Ok((registered, user.to_owned())),
        None => bail!("the host does not say who kubefold is there; say it with --user"),
    }
}

/// Asks the host.
pub(super) async fn ask(client: &Client, request: http::Request<Vec<u8>>) -> anyhow::Result<Value> {
    let text = client.request_text(request).await.map_err(|error| anyhow::anyhow!(cause(&error)))?;
    Ok(serde_json::from_str(&text)?)
}

fn group(text: &str) -> Result<GroupVersion, NoGroup> {
    GroupVersion::parse(text).ok_or(NoGroup)
}

/// A flag that names no group.
#[derive(Debug, thiserror::Error)]
#[error("write a group and its version, like apps.example.com/v1")]
struct NoGroup;
