//! The flags of the audit log: a kube-apiserver's, with defaults that keep a disk from filling.

use std::{path::PathBuf, time::Duration};

use crate::serve::AuditOptions;
use kubefold_serving::{audit::LogFile, network::Network};

const DAY: Duration = Duration::from_hours(24);

#[derive(Debug, clap::Args)]
pub(super) struct AuditFlags {
    /// A file for one line of JSON (audit.k8s.io/v1) for each request; `-` is standard output. Default: none is written.
    #[arg(long, value_name = "FILE")]
    audit_log_path: Option<PathBuf>,
    /// The size of that file at which it is set aside and a new one begun. Units: megabytes.
    #[arg(long, value_name = "MB", default_value_t = 100, requires = "audit_log_path", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    audit_log_maxsize: u64,
    /// How many files set aside are kept; 0 is all.
    #[arg(long, value_name = "N", default_value_t = 10, requires = "audit_log_path")]
    audit_log_maxbackup: usize,
    /// How many days files set aside are kept; 0 is for ever.
    #[arg(long, value_name = "DAYS", default_value_t = 0, requires = "audit_log_path")]
    audit_log_maxage: u32,
    /// Which requests are in the audit log: a Policy of audit.k8s.io/v1 with the levels None and Metadata. Followed.
    /// Default: all but probes of health.
    #[arg(long, value_name = "FILE", requires = "audit_log_path")]
    audit_policy_file: Option<PathBuf>,
    /// A network of proxies whose X-Forwarded-For the audit log believes, such as 10.0.0.0/8; may be repeated.
    #[arg(long, value_name = "NETWORK", requires = "audit_log_path")]
    trusted_proxy: Vec<Network>,
}

impl AuditFlags {
    /// `None`: there is no audit log.
    pub(super) fn options(self) -> Option<AuditOptions> {
        let file = LogFile {
            path: self.audit_log_path?,
            bytes_max: self.audit_log_maxsize << 20,
            backups_max: self.audit_log_maxbackup,
            age_max: (self.audit_log_maxage > 0).then(|| DAY * self.audit_log_maxage),
        };
        Some(AuditOptions { file, policy: self.audit_policy_file, proxies: self.trusted_proxy })
    }
}
