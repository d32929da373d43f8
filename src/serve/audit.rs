//! The audit log as the operator configures it: a file, a policy that is followed, and proxies that are believed.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter},
    registry::Registry,
};

use kubefold_serving::{
    audit::{AuditLog, AuditLogError, LogFile, LogWriter, Policy, PolicyError},
    network::Network,
};

/// What the operator says about the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditOptions {
    /// Where events go.
    pub file: LogFile,
    /// Which requests are logged; every one but probes where it is absent.
    pub policy: Option<PathBuf>,
    /// Proxies whose `X-Forwarded-For` counts.
    pub proxies: Vec<Network>,
}

/// Why there is no audit log.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum AuditError {
    #[error("--audit-policy-file {}: cannot be read ({source}); check the path and its permissions", .path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("--audit-policy-file {}: {source}", .path.display())]
    Policy { path: PathBuf, source: PolicyError },
    #[error("--audit-log-path: {0}")]
    File(#[from] AuditLogError),
}

/// The audit log, and its policy.
#[derive(Clone)]
pub struct Auditing {
    log: Arc<AuditLog>,
    policy: Option<PathBuf>,
    text: Arc<Mutex<Option<String>>>,
}

impl Auditing {
    /// Opens the log; its writer is to be run on a thread of its own.
    ///
    /// Errors: the policy or the file cannot be used. Blocks.
    pub fn open(options: AuditOptions) -> Result<(Self, LogWriter), AuditError> {
        let AuditOptions { file, policy, proxies } = options;
        let text = policy.as_deref().map(read).transpose()?;
        let parsed = policy.as_deref().zip(text.as_ref()).map(|(path, text)| parse(path, text)).transpose()?;
        let (log, writer) = AuditLog::open(file, parsed.unwrap_or_default(), proxies)?;
        Ok((Self { log, policy, text: Arc::new(Mutex::new(text)) }, writer))
    }

    /// Where events go.
    pub fn log(&self) -> Arc<AuditLog> {
        Arc::clone(&self.log)
    }

    /// Reads the policy again. Says whether it has changed.
    ///
    /// Errors: it cannot be used; nothing changes then. Blocks.
    pub fn reload(&self) -> Result<bool, AuditError> {
        let Some(path) = &self.policy else { return Ok(false) };
        let text = read(path)?;
        if self.text.lock().as_ref() == Some(&text) {
            return Ok(false);
        }
        self.log.set_policy(parse(path, &text)?);
        *self.text.lock() = Some(text);
        Ok(true)
    }

    /// Registers what is counted about it.
    pub fn register(&self, exported: &mut Registry) {
        exported.register_collector(Box::new(Counted(self.log())));
    }
}

fn read(path: &Path) -> Result<String, AuditError> {
    fs::read_to_string(path).map_err(|source| AuditError::Unreadable { path: path.to_path_buf(), source })
}

fn parse(path: &Path, text: &str) -> Result<Policy, AuditError> {
    Policy::parse(text).map_err(|source| AuditError::Policy { path: path.to_path_buf(), source })
}

#[derive(Debug)]
struct Counted(Arc<AuditLog>);

impl Collector for Counted {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.0.counts();
        for (name, help, count) in [
            ("events", "Events that were written to the audit log", counts.written()),
            ("lost_events", "Events of reads that were not written, because too many waited", counts.lost()),
            ("write_errors", "Failed tries to write to the audit log", counts.errors()),
        ] {
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(count).encode(encoder)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_followed_and_a_broken_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let [path, policy] = ["audit.log", "policy.yaml"].map(|file| folder.path().join(file));
        let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
        fs::write(&policy, format!("{head}rules: [{{level: Metadata}}]\n")).unwrap();
        let file = LogFile { path, bytes_max: 1 << 20, backups_max: 1, age_max: None };
        let options = AuditOptions { file, policy: Some(policy.clone()), proxies: Vec::new() };
        let (auditing, _writer) = Auditing::open(options.clone()).unwrap();
        assert!(!auditing.reload().unwrap());
        fs::write(&policy, format!("{head}rules: [{{level: None}}]\n")).unwrap();
        assert!(auditing.reload().unwrap() && !auditing.reload().unwrap());
        fs::write(&policy, "rules: [").unwrap();
        let error = auditing.reload().unwrap_err().to_string();
        assert!(error.contains("policy.yaml: the audit policy cannot be read"), "{error}");
        assert!(Auditing::open(options).is_err());
    }
}
