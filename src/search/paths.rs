//! Clusterpedia's paths.
//!
//! Source: Clusterpedia `pkg/apiserver/registry/clusterpedia`.

/// The group of Clusterpedia's API.
pub const GROUP: &str = "clusterpedia.io";
/// Its version.
pub const VERSION: &str = "v1beta1";
/// What stands before all of its paths.
const PREFIX: &str = "/apis/clusterpedia.io/v1beta1/";

/// What a path below Clusterpedia's group asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathOf {
    /// The API of all members together, or of one.
    Resources {
        /// The one.
        cluster: Option<String>,
        /// The path in that API, with its slash.
        rest: String,
    },
    /// All collections, or one.
    Collections(
        /// Its name.
        Option<String>,
    ),
}

impl PathOf {
    /// Reads a path. `None`: it is none of these.
    pub fn read(path: &str) -> Option<Self> {
        let rest = path.strip_prefix(PREFIX)?.trim_end_matches('/');
        let (resource, rest) = rest.split_once('/').unwrap_or((rest, ""));
        match (resource, rest) {
            ("collectionresources", "") => Some(Self::Collections(None)),
            ("collectionresources", name) => (!name.contains('/')).then(|| Self::Collections(Some(name.to_owned()))),
            ("resources", rest) => {
                let (cluster, rest) = match rest.strip_prefix("clusters/") {
                    Some(rest) => {
                        let (cluster, rest) = rest.split_once('/').unwrap_or((rest, ""));
                        (Some(cluster.to_owned()), rest)
                    }
                    None => (None, rest),
                };
                Some(Self::Resources { cluster, rest: format!("/{rest}") })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_all_members_or_to_one() {
        let all = |rest: &str| Some(PathOf::Resources { cluster: None, rest: rest.into() });
        let one = |rest: &str| Some(PathOf::Resources { cluster: Some("east".into()), rest: rest.into() });
        for (path, expected) in [
            ("resources", all("/")),
            ("resources/api", all("/api")),
            ("resources/apis/", all("/apis")),
            ("resources/apis/apps/v1/namespaces/a/deployments", all("/apis/apps/v1/namespaces/a/deployments")),
            ("resources/clusters/east", one("/")),
            ("resources/clusters/east/api/v1/pods", one("/api/v1/pods")),
            ("collectionresources", Some(PathOf::Collections(None))),
            ("collectionresources/any", Some(PathOf::Collections(Some("any".into())))),
            ("collectionresources/any/status", None),
            ("", None),
            ("other", None),
        ] {
            assert_eq!(PathOf::read(&format!("{PREFIX}{path}")), expected, "{path}");
        }
        assert_eq!(PathOf::read("/apis/clusterpedia.io/v1beta1"), None);
    }
}
