//! The functions and operators that expressions may call, by the types of what they take.
//!
//! Source: google/cel-go `common/stdlib/standard.go`, `cel/library.go`, `ext/{strings,lists,sets,comprehensions}.go`; kubernetes/apiserver
//! `pkg/cel/library/`, `pkg/cel/environment/base.go`.

use std::{collections::HashMap, sync::LazyLock};

use super::{
    library::{AUTHORIZER, DECISION, GROUP_CHECK, PATH_CHECK, RESOURCE_CHECK},
    types::{Fields, Type},
};

/// What can be ordered.
const ORDERED: [&str; 8] = ["int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes"];
/// Types of numbers, which are compared across types.
const NUMBERS: [&str; 3] = ["int", "uint", "double"];

/// One way to call a function.
pub(super) struct Overload {
    /// Whether the first of what it takes stands before the dot.
    pub(super) is_method: bool,
    pub(super) takes: Vec<Type<'static>>,
    pub(super) gives: Type<'static>,
}

/// The number of unknown types that an overload may have.
pub(super) const VARS_MAX: usize = 26;

/// All functions of a name; `None`: there are none.
pub(super) fn overloads(name: &str) -> Option<&'static [Overload]> {
    FUNCTIONS.get(name).map(Vec::as_slice)
}

/// One letter is any type, the same wherever it stands. The first that a method takes stands before its dot.
const DECLARED: &str = "
_?_:_(bool, A, A) -> A
!_(bool) -> bool
_&&_(bool, bool) -> bool
_||_(bool, bool) -> bool
@not_strictly_false(bool) -> bool
_==_(A, A) -> bool
_!=_(A, A) -> bool
_+_(bytes, bytes) -> bytes
_+_(double, double) -> double
_+_(duration, duration) -> duration
_+_(duration, timestamp) -> timestamp
_+_(timestamp, duration) -> timestamp
_+_(int, int) -> int
_+_(list(A), list(A)) -> list(A)
_+_(string, string) -> string
_+_(uint, uint) -> uint
_/_(double, double) -> double
_/_(int, int) -> int
_/_(uint, uint) -> uint
_%_(int, int) -> int
_%_(uint, uint) -> uint
_*_(double, double) -> double
_*_(int, int) -> int
_*_(uint, uint) -> uint
-_(double) -> double
-_(int) -> int
_-_(double, double) -> double
_-_(duration, duration) -> duration
_-_(int, int) -> int
_-_(timestamp, duration) -> timestamp
_-_(timestamp, timestamp) -> duration
_-_(uint, uint) -> uint
_[_](list(A), int) -> A
_[_](map(A, B), A) -> B
_[_](optional(list(A)), int) -> optional(A)
_[_](optional(map(A, B)), A) -> optional(B)
_[?_](list(A), int) -> optional(A)
_[?_](optional(list(A)), int) -> optional(A)
_[?_](map(A, B), A) -> optional(B)
_[?_](optional(map(A, B)), A) -> optional(B)
@in(A, list(A)) -> bool
@in(A, map(A, B)) -> bool
size(bytes) -> int
size(list(A)) -> int
size(map(A, B)) -> int
size(string) -> int
.size(bytes) -> int
.size(list(A)) -> int
.size(map(A, B)) -> int
.size(string) -> int
type(A) -> type(A)
bool(bool) -> bool
bool(string) -> bool
bytes(bytes) -> bytes
bytes(string) -> bytes
double(double) -> double
double(int) -> double
double(string) -> double
double(uint) -> double
duration(duration) -> duration
duration(int) -> duration
duration(string) -> duration
dyn(A) -> dyn
int(int) -> int
int(double) -> int
int(duration) -> int
int(string) -> int
int(timestamp) -> int
int(uint) -> int
string(string) -> string
string(bool) -> string
string(bytes) -> string
string(double) -> string
string(duration) -> string
string(int) -> string
string(timestamp) -> string
string(uint) -> string
string(net.IP) -> string
string(net.CIDR) -> string
timestamp(timestamp) -> timestamp
timestamp(int) -> timestamp
timestamp(string) -> timestamp
uint(uint) -> uint
uint(double) -> uint
uint(int) -> uint
uint(string) -> uint
.contains(string, string) -> bool
.endsWith(string, string) -> bool
.startsWith(string, string) -> bool
matches(string, string) -> bool
.matches(string, string) -> bool
.getHours(duration) -> int
.getMinutes(duration) -> int
.getSeconds(duration) -> int
.getMilliseconds(duration) -> int
optional.of(A) -> optional(A)
optional.ofNonZeroValue(A) -> optional(A)
optional.none() -> optional(A)
optional.unwrap(list(optional(A))) -> list(A)
.unwrapOpt(list(optional(A))) -> list(A)
.value(optional(A)) -> A
.hasValue(optional(A)) -> bool
.or(optional(A), optional(A)) -> optional(A)
.orValue(optional(A), A) -> A
.first(list(A)) -> optional(A)
.last(list(A)) -> optional(A)
.charAt(string, int) -> string
.indexOf(string, string) -> int
.indexOf(string, string, int) -> int
.indexOf(list(A), A) -> int
.lastIndexOf(string, string) -> int
.lastIndexOf(string, string, int) -> int
.lastIndexOf(list(A), A) -> int
.lowerAscii(string) -> string
.upperAscii(string) -> string
.replace(string, string, string) -> string
.replace(string, string, string, int) -> string
.split(string, string) -> list(string)
.split(string, string, int) -> list(string)
.substring(string, int) -> string
.substring(string, int, int) -> string
.trim(string) -> string
.format(string, list(dyn)) -> string
.join(list(string)) -> string
.join(list(string), string) -> string
strings.quote(string) -> string
.find(string, string) -> string
.findAll(string, string) -> list(string)
.findAll(string, string, int) -> list(string)
.slice(list(A), int, int) -> list(A)
.flatten(list(list(A))) -> list(A)
.flatten(list(dyn), int) -> list(dyn)
.reverse(list(A)) -> list(A)
.distinct(list(A)) -> list(A)
lists.range(int) -> list(int)
sets.contains(list(A), list(A)) -> bool
sets.equivalent(list(A), list(A)) -> bool
sets.intersects(list(A), list(A)) -> bool
quantity(string) -> quantity
isQuantity(string) -> bool
sign(quantity) -> int
.isInteger(quantity) -> bool
.asInteger(quantity) -> int
.asApproximateFloat(quantity) -> double
.add(quantity, quantity) -> quantity
.add(quantity, int) -> quantity
.sub(quantity, quantity) -> quantity
.sub(quantity, int) -> quantity
.isGreaterThan(quantity, quantity) -> bool
.isLessThan(quantity, quantity) -> bool
.compareTo(quantity, quantity) -> int
semver(string) -> semver
semver(string, bool) -> semver
isSemver(string) -> bool
isSemver(string, bool) -> bool
.isGreaterThan(semver, semver) -> bool
.isLessThan(semver, semver) -> bool
.compareTo(semver, semver) -> int
.major(semver) -> int
.minor(semver) -> int
.patch(semver) -> int
ip(string) -> net.IP
isIP(string) -> bool
ip.isCanonical(string) -> bool
.family(net.IP) -> int
.isUnspecified(net.IP) -> bool
.isLoopback(net.IP) -> bool
.isLinkLocalMulticast(net.IP) -> bool
.isLinkLocalUnicast(net.IP) -> bool
.isGlobalUnicast(net.IP) -> bool
cidr(string) -> net.CIDR
isCIDR(string) -> bool
.containsIP(net.CIDR, string) -> bool
.containsIP(net.CIDR, net.IP) -> bool
.containsCIDR(net.CIDR, string) -> bool
.containsCIDR(net.CIDR, net.CIDR) -> bool
.ip(net.CIDR) -> net.IP
.prefixLength(net.CIDR) -> int
.masked(net.CIDR) -> net.CIDR
cel.@mapInsert(map(A, B), A, B) -> map(A, B)
cel.@mapInsert(map(A, B), map(A, B)) -> map(A, B)
url(string) -> url
isURL(string) -> bool
.getScheme(url) -> string
.getHost(url) -> string
.getHostname(url) -> string
.getPort(url) -> string
.getEscapedPath(url) -> string
.getQuery(url) -> map(string, list(string))
format.named(string) -> optional(format)
.validate(format, string) -> optional(list(string))
jsonpatch.escapeKey(string) -> string
.path(authorizer, string) -> path
.group(authorizer, string) -> group
.serviceAccount(authorizer, string, string) -> authorizer
.resource(group, string) -> resource
.subresource(resource, string) -> resource
.namespace(resource, string) -> resource
.name(resource, string) -> resource
.fieldSelector(resource, string) -> resource
.labelSelector(resource, string) -> resource
.check(path, string) -> decision
.check(resource, string) -> decision
.allowed(decision) -> bool
.reason(decision) -> string
.errored(decision) -> bool
.error(decision) -> string
";

/// Parts of a time, by a time zone or without one.
const OF_TIMES: [&str; 10] = [
    "getFullYear",
    "getMonth",
    "getDayOfYear",
    "getDayOfMonth",
    "getDate",
    "getDayOfWeek",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
];
const FORMATS: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

static FUNCTIONS: LazyLock<HashMap<String, Vec<Overload>>> = LazyLock::new(|| {
    let mut all = HashMap::new();
    for line in DECLARED.lines().filter(|line| !line.is_empty()) {
        declare(&mut all, line);
    }
    for operator in ["_<_", "_<=_", "_>_", "_>=_"] {
        for of in ORDERED {
            declare(&mut all, &format!("{operator}({of}, {of}) -> bool"));
        }
        for one in NUMBERS {
            for other in NUMBERS.into_iter().filter(|other| *other != one) {
                declare(&mut all, &format!("{operator}({one}, {other}) -> bool"));
            }
        }
    }
    for of in OF_TIMES {
        declare(&mut all, &format!(".{of}(timestamp) -> int"));
        declare(&mut all, &format!(".{of}(timestamp, string) -> int"));
    }
    for of in ORDERED {
        declare(&mut all, &format!(".isSorted(list({of})) -> bool"));
        declare(&mut all, &format!(".min(list({of})) -> {of}"));
        declare(&mut all, &format!(".max(list({of})) -> {of}"));
        declare(&mut all, &format!(".sort(list({of})) -> list({of})"));
        // What `sortBy` becomes.
        declare(&mut all, &format!(".@sortByAssociatedKeys(list(A), list({of})) -> list(A)"));
    }
    for of in ["int", "uint", "double", "duration"] {
        declare(&mut all, &format!(".sum(list({of})) -> {of}"));
    }
    for format in FORMATS {
        declare(&mut all, &format!("format.{format}() -> format"));
    }
    all
});

fn declare(all: &mut HashMap<String, Vec<Overload>>, line: &str) {
    let Some((called, gives)) = line.rsplit_once(" -> ") else { return };
    let Some((name, takes)) = called.split_once('(') else { return };
    let is_method = name.starts_with('.');
    let takes = parts(takes.strip_suffix(')').unwrap_or(takes)).into_iter().map(named).collect();
    let overload = Overload { is_method, takes, gives: named(gives) };
    all.entry(name.trim_start_matches('.').to_owned()).or_default().push(overload);
}

/// What commas part, those in brackets excepted.
fn parts(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut all) = (0, 0, Vec::new());
    for (at, letter) in list.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                all.push(list.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    all.push(list.get(start..).unwrap_or_default());
    all.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn named(name: &str) -> Type<'static> {
    let inside = |of: &str| name.strip_prefix(of)?.strip_prefix('(')?.strip_suffix(')');
    if let Some(of) = inside("list") {
        return Type::list(named(of));
    }
    if let Some(of) = inside("optional") {
        return Type::optional(named(of));
    }
    if let Some(of) = inside("type") {
        return Type::of(named(of));
    }
    if let Some(of) = inside("map") {
        return match parts(of).as_slice() {
            [key, value] => Type::map(named(key), named(value)),
            _ => Type::Dyn,
        };
    }
    let library = |name: &str| Type::object(name, Fields::None);
    match name {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::Text,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "quantity" => library("kubernetes.Quantity"),
        "semver" => library("kubernetes.Semver"),
        "url" => library("kubernetes.URL"),
        "format" => library("kubernetes.NamedFormat"),
        "net.IP" => Type::Opaque("net.IP"),
        "net.CIDR" => Type::Opaque("net.CIDR"),
        "authorizer" => library(AUTHORIZER),
        "path" => library(PATH_CHECK),
        "group" => library(GROUP_CHECK),
        "resource" => library(RESOURCE_CHECK),
        "decision" => library(DECISION),
        _ => match name.bytes().next() {
            Some(letter) if name.len() == 1 && letter.is_ascii_uppercase() => Type::Var(usize::from(letter - b'A')),
            _ => Type::Dyn,
        },
    }
}

/// The type that a name stands for; `None`: it is none of a type.
///
/// Source: google/cel-go `common/stdlib/standard.go` `stdTypes`.
pub(super) fn type_named(name: &str) -> Option<Type<'static>> {
    Some(match name {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "optional_type" => Type::optional(Type::Dyn),
        "string" => Type::Text,
        "type" => Type::Types,
        "uint" => Type::Uint,
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "net.IP" => Type::Opaque("net.IP"),
        "net.CIDR" => Type::Opaque("net.CIDR"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_read() {
        let of = |name: &str| overloads(name).unwrap_or_default();
        assert_eq!(of("_<_").len(), 14);
        assert_eq!(of("getHours").len(), 3);
        assert_eq!(of("optional.none").first().map(|one| one.takes.len()), Some(0));
        let index = of("_[_]").get(1).map(|one| (one.is_method, one.takes.clone(), one.gives.clone()));
        let map = Type::map(Type::Var(0), Type::Var(1));
        assert_eq!(index, Some((false, vec![map, Type::Var(0)], Type::Var(1))));
        let check = of("check").first().map(|one| (one.is_method, one.gives.to_string()));
        assert_eq!(check, Some((true, DECISION.to_owned())));
        assert!(of("nope").is_empty());
        // No type has a name that nobody knows.
        for line in DECLARED.lines().filter(|line| !line.contains("dyn")) {
            let (called, gives) = line.rsplit_once(" -> ").unwrap_or(("(", "bool"));
            let takes = called.split_once('(').unwrap().1;
            let all = parts(takes.strip_suffix(')').unwrap_or(takes)).into_iter().chain([gives]);
            assert!(all.map(named).all(|of| !of.to_string().contains("dyn")), "{line}");
        }
    }
}
