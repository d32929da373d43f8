//! How names, labels and keys may be spelled, and the sentences in which Kubernetes refuses others.
//!
//! Source: kubernetes/apimachinery `pkg/util/validation/validation.go`, `pkg/api/validate/content`,
//! `pkg/api/validation/name.go`.

/// What is wrong with a text, a sentence each; empty if nothing is.
type Wrong = Vec<String>;

const LABEL_BYTES_MAX: usize = 63;
const SUBDOMAIN_BYTES_MAX: usize = 253;
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                     and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                         must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
                         is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                          alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', \
                          regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must \
                        consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character \
                        (e.g. '*.example.com', regex used for validation is \
                        '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                   character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                   '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                     start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                     for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const DATA_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                        'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                       regex used for validation is '[0-9]+%')";
const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used \
                      for validation is '[-A-Za-z0-9]+')";
const ENVIRONMENT: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";

/// How the names of a kind's objects may be spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// A DNS subdomain: most kinds.
    Subdomain,
    /// A DNS label, such as a namespace.
    Label,
    /// A DNS label that begins with a letter, such as a service.
    Label1035,
    /// Whatever can stand in a path: RBAC's names may be nearly anything.
    PathSegment,
}

impl NameRule {
    /// What is wrong with a name.
    pub fn wrong(self, name: &str) -> Vec<String> {
        match self {
            Self::Subdomain => dns_subdomain(name),
            Self::Label => dns_label(name),
            Self::Label1035 => dns1035_label(name),
            Self::PathSegment => path_segment(name),
        }
    }

    /// What is wrong with the beginning of a name that is to be generated.
    pub fn wrong_prefix(self, prefix: &str) -> Vec<String> {
        if self == Self::PathSegment { path_segment_prefix(prefix) } else { self.wrong(&masked(prefix)) }
    }
}

fn bytes_max(most: usize) -> String {
    format!("must be no more than {most} bytes")
}

/// Kubernetes has two libraries: the one for names counts characters in its sentence, the one for labels counts bytes.
fn characters_max(most: usize) -> String {
    format!("must be no more than {most} characters")
}

fn is_lower(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn looks_like_label(text: &str) -> bool {
    text.starts_with(is_lower) && text.ends_with(is_lower) && text.chars().all(|c| is_lower(c) || c == '-')
}

fn looks_like_subdomain(text: &str) -> bool {
    text.split('.').all(looks_like_label)
}

fn looks_like_key(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn check(text: &str, most: usize, fits: bool, sentence: &str) -> Wrong {
    let long = (text.len() > most).then(|| characters_max(most));
    long.into_iter().chain((!fits).then(|| sentence.to_owned())).collect()
}

/// What is wrong with a DNS label (RFC 1123).
pub fn dns_label(text: &str) -> Wrong {
    let sentence = if looks_like_subdomain(text) { "must not contain dots" } else { LABEL };
    check(text, LABEL_BYTES_MAX, looks_like_label(text), sentence)
}

/// Says whether a text is a DNS label (RFC 1123).
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= LABEL_BYTES_MAX && looks_like_label(text)
}

/// What is wrong with a DNS label that begins with a letter (RFC 1035).
pub fn dns1035_label(text: &str) -> Wrong {
    let fits = looks_like_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase());
    check(text, LABEL_BYTES_MAX, fits, LABEL_1035)
}

/// What is wrong with a DNS subdomain. Its parts may have any length: only the whole is bounded.
pub fn dns_subdomain(text: &str) -> Wrong {
    check(text, SUBDOMAIN_BYTES_MAX, looks_like_subdomain(text), SUBDOMAIN)
}

/// Says whether a text is a DNS subdomain.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN_BYTES_MAX && looks_like_subdomain(text)
}

/// What is wrong with a DNS subdomain behind `*.`.
pub fn wildcard_subdomain(text: &str) -> Wrong {
    check(text, SUBDOMAIN_BYTES_MAX, text.strip_prefix("*.").is_some_and(looks_like_subdomain), WILDCARD)
}

/// What is wrong with the key of a label, or of an annotation in lower case, with the name of a finalizer or of a resource.
pub fn qualified_name(text: &str) -> Wrong {
    let mut wrong = Vec::new();
    let name = match text.split_once('/') {
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!(
                "a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some(("", name)) => {
            wrong.push("prefix part must be non-empty".to_owned());
            name
        }
        Some((prefix, name)) => {
            let long = (prefix.len() > SUBDOMAIN_BYTES_MAX).then(|| bytes_max(SUBDOMAIN_BYTES_MAX));
            let odd = (!looks_like_subdomain(prefix)).then(|| SUBDOMAIN.to_owned());
            wrong.extend(long.into_iter().chain(odd).map(|why| format!("prefix part {why}")));
            name
        }
        None => text,
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_BYTES_MAX {
        wrong.push(format!("name part {}", bytes_max(LABEL_BYTES_MAX)));
    }
    if !looks_like_key(name) {
        wrong.push(format!("name part {KEY}"));
    }
    wrong
}

/// What is wrong with a label's value.
pub fn label_value(text: &str) -> Wrong {
    let long = (text.len() > LABEL_BYTES_MAX).then(|| bytes_max(LABEL_BYTES_MAX));
    let fits = text.is_empty() || looks_like_key(text);
    long.into_iter().chain((!fits).then(|| VALUE.to_owned())).collect()
}

/// What is wrong with a name that stands in a path.
pub fn path_segment(text: &str) -> Wrong {
    match text {
        "." | ".." => vec![format!("may not be '{text}'")],
        _ => path_segment_prefix(text),
    }
}

fn path_segment_prefix(text: &str) -> Wrong {
    let odd = ['/', '%'].into_iter().filter(|odd| text.contains(*odd));
    odd.map(|odd| format!("may not contain '{odd}'")).collect()
}

/// What is wrong with a key of a ConfigMap or Secret.
pub fn config_key(text: &str) -> Wrong {
    let fits = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let mut wrong = check(text, SUBDOMAIN_BYTES_MAX, fits, DATA_KEY);
    match text {
        "." => wrong.push("must not be '.'".to_owned()),
        ".." => wrong.push("must not be '..'".to_owned()),
        text if text.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

/// What is wrong with a port's name.
pub fn port_name(text: &str) -> Wrong {
    let mut wrong = Vec::new();
    if text.len() > 15 {
        wrong.push(characters_max(15));
    }
    if text.is_empty() || !text.chars().all(|c| is_lower(c) || c == '-') {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.contains(|c: char| c.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        wrong.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".to_owned());
    }
    wrong
}

/// What is wrong with the name of an environment variable.
pub fn environment_name(text: &str) -> Wrong {
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    let odd = |c: char| !(c.is_ascii_graphic() || c == ' ') || c == '=';
    if text.contains(odd) { vec![ENVIRONMENT.to_owned()] } else { Vec::new() }
}

/// What is wrong with the name of an HTTP header.
pub fn header_name(text: &str) -> Wrong {
    let fits = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if fits { Vec::new() } else { vec![HEADER.to_owned()] }
}

/// What is wrong with a percentage such as `25%`.
pub fn percent(text: &str) -> Wrong {
    let digits = text.strip_suffix('%');
    let fits = digits.is_some_and(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()));
    if fits { Vec::new() } else { vec![PERCENT.to_owned()] }
}

/// The beginning of a generated name, with a letter in place of the dash at its end and of what precedes the dash.
///
/// Source: `maskTrailingDash`.
pub fn masked(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let kept = rest.char_indices().next_back().map_or("", |(last, _)| rest.get(..last).unwrap_or(""));
            format!("{kept}a")
        }
        _ => prefix.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_refused_for_what_is_wrong_with_them() {
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns_label("A").len(), 1);
        assert_eq!(dns_label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(dns_subdomain("a..b").len(), 1);
        assert_eq!(qualified_name("a/b/c").len(), 1);
        assert_eq!(qualified_name("/b"), ["prefix part must be non-empty"]);
        assert_eq!(qualified_name("").len(), 2);
        assert_eq!(port_name("-").len(), 2);
        assert_eq!((masked("web-").as_str(), masked("-").as_str(), masked("web").as_str()), ("wea", "-", "web"));
        assert!(qualified_name("kubernetes.io/os").is_empty() && label_value("").is_empty());
    }

    /// Source: apimachinery: `validation.go` counts characters, `content/errors.go` counts bytes; `maskTrailingDash` drops
    /// two characters; a subdomain's part is not bounded by itself; a path segment's prefix may be a dot.
    #[test]
    fn where_copies_differed() {
        let long = "a".repeat(64);
        assert_eq!(dns_subdomain(&"a".repeat(254)), ["must be no more than 253 characters"]);
        assert_eq!(dns1035_label(&long), ["must be no more than 63 characters"]);
        assert_eq!(label_value(&long), ["must be no more than 63 bytes"]);
        assert_eq!(qualified_name(&format!("{}/a", "a".repeat(254))), ["prefix part must be no more than 253 bytes"]);
        assert!(qualified_name(&format!("{long}.example.com/a")).is_empty() && is_dns_subdomain(&long));
        assert!(
            NameRule::Subdomain.wrong_prefix("ab_-").is_empty() && !NameRule::Subdomain.wrong_prefix("a_b-").is_empty()
        );
        assert!(NameRule::Label.wrong_prefix(&format!("{}-", "a".repeat(63))).is_empty());
        assert!(NameRule::PathSegment.wrong_prefix(".").is_empty() && !NameRule::PathSegment.wrong(".").is_empty());
        assert_eq!(NameRule::PathSegment.wrong_prefix("a/-"), ["may not contain '/'"]);
        assert!(!NameRule::Label1035.wrong("1a").is_empty() && NameRule::Label.wrong("1a").is_empty());
        assert!(is_dns_label("a-1") && !is_dns_label("a-") && !is_dns_label("") && !is_dns_label(&long));
        assert_eq!(environment_name(""), ["environment variable name must be non-empty"]);
    }
}
