//! When the certificates end that kubefold serves with and believes in, for whoever watches metrics.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet},
    metrics::MetricType,
    registry::{Registry as Exported, Unit},
};
use rustls::pki_types::{CertificateDer, pem::PemObject};

/// The ends of certificates in use, in Unix seconds.
#[derive(Clone, Debug, Default)]
pub struct Expiries(Arc<Mutex<BTreeMap<&'static str, u64>>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    certificate: &'static str,
}

impl Expiries {
    /// Registers them.
    pub fn register(&self, exported: &mut Exported) {
        exported.register_collector(Box::new(self.clone()));
    }

    /// Takes what is in use from here on: the chain that is served is good until one of its certificates ends, and a bundle
    /// of authorities as long as one of them is.
    pub fn set(&self, serving: &str, bundles: &[(&'static str, &str)]) {
        let first = ends_s(serving).into_iter().min().map(|end| ("serving", end));
        let last = |(name, bundle): &(&'static str, &str)| Some((*name, ends_s(bundle).into_iter().max()?));
        *self.0.lock() = first.into_iter().chain(bundles.iter().filter_map(last)).collect();
    }
}

impl Collector for Expiries {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let help = "When a certificate in use ends, in Unix time";
        let mut gauges = encoder.encode_descriptor("expiry", help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for (certificate, end) in self.0.lock().iter() {
            let end = i64::try_from(*end).unwrap_or(i64::MAX);
            gauges.encode_family(&Of { certificate })?.encode_gauge(&end)?;
        }
        Ok(())
    }
}

/// The ends of the certificates in some PEM.
fn ends_s(pem: &str) -> Vec<u64> {
    let end = |certificate: CertificateDer<'static>| {
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).ok()?;
        u64::try_from(parsed.validity().not_after.timestamp()).ok()
    };
    CertificateDer::pem_slice_iter(pem.as_bytes()).flatten().filter_map(end).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn until(year: i32) -> String {
        let mut params = CertificateParams::default();
        params.not_after = date_time_ymd(year, 1, 1);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn a_chain_ends_with_its_first_and_a_bundle_with_its_last() {
        let expiries = Expiries::default();
        let both = until(2030) + &until(2100);
        expiries.set(&both, &[("client_ca", &both), ("none", "")]);
        let mut registry = Exported::with_prefix("kubefold");
        expiries.register(registry.sub_registry_with_prefix("certificate"));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let of = |name: &str| text.lines().find(|line| line.contains(&format!("{{certificate=\"{name}\"}}")));
        assert_eq!(of("serving"), Some("kubefold_certificate_expiry_seconds{certificate=\"serving\"} 1893456000"));
        assert_eq!(of("client_ca"), Some("kubefold_certificate_expiry_seconds{certificate=\"client_ca\"} 4102444800"));
        assert_eq!(of("none"), None);
    }
}
