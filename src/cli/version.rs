//! `kubefold version`: which build this is.

use serde::Serialize;

use crate::cli::client::Output;

/// What `kubefold version` is told on its command line.
#[derive(Debug, clap::Args)]
pub(super) struct Version {
    /// The format. Default: one line.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Output>,
}

/// Which build this is.
#[derive(Debug, Serialize)]
struct Build {
    version: &'static str,
    /// The commit that it was built of, if whoever built it said so (`KUBEFOLD_COMMIT`), as `scripts/package` does.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
    /// Such as `x86_64-linux`.
    platform: String,
}

impl Build {
    fn of_this() -> Self {
        let platform = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
        Self { version: env!("CARGO_PKG_VERSION"), commit: option_env!("KUBEFOLD_COMMIT"), platform }
    }

    fn line(&self) -> String {
        let commit = self.commit.map(|commit| format!(" (commit {commit})")).unwrap_or_default();
        format!("kubefold {}{commit} {}\n", self.version, self.platform)
    }
}

/// Prints it.
pub(super) fn run(flags: &Version) -> anyhow::Result<()> {
    let build = Build::of_this();
    let text = match flags.output {
        None => build.line(),
        Some(output) => output.text(&build)?,
    };
    super::print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_says_its_version_and_its_commit_where_it_knows_it() {
        let build = Build { commit: None, platform: "x-linux".to_owned(), ..Build::of_this() };
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(build.line(), format!("kubefold {version} x-linux\n"));
        let build = Build { commit: Some("abc1234"), ..build };
        assert_eq!(build.line(), format!("kubefold {version} (commit abc1234) x-linux\n"));
        let json: serde_json::Value = serde_json::from_str(&Output::Json.text(&build).unwrap()).unwrap();
        assert_eq!(json, serde_json::json!({"version": version, "commit": "abc1234", "platform": "x-linux"}));
    }
}
