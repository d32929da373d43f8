//! How names, keys and numbers may be spelled, and the sentences in which Kubernetes refuses others.
//!
//! Source: kubernetes/apimachinery `pkg/util/validation/validation.go`, `pkg/api/validate/content`.

type Wrong = Vec<String>;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                     and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                         must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
                         is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
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

pub(in crate::kinds) const PORT: &str = "must be between 1 and 65535, inclusive";
pub(in crate::kinds) const NEGATIVE: &str = "must be greater than or equal to 0";
pub(in crate::kinds) const IMMUTABLE: &str = "field is immutable";

fn bytes_max(most: usize) -> String {
    format!("must be no more than {most} bytes")
}

/// Of names; labels are measured in bytes. So the two libraries of Kubernetes say it.
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

pub(in crate::kinds) fn dns_label(text: &str) -> Wrong {
    let sentence = if looks_like_subdomain(text) { "must not contain dots" } else { LABEL };
    check(text, 63, looks_like_label(text), sentence)
}

pub(in crate::kinds) fn dns_subdomain(text: &str) -> Wrong {
    check(text, 253, looks_like_subdomain(text), SUBDOMAIN)
}

pub(in crate::kinds) fn wildcard_subdomain(text: &str) -> Wrong {
    check(text, 253, text.strip_prefix("*.").is_some_and(looks_like_subdomain), WILDCARD)
}

/// What is wrong with a label's key, a resource's name and the like.
pub(in crate::kinds) fn qualified_name(text: &str) -> Wrong {
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
            let long = (prefix.len() > 253).then(|| bytes_max(253));
            let odd = (!looks_like_subdomain(prefix)).then(|| SUBDOMAIN.to_owned());
            wrong.extend(long.into_iter().chain(odd).map(|why| format!("prefix part {why}")));
            name
        }
        None => text,
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        wrong.push(format!("name part {}", bytes_max(63)));
    }
    if !looks_like_key(name) {
        wrong.push(format!("name part {KEY}"));
    }
    wrong
}

pub(in crate::kinds) fn label_value(text: &str) -> Wrong {
    let long = (text.len() > 63).then(|| bytes_max(63));
    let fits = text.is_empty() || looks_like_key(text);
    long.into_iter().chain((!fits).then(|| VALUE.to_owned())).collect()
}

/// A name that stands in a URL: RBAC's names may be nearly anything.
pub(in crate::kinds) fn path_segment(text: &str) -> Wrong {
    match text {
        "." | ".." => return vec![format!("may not be '{text}'")],
        _ => {}
    }
    let odd = ['/', '%'].into_iter().filter(|odd| text.contains(*odd));
    odd.map(|odd| format!("may not contain '{odd}'")).collect()
}

/// A key of a ConfigMap or Secret.
pub(in crate::kinds) fn data_key(text: &str) -> Wrong {
    let fits = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let mut wrong = check(text, 253, fits, DATA_KEY);
    match text {
        "." => wrong.push("must not be '.'".to_owned()),
        ".." => wrong.push("must not be '..'".to_owned()),
        text if text.starts_with("..") => wrong.push("must not start with '..'".to_owned()),
        _ => {}
    }
    wrong
}

pub(in crate::kinds) fn port_name(text: &str) -> Wrong {
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

pub(in crate::kinds) fn environment_name(text: &str) -> Wrong {
    let odd = |c: char| !(c.is_ascii_graphic() || c == ' ') || c == '=';
    if text.contains(odd) { vec![ENVIRONMENT.to_owned()] } else { Vec::new() }
}

pub(in crate::kinds) fn header_name(text: &str) -> Wrong {
    let fits = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if fits { Vec::new() } else { vec![HEADER.to_owned()] }
}

pub(in crate::kinds) fn percent(text: &str) -> Wrong {
    let digits = text.strip_suffix('%');
    let fits = digits.is_some_and(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()));
    if fits { Vec::new() } else { vec![PERCENT.to_owned()] }
}

/// What stands before the letters of a generated name: the dash at its end is none of the name's.
pub(in crate::kinds) fn masked(prefix: &str) -> String {
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
}
