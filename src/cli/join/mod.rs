//! `kubefold join` and `kubefold unjoin`: two ServiceAccounts of least rights in a cluster, and its entry in `clusters.yaml`.

mod cluster;
mod entries;

use std::{
    fs,
    io::{ErrorKind, Write as _},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow, bail};

use self::{
    cluster::{Account, Cluster, manifest},
    entries::{Entry, as_objects, with_entry, without_entry},
};
use crate::{
    cli::{init::member_name, print},
    config::{self, Config, MemberName},
};
use kubefold_wire::{duration, golang::Quoted};

#[derive(Debug, clap::Args)]
pub(super) struct Join {
    #[command(flatten)]
    target: Target,
    /// The member's name. Default: made of the context's.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A group that kubefold may act for in this cluster, beside system:authenticated; may be repeated. Default: every group,
    /// system:masters, too.
    #[arg(long = "group", value_name = "NAME", value_parser = group_name)]
    groups: Vec<String>,
    /// How long kubefold's tokens are good. kubefold renews them at half of it, and cannot once they have ended.
    #[arg(long, value_name = "DURATION", default_value = "72h", value_parser = token_life)]
    token_life: Duration,
    /// Print the member as objects, a Secret and a Member, for `kubectl create -f -` over the fleet; write no file. The tokens are in
    /// what is printed.
    #[arg(long, conflicts_with = "config")]
    object: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Unjoin {
    /// The member to take out.
    #[arg(value_name = "MEMBER")]
    member: String,
    #[command(flatten)]
    target: Target,
}

/// A cluster, by an administrator's login, and the fleet.
#[derive(Debug, clap::Args)]
struct Target {
    /// The context of an administrator of the cluster. Default: the current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The kubeconfig of an administrator. Default: $KUBECONFIG, then ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The clusters.yaml of the fleet. A running kubefold takes a change at once.
    #[arg(long, value_name = "FILE", default_value = "clusters.yaml")]
    config: PathBuf,
    /// Print what would be done; change nothing.
    #[arg(long)]
    dry_run: bool,
}

/// A token of a ServiceAccount has at least ten minutes.
const LIFE_MIN: Duration = Duration::from_mins(10);
const LIFE_MAX: Duration = Duration::from_hours(365 * 24);
/// Beside `clusters.yaml`: the credentials of members that were joined.
const FOLDER: &str = "members";

fn token_life(text: &str) -> Result<Duration, anyhow::Error> {
    let life = Duration::from_nanos(u64::try_from(duration::parse(text)?).unwrap_or_default());
    if life >= LIFE_MIN && life <= LIFE_MAX { Ok(life) } else { bail!("write a duration from 10m to 8760h") }
}

/// What can stand in quotes.
fn group_name(text: &str) -> Result<String, anyhow::Error> {
    let is_sound = !text.is_empty() && !text.contains(['"', '\\']) && !text.chars().any(char::is_control);
    if is_sound { Ok(text.to_owned()) } else { bail!("write the name of a group, without quotes") }
}

/// Joins a cluster to the fleet.
pub(super) fn join(flags: &Join) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(join_cluster(flags)))
}

/// Takes it out again.
pub(super) fn unjoin(flags: &Unjoin) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(unjoin_cluster(flags)))
}

async fn join_cluster(flags: &Join) -> anyhow::Result<()> {
    let Target { context, kubeconfig, config: path, dry_run } = &flags.target;
    let cluster = Cluster::of(kubeconfig.as_deref(), context.as_deref()).await?;
    if flags.object {
        return join_as_object(flags, &cluster).await;
    }
    let text = text(path)?;
    let known = text.as_deref().map(|text| config::load_text(text, path)).transpose()?;
    let taken: Vec<String> =
        known.iter().flat_map(|known| &known.members).map(|member| member.name.to_string()).collect();
    let name = flags.name.clone().unwrap_or_else(|| member_name(cluster.context(), &taken));
    if MemberName::new(&name).is_none() {
        bail!("{} is no name of a member; give a DNS label with --name", Quoted(&name));
    }
    if taken.contains(&name) {
        bail!(
            "{} has a member {name} already; take it out with kubefold unjoin {name}, or give another --name",
            path.display()
        );
    }
    let folder = path.parent().unwrap_or_else(|| Path::new("")).join(FOLDER).join(&name);
    let entry = Entry { name: &name, cluster: &cluster, folder: &format!("{FOLDER}/{name}") };
    let new = with_entry(text.as_deref(), &entry).ok_or_else(|| {
        anyhow!("cannot see where the list of members in {} ends; add this to it:\n{entry}", path.display())
    })?;
    let manifest = manifest(&flags.groups);
    if *dry_run {
        return print(&format!(
            "# In {}:\n{manifest}---\n# In {}, with the tokens of the two ServiceAccounts in {}:\n{entry}",
            cluster.url(),
            path.display(),
            folder.display()
        ));
    }
    let said = |what: &str| drop(writeln!(std::io::stderr(), "{name}: {what}"));
    for made in cluster.apply(&manifest).await? {
        said(&made);
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
    for (account, file) in [(Account::Reader, "reader.token"), (Account::Impersonator, "impersonator.token")] {
        write(&folder.join(file), &cluster.token(account, flags.token_life).await?, 0o600)?;
    }
    if let Some(authority) = cluster.authority() {
        write(&folder.join("ca.crt"), authority, 0o600)?;
    }
    let checked = config::load_text(&new, path);
    if let Err(error) = checked.map(|config: Config| config.members.len()) {
        bail!("the entry for {name} makes {} unusable: {error}; add it by hand:\n{entry}", path.display());
    }
    write(path, &new, mode_of(path))?;
    said(&format!("in {}; next: kubefold doctor --config {} --member {name}", path.display(), path.display()));
    Ok(())
}

/// Makes the rights in the cluster, and prints the objects that make it a member.
async fn join_as_object(flags: &Join, cluster: &Cluster) -> anyhow::Result<()> {
    let name = flags.name.clone().unwrap_or_else(|| member_name(cluster.context(), &[]));
    if MemberName::new(&name).is_none() {
        bail!("{} is no name of a member; give a DNS label with --name", Quoted(&name));
    }
    let manifest = manifest(&flags.groups);
    let mut login = ("NEW-TOKEN-OF-kubefold-reader".to_owned(), "NEW-TOKEN-OF-kubefold-impersonator".to_owned());
    if flags.target.dry_run {
        print(&format!("# In {}:\n{manifest}---\n# In the fleet:\n", cluster.url()))?;
    } else {
        for made in cluster.apply(&manifest).await? {
            drop(writeln!(std::io::stderr(), "{name}: {made}"));
        }
        let reader = cluster.token(Account::Reader, flags.token_life).await?;
        login = (reader, cluster.token(Account::Impersonator, flags.token_life).await?);
    }
    let objects = as_objects(&name, cluster, &login.0, &login.1);
    print(&format!("{}\n", serde_json::to_string_pretty(&objects)?))
}

async fn unjoin_cluster(flags: &Unjoin) -> anyhow::Result<()> {
    let Target { context, kubeconfig, config: path, dry_run } = &flags.target;
    let name = &flags.member;
    let text =
        text(path)?.ok_or_else(|| anyhow!("there is no {}; give the fleet's file with --config", path.display()))?;
    let known = config::load_text(&text, path)?;
    if !known.members.iter().any(|member| member.name.as_str() == name) {
        let known: Vec<&str> = known.members.iter().map(|member| member.name.as_str()).collect();
        bail!("{} has no member {}; its members are {}", path.display(), Quoted(name), known.join(", "));
    }
    if known.members.len() == 1 {
        bail!("{name} is the last member of {}: end kubefold, and remove the file", path.display());
    }
    let new = without_entry(&text, name)
        .filter(|new| config::load_text(new, path).is_ok_and(|config| config.members.len() + 1 == known.members.len()));
    let new = new.ok_or_else(|| {
        anyhow!(
            "cannot take {name} out of {}: a policy or subject names it, or its entry has an unusual form; take it out by hand",
            path.display()
        )
    })?;
    let cluster = Cluster::of(kubeconfig.as_deref(), context.as_deref()).await?;
    let folder = path.parent().unwrap_or_else(|| Path::new("")).join(FOLDER).join(name);
    if *dry_run {
        let what = cluster.names().join("\n  ");
        return print(&format!(
            "in {}:\n  {what}\nin {}: the entry of {name}\n{}\n",
            cluster.url(),
            path.display(),
            folder.display()
        ));
    }
    // First nobody reads the member any more; what fails after that can be run again.
    write(path, &new, mode_of(path))?;
    let said = |what: &str| drop(writeln!(std::io::stderr(), "{name}: {what}"));
    said(&format!("taken out of {}", path.display()));
    let removed = cluster.remove().await;
    for gone in removed.with_context(|| format!("the entry is gone, but not kubefold's rights in {}", cluster.url()))? {
        said(&gone);
    }
    match fs::remove_dir_all(&folder) {
        Ok(()) => said(&format!("removed {}", folder.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => bail!("cannot remove {}: {error}; its tokens count no more", folder.display()),
    }
    Ok(())
}

/// The file as it is; `None` where there is none.
fn text(path: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(anyhow!("cannot read {}: {error}", path.display())),
    }
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).map_or(0o600, |file| file.permissions().mode() & 0o777)
}

/// Whole or not at all.
pub(in crate::cli) fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let written = || {
        let mut file = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(mode).open(&partial)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&partial, path)
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}
