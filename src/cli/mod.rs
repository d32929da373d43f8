//! The command line: flags in, one result on standard output, one sentence per failure on standard error.
//!
//! May name: every room.

mod aggregation;
#[cfg(feature = "apiserver")]
mod apiserver;
mod audit;
mod authentication;
mod bench;
mod can_i;
mod client;
mod completion;
#[cfg(feature = "demo")]
mod demo;
mod diff;
mod doctor;
mod events;
mod explain;
mod help;
mod init;
mod join;
mod keys;
mod kubeconfig;
mod live;
mod login;
mod moves;
mod named;
mod paint;
mod plan;
mod progress;
#[cfg(test)]
mod reference;
mod release;
mod revoke;
mod rewrite;
mod search;
mod served;
mod serving;
mod state;
mod status;
mod top;
mod ui;
mod version;

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use http::Uri;

use crate::{
    app::{self, AdvertiseError, Advertised, ServingOptions, StateOpenError},
    authn::AuthnError,
    config::ConfigError,
    read::Freshness,
    serve::AuditError,
    write::{journal::JournalOpenError, moves::Verb},
};
use kubefold_serving::tls::TlsError;
use kubefold_wire::quantity::Quantity;

/// Wrong flags or a refused configuration (`EX_USAGE` of sysexits.h).
const EXIT_USAGE: u8 = 64;
/// What a command was to do is not done.
const EXIT_FAILED: u8 = 1;

/// Folds many Kubernetes clusters into one Kubernetes API.
#[derive(Debug, Parser)]
#[command(name = "kubefold", version, arg_required_else_help = true, after_help = help::ROOT)]
struct Cli {
    /// When to use colours; auto: on a terminal, unless NO_COLOR is set.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    color: paint::When,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a fleet of embedded members to try kubefold without a cluster.
    #[cfg(feature = "demo")]
    #[command(after_help = help::DEMO)]
    Demo(demo::Demo),
    /// Measure an API server or a fleet under load, or compare two such measurements.
    #[command(after_help = help::BENCH)]
    Bench(Box<bench::Bench>),
    /// Serve the fleet as one API.
    #[command(after_help = help::SERVE)]
    Serve(Box<Serve>),
    /// Serve an API of its own, without members: kubectl, controllers and your kinds, stored where you like.
    #[cfg(feature = "apiserver")]
    #[command(name = "apiserver", after_help = help::APISERVER)]
    ApiServer(apiserver::ApiServer),
    /// Bring every object of a running API server to the version of its kind in which new ones are stored.
    #[command(after_help = help::REWRITE)]
    Rewrite(rewrite::Rewrite),
    /// Print a kubeconfig for the kubefold that uses this state directory, or merge it into your own.
    #[command(after_help = help::KUBECONFIG)]
    Kubeconfig(kubeconfig::Kubeconfig),
    /// Withdraw client certificates before they end.
    #[command(after_help = help::REVOKE)]
    Revoke(revoke::Revoke),
    /// Log in at an OpenID Connect issuer, and print the credential: the plugin that kubectl runs.
    #[command(after_help = help::LOGIN)]
    Login(login::Login),
    /// Forget the logins that kubefold login keeps.
    #[command(after_help = help::LOGOUT)]
    Logout(login::Logout),
    /// Print the state of each member, unfinished writes, and objects that differ between members.
    #[command(after_help = help::STATUS)]
    Status(status::Status),
    /// Print members and kinds with what happens in them now; on a terminal again and again.
    #[command(after_help = help::TOP)]
    Top(top::Top),
    /// Check the connection to every member, layer by layer, and say how to fix what fails.
    #[command(after_help = help::DOCTOR)]
    Doctor(doctor::Doctor),
    /// Print where the objects of a manifest would go, and why; change nothing.
    #[command(after_help = help::PLAN)]
    Plan(plan::Plan),
    /// Print the fields in which the parts of an object differ, member by member.
    #[command(after_help = help::DIFF)]
    Diff(diff::Diff),
    /// Search the objects of all members by fields, labels, owners and times.
    #[command(after_help = help::SEARCH)]
    Search(Box<search::Search>),
    /// Open a page on this machine that shows the fleet, with your rights.
    #[command(after_help = help::UI)]
    Ui(ui::Ui),
    /// Print the events of all members, oldest first.
    #[command(after_help = help::EVENTS)]
    Events(events::Events),
    /// Let a member get nothing new; what it has stays.
    #[command(after_help = help::CORDON)]
    Cordon(moves::Cordon),
    /// Let a cordoned member get new objects again.
    Uncordon(moves::Cordon),
    /// Move what runs in a member to the others, and cordon it.
    #[command(after_help = help::DRAIN)]
    Drain(moves::Drain),
    /// Divide anew what is divided, as a create would divide it now, and bring overrides that changed.
    #[command(after_help = help::REBALANCE)]
    Rebalance(moves::Rebalance),
    /// Make in members what belongs in every member and is missing there.
    #[command(after_help = help::EXTEND)]
    Extend(moves::Extend),
    /// Make objects of members the parts of one placed object; nothing is made anew.
    #[command(after_help = help::ADOPT)]
    Adopt(moves::Adopt),
    /// Give up what waits for a member.
    #[command(after_help = help::FORGET)]
    Forget(moves::Forget),
    /// Print what is moving, and what it waits for.
    Moves(moves::Moves),
    /// Print what each member says of what somebody may do, and by which rule.
    #[command(after_help = help::CAN_I)]
    CanI(can_i::CanI),
    /// Explain what members allow and deny.
    Auth(explain::Auth),
    /// Remove the placement marker from every object in the members, to stop using kubefold.
    #[command(after_help = help::RELEASE)]
    Release(release::Release),
    /// Move what kubefold keeps in its state directory into a database.
    #[command(subcommand)]
    State(state::State),
    /// Join a cluster: make kubefold's two identities in it, and add it to clusters.yaml.
    #[command(after_help = help::JOIN)]
    Join(join::Join),
    /// Take a cluster out again: remove it from clusters.yaml, and kubefold's identities from it.
    #[command(after_help = help::UNJOIN)]
    Unjoin(join::Unjoin),
    /// Serve groups of the fleet behind the aggregation layer of a host cluster.
    Aggregation(Box<aggregation::HostFlags>),
    /// Write a clusters.yaml from the contexts of a kubeconfig.
    #[command(after_help = help::INIT)]
    Init(init::Init),
    /// Print a shell completion script.
    #[command(after_help = help::COMPLETION)]
    Completion(Completion),
    /// Print the version of this program, and the commit that it was built of.
    Version(version::Version),
    /// Write a manual page for every command into a directory.
    #[command(after_help = help::MAN)]
    Man(Man),
}

#[derive(Debug, clap::Args)]
struct Serve {
    /// The clusters.yaml with the members; read again whenever it changes.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    serving: serving::ServingFlags,
    #[command(flatten)]
    database: state::DatabaseFlags,
    /// The key that encrypts unfinished writes on disk: 32 random bytes in base64. Default: state.key in the state directory,
    /// which kubefold makes. Keep it elsewhere, such as in a mounted Secret, so that a copy of the directory is of no use alone.
    #[arg(long, value_name = "FILE")]
    state_key_file: Option<PathBuf>,
    /// Where other replicas reach this one, for those that wait and hand requests on to it: HOST:PORT. Default: the address
    /// listened on, unless that stands for all addresses.
    #[arg(long, value_name = "HOST:PORT", requires = "state_key_file")]
    advertise: Option<Advertised>,
    /// How fresh reads without a revision are. `strict` asks each member, at each read, for metadata of the objects.
    #[arg(long, value_enum, default_value_t = FreshnessFlag::Watched)]
    freshness: FreshnessFlag,
    /// The memory for objects of members, such as 8Gi: once they take it, a kind that nobody has read yet is refused with 503.
    /// Default: three quarters of the memory that the process may use.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    store_memory_max: Option<u64>,
}

#[derive(Debug, clap::Args)]
struct Completion {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, clap::Args)]
struct Man {
    /// The directory, which must exist.
    #[arg(value_name = "DIR")]
    to: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Powershell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FreshnessFlag {
    Watched,
    Strict,
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    match completion::answer() {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => {
            drop(error.print());
            return ExitCode::FAILURE;
        }
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are results; everything else is wrong usage.
            let code = if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
            drop(error.print());
            return code;
        }
    };
    paint::choose(cli.color);
    let result = match cli.command {
        #[cfg(feature = "demo")]
        Command::Demo(flags) => demo::run(flags),
        Command::Bench(flags) => bench::run(*flags),
        Command::Serve(flags) => serve(*flags),
        #[cfg(feature = "apiserver")]
        Command::ApiServer(flags) => apiserver::run(flags),
        Command::Rewrite(flags) => rewrite::run(&flags),
        Command::Kubeconfig(flags) => kubeconfig::run(&flags),
        Command::Revoke(flags) => revoke::run(&flags),
        Command::Login(flags) => login::run(&flags),
        Command::Logout(flags) => flags.run(),
        Command::Status(flags) => status::print(&flags),
        Command::Top(flags) => top::run(&flags),
        Command::Plan(flags) => plan::print(&flags),
        Command::Diff(flags) => return diff::run(&flags),
        Command::Search(flags) => search::run(&flags),
        Command::Ui(flags) => ui::run(&flags),
        Command::Events(flags) => events::run(&flags),
        Command::Cordon(flags) => flags.run(Verb::Cordon),
        Command::Uncordon(flags) => flags.run(Verb::Uncordon),
        Command::Drain(flags) => flags.run(),
        Command::Rebalance(flags) => flags.run(),
        Command::Extend(flags) => flags.run(),
        Command::Adopt(flags) => flags.run(),
        Command::Forget(flags) => flags.run(),
        Command::Moves(flags) => flags.print(),
        Command::CanI(flags) => can_i::print(&flags),
        Command::Auth(flags) => explain::run(&flags),
        Command::Doctor(flags) => doctor::run(&flags),
        Command::Release(flags) => release::run(&flags),
        Command::State(command) => state::run(command),
        Command::Join(flags) => join::join(&flags),
        Command::Unjoin(flags) => join::unjoin(&flags),
        Command::Aggregation(flags) => aggregation::run(&flags),
        Command::Init(flags) => init::run(&flags),
        Command::Completion(flags) => {
            completion::script(flags.shell).context("cannot make the script").and_then(|script| print(&script))
        }
        Command::Version(flags) => version::run(&flags),
        Command::Man(flags) => man(&flags.to),
    };
    ended(result, EXIT_FAILED)
}

/// Says why a command failed, and gives its exit code: `failed`, unless what was given is wrong.
fn ended(result: anyhow::Result<()>, failed: u8) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // As a program that SIGPIPE ends: whoever reads has enough.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(if is_misused(&error) { EXIT_USAGE } else { failed })
        }
    }
}

fn serve(flags: Serve) -> anyhow::Result<()> {
    flags.serving.start_log();
    let state_ca = flags.database.authority();
    let state = flags.database.source();
    let has_replicas = state.is_some() && flags.state_key_file.is_some();
    let options = app::Options {
        config: flags.config,
        serving: ServingOptions { has_replicas, ..flags.serving.options() },
        state,
        state_ca,
        state_key_file: flags.state_key_file,
        advertise: flags.advertise,
        freshness: match flags.freshness {
            FreshnessFlag::Watched => Freshness::Watched,
            FreshnessFlag::Strict => Freshness::Strict,
        },
        store_bytes_max: flags.store_memory_max,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(app::run(options))
}

/// Writes a command's result.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Tells a person on standard error what is no result. Whether anybody reads it changes nothing.
fn say(text: &str) {
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// One page for each command, those that stand for others included.
fn man(to: &Path) -> anyhow::Result<()> {
    let root = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(root, to).with_context(|| format!("cannot write manual pages into {}", to.display()))
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io =
        |cause: &(dyn std::error::Error + 'static)| cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    error.chain().any(|cause| io(cause) == Some(std::io::ErrorKind::BrokenPipe))
}

/// Says whether flags or files that were given are at fault.
fn is_misused(error: &anyhow::Error) -> bool {
    let is_given = |cause: &(dyn std::error::Error + 'static)| {
        let is_of_key = cause.downcast_ref::<JournalOpenError>().is_some_and(JournalOpenError::is_of_key);
        is_of_key
            || cause.is::<ConfigError>()
            || cause.is::<TlsError>()
            || cause.is::<AdvertiseError>()
            || cause.is::<AuthnError>()
            || cause.is::<AuditError>()
            || cause.is::<bench::PlanError>()
            || cause.downcast_ref::<StateOpenError>().is_some_and(StateOpenError::is_given)
            || cause.downcast_ref::<app::StateMoveError>().is_some_and(app::StateMoveError::is_given)
            || is_of_storage(cause)
    };
    error.chain().any(is_given)
}

#[cfg(feature = "apiserver")]
fn is_of_storage(cause: &(dyn std::error::Error + 'static)) -> bool {
    let of_move = cause.downcast_ref::<app::apiserver::MoveError>().is_some_and(app::apiserver::MoveError::is_given);
    of_move
        || cause
            .downcast_ref::<app::apiserver::StorageOpenError>()
            .is_some_and(app::apiserver::StorageOpenError::is_given)
}

#[cfg(not(feature = "apiserver"))]
fn is_of_storage(_: &(dyn std::error::Error + 'static)) -> bool {
    false
}

/// Each room's errors already name their cause; a context of ours stands before it.
#[allow(clippy::print_stderr, reason = "this is where a failed command says why")]
fn complain(error: &anyhow::Error) {
    let contexts: Vec<String> = error.chain().map(ToString::to_string).collect();
    let mut sentence = String::new();
    for text in contexts {
        if !sentence.contains(&text) {
            sentence = if sentence.is_empty() { text } else { format!("{sentence}: {text}") };
        }
    }
    eprintln!("kubefold: {sentence}");
}

/// A quantity of bytes.
fn size(text: &str) -> Result<u64, FlagError> {
    let bytes = Quantity::parse(text).map_err(|_| FlagError::Size)?.value();
    u64::try_from(bytes).ok().filter(|bytes| *bytes > 0).ok_or(FlagError::Size)
}

/// A DNS name, its first label perhaps a `*`, or an IP address.
fn server_name(text: &str) -> Result<String, FlagError> {
    let fixed = text.strip_prefix("*.").unwrap_or(text);
    match rustls::pki_types::ServerName::try_from(fixed) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(FlagError::ServerName),
    }
}

fn https_url(text: &str) -> Result<Uri, FlagError> {
    let url: Uri = text.parse()?;
    let sound = url.scheme_str() == Some("https") && url.query().is_none() && url.authority().is_some();
    if sound { Ok(url) } else { Err(FlagError::HttpsUrl) }
}

/// What is wrong with the value of a flag, and how to write it.
#[derive(Debug, thiserror::Error)]
enum FlagError {
    #[error("write a DNS name or an IP address")]
    ServerName,
    #[error("write it as https://host:port")]
    HttpsUrl,
    #[error("write a size such as 8Gi or 512Mi")]
    Size,
    #[error(transparent)]
    Url(#[from] http::uri::InvalidUri),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{serving::Format, *};

    #[test]
    fn the_flags_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_is_deployed_is_started_with_flags_that_exist() {
        let unit = include_str!("../../deploy/kubefold.service");
        let started = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let pod = include_str!("../../deploy/kustomize/base/deployment.yaml");
        let (_, args) = pod.split_once("args:\n").unwrap();
        let args = args.lines().map_while(|line| line.trim().strip_prefix("- ")).collect::<Vec<_>>().join(" ");
        let overlay = include_str!("../../deploy/kustomize/overlays/replicas/kustomization.yaml");
        let more = overlay
            .lines()
            .filter_map(|line| line.trim().strip_prefix("value: "))
            .filter(|value| value.starts_with("--"));
        let more = more.collect::<Vec<_>>().join(" ").replace("$(POD_IP)", "fd00::7");
        assert!(more.contains("--advertise=fd00::7:6443"), "{more}");
        for line in [started.to_owned(), format!("kubefold {args}"), format!("kubefold {args} {more}")] {
            let cli = Cli::try_parse_from(line.split_whitespace()).unwrap_or_else(|error| panic!("{line}: {error}"));
            let Command::Serve(serve) = cli.command else { panic!("{line}") };
            assert!(matches!(serve.serving.log_format, Format::Json), "{line}");
        }
    }

    #[test]
    fn defaults_and_pairs() {
        let serve = ["kubefold", "serve", "--config", "c", "--state-dir", "s"];
        let cli = Cli::try_parse_from(serve).unwrap();
        let Command::Serve(flags) = cli.command else { panic!("serve") };
        assert_eq!(flags.serving.listen.to_string(), "127.0.0.1:6443");
        for extra in
            [["--tls-cert-file", "x"], ["--tls-key-file", "x"], ["--external-url", "http://x"], ["--tls-san", "a b"]]
        {
            assert!(Cli::try_parse_from(serve.into_iter().chain(extra)).is_err(), "{extra:?}");
        }
        for extra in [["--external-url", "https://x:1"], ["--tls-san", "*.x.example"], ["--tls-san", "::1"]] {
            assert!(Cli::try_parse_from(serve.into_iter().chain(extra)).is_ok(), "{extra:?}");
        }
    }
}
