//! Rules in CEL, at a kube-apiserver and at the embedded server: good and bad objects, and the same answers. The rules are
//! those of the Kubernetes documentation of validation rules, and more of their kind.
//!
//! Source: <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation-rules>.

use kubefold_apiserver::Server as Own;
use serde_json::{Value, json};

use super::{
    patterns, urls,
    writes::{Server, step},
};
use testbed::{Member, MemberOptions};

const TRIED: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
const GAUGES: &str = "/apis/rules.example.com/v1/namespaces/default/gauges";

/// A rule, and an object that it holds for, and one that it does not.
pub(super) type Case = (&'static str, Value, Value);

pub(super) fn properties() -> Value {
    json!({
        "min": {"type": "integer"}, "max": {"type": "integer"}, "replicas": {"type": "integer"},
        "ratio": {"type": "number"}, "name": {"type": "string", "maxLength": 20}, "on": {"type": "boolean"},
        "my-port": {"type": "integer"}, "namespace": {"type": "string", "maxLength": 20}, "while": {"type": "integer"},
        "either": {"x-kubernetes-int-or-string": true},
        "when": {"type": "string", "format": "date-time"}, "wait": {"type": "string", "format": "duration"},
        "tags": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 20}},
        "numbers": {"type": "array", "maxItems": 5, "items": {"type": "integer"}},
        "labels": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "string", "maxLength": 20}},
        "ports": {"type": "array", "maxItems": 5, "items": {"type": "object", "properties": {
            "name": {"type": "string", "maxLength": 20}, "port": {"type": "integer"},
        }}},
    })
}

fn numbers() -> Vec<Case> {
    vec![
        (
            "self.min <= self.replicas && self.replicas <= self.max",
            json!({"min": 1, "replicas": 2, "max": 3}),
            json!({"min": 1, "replicas": 4, "max": 3}),
        ),
        ("self.replicas > 0", json!({"replicas": 1}), json!({"replicas": 0})),
        ("self.replicas > 1", json!({"replicas": 2}), json!({})),
        ("self.min + self.max == 3", json!({"min": 1, "max": 2}), json!({"min": 2, "max": 2})),
        ("self.max / self.min == 2", json!({"min": 2, "max": 5}), json!({"min": 0, "max": 5})),
        ("self.max % self.min == 1", json!({"min": 2, "max": 5}), json!({"min": 0, "max": 5})),
        ("self.ratio < 0.5", json!({"ratio": 0.25}), json!({"ratio": 1})),
        ("self.ratio == double(self.min)", json!({"ratio": 1, "min": 1}), json!({"ratio": 1.5, "min": 1})),
        ("self.min < self.ratio", json!({"min": 1, "ratio": 1.5}), json!({"min": 2, "ratio": 1.5})),
        ("self.on || self.min > 3", json!({"on": true}), json!({"on": false, "min": 3})),
        ("!self.on", json!({"on": false}), json!({"on": true})),
        ("self.on ? self.min == 1 : self.min == 2", json!({"on": true, "min": 1}), json!({"on": true, "min": 2})),
        ("int(self.name) == 7", json!({"name": "7"}), json!({"name": "8"})),
        ("has(self.min) == has(self.max)", json!({}), json!({"min": 1})),
        ("self.my__dash__port > 1", json!({"my-port": 2}), json!({"my-port": 1})),
    ]
}

fn texts() -> Vec<Case> {
    vec![
        ("self.name == 'x'", json!({"name": "x"}), json!({"name": "y"})),
        ("self.name.startsWith('kube')", json!({"name": "kubefold"}), json!({"name": "fold"})),
        ("self.name.endsWith('fold')", json!({"name": "kubefold"}), json!({"name": "kube"})),
        ("self.name.contains('e')", json!({"name": "kube"}), json!({"name": "fold"})),
        ("self.name.matches('^[a-z]+$')", json!({"name": "abc"}), json!({"name": "a1"})),
        ("self.name.size() > 1", json!({"name": "ab"}), json!({"name": "ä"})),
        ("self.name.lowerAscii() == self.name", json!({"name": "a"}), json!({"name": "A"})),
        ("self.name.split('-').size() == 2", json!({"name": "a-b"}), json!({"name": "a"})),
        ("self.name.substring(1) == 'b'", json!({"name": "ab"}), json!({"name": "ac"})),
        ("self.name.replace('a', 'b') == 'bb'", json!({"name": "ab"}), json!({"name": "a"})),
        ("self.name.indexOf('b') == 1", json!({"name": "ab"}), json!({"name": "b"})),
        ("self.name.find('[0-9]+') == '12'", json!({"name": "a12"}), json!({"name": "a1"})),
        ("self.name.findAll('[0-9]').size() == 2", json!({"name": "1a2"}), json!({"name": "a"})),
        ("self.name + 'b' == 'ab'", json!({"name": "a"}), json!({"name": "b"})),
        ("self.__while__ > 0", json!({"while": 1}), json!({"while": 0})),
        ("self.__namespace__ != 'kube-system'", json!({"namespace": "x"}), json!({"namespace": "kube-system"})),
        ("self.?name.orValue('x') == 'x'", json!({}), json!({"name": "y"})),
        (
            "type(self.either) == string ? self.either == '5' : self.either == 5",
            json!({"either": 5}),
            json!({"either": "6"}),
        ),
        ("self.either == '50%'", json!({"either": "50%"}), json!({"either": 50})),
        ("self.wait > duration('1m')", json!({"wait": "2m"}), json!({"wait": "30s"})),
        (
            "self.when > timestamp('2020-01-01T00:00:00Z')",
            json!({"when": "2021-01-01T00:00:00Z"}),
            json!({"when": "2019-01-01T00:00:00Z"}),
        ),
        (
            "self.when.getFullYear() == 2021",
            json!({"when": "2021-01-01T00:00:00Z"}),
            json!({"when": "2019-01-01T00:00:00Z"}),
        ),
    ]
}

fn collections() -> Vec<Case> {
    vec![
        ("self.tags.all(tag, tag.startsWith('a'))", json!({"tags": ["a"]}), json!({"tags": ["a", "b"]})),
        ("self.tags.exists(tag, tag == 'a')", json!({"tags": ["b", "a"]}), json!({"tags": ["b"]})),
        ("self.tags.exists_one(tag, tag == 'a')", json!({"tags": ["a"]}), json!({"tags": ["a", "a"]})),
        ("self.numbers.map(n, n * 2) == [2, 4]", json!({"numbers": [1, 2]}), json!({"numbers": [1]})),
        ("self.numbers.filter(n, n > 1).size() == 1", json!({"numbers": [1, 2]}), json!({"numbers": [1]})),
        ("self.numbers[1] == 2", json!({"numbers": [1, 2]}), json!({"numbers": [1]})),
        ("'a' in self.tags", json!({"tags": ["a"]}), json!({"tags": []})),
        ("'a' in self.labels", json!({"labels": {"a": "b"}}), json!({"labels": {}})),
        ("self.labels['a'] == 'b'", json!({"labels": {"a": "b"}}), json!({"labels": {"b": "a"}})),
        ("self.labels.all(key, self.labels[key] != '')", json!({"labels": {"a": "b"}}), json!({"labels": {"a": ""}})),
        (
            "self.ports.all(p, p.port > 0 && has(p.name))",
            json!({"ports": [{"port": 1, "name": "a"}]}),
            json!({"ports": [{"port": 1}]}),
        ),
        (
            "self.ports.map(p, p.name) == ['a', 'b']",
            json!({"ports": [{"name": "a"}, {"name": "b"}]}),
            json!({"ports": [{"name": "a"}]}),
        ),
        (
            "size(self.tags) == size(self.numbers)",
            json!({"tags": ["a"], "numbers": [1]}),
            json!({"tags": ["a"], "numbers": []}),
        ),
    ]
}

/// Macros with two variables: a place or a key, and what is there.
fn pairs() -> Vec<Case> {
    vec![
        ("self.tags.all(i, tag, i < 1 || tag == 'b')", json!({"tags": ["a", "b"]}), json!({"tags": ["a", "c"]})),
        ("self.tags.exists(i, tag, i == 1 && tag == 'b')", json!({"tags": ["a", "b"]}), json!({"tags": ["b", "a"]})),
        ("self.labels.all(key, value, key != value)", json!({"labels": {"a": "b"}}), json!({"labels": {"a": "a"}})),
        ("self.labels.exists(key, value, key == value)", json!({"labels": {"a": "a"}}), json!({"labels": {}})),
        ("self.tags.existsOne(i, tag, tag == 'a')", json!({"tags": ["a", "b"]}), json!({"tags": ["a", "a"]})),
        ("self.labels.exists_one(key, value, value == 'a')", json!({"labels": {"b": "a"}}), json!({"labels": {}})),
        (
            "self.tags.transformList(i, tag, i > 0 ? tag : 'x') == ['x', 'b']",
            json!({"tags": ["a", "b"]}),
            json!({"tags": ["b", "a"]}),
        ),
        ("self.tags.transformList(i, tag, i > 0, tag) == ['b']", json!({"tags": ["a", "b"]}), json!({"tags": ["b"]})),
        (
            "self.labels.transformList(key, value, key + value) == ['ab']",
            json!({"labels": {"a": "b"}}),
            json!({"labels": {}}),
        ),
        (
            "self.labels.transformMap(key, value, value + key) == {'a': 'ba', 'b': 'cb'}",
            json!({"labels": {"a": "b", "b": "c"}}),
            json!({"labels": {"a": "b"}}),
        ),
        (
            "self.labels.transformMap(key, value, value != 'x', value) == {'a': 'b'}",
            json!({"labels": {"a": "b", "b": "x"}}),
            json!({"labels": {"a": "x"}}),
        ),
        ("self.tags.transformMap(i, tag, tag)[1] == 'b'", json!({"tags": ["a", "b"]}), json!({"tags": ["a"]})),
        (
            "self.labels.transformMapEntry(key, value, {value: key}) == {'b': 'a'}",
            json!({"labels": {"a": "b"}}),
            json!({"labels": {"a": "b", "c": "b"}}),
        ),
        (
            "self.tags.transformMapEntry(i, tag, i > 0, {tag: i}) == {'b': 1}",
            json!({"tags": ["a", "b"]}),
            json!({"tags": ["a", "b", "b"]}),
        ),
        (
            "self.tags.all(i, tag, self.numbers.exists(j, n, i == j && n == tag.size()))",
            json!({"tags": ["a", "bb"], "numbers": [1, 2]}),
            json!({"tags": ["a", "bb"], "numbers": [1]}),
        ),
        (
            "self.tags.all(i, tag, self.numbers.exists(i, n, i == 1 && n == 2 && tag != 'x'))",
            json!({"tags": ["a", "b"], "numbers": [1, 2]}),
            json!({"tags": ["a", "x"], "numbers": [1, 2]}),
        ),
        (
            "self.tags.all(i, tag, self.numbers.map(i, i + 1).all(n, n > i) && ['a', tag].all(i, i < 'x'))",
            json!({"tags": ["a"], "numbers": [1]}),
            json!({"tags": ["a", "x"], "numbers": [-3]}),
        ),
        (
            "self.labels.transformMap(k, v, self.numbers.transformMap(i, n, n + i))['a'][1] == 4",
            json!({"labels": {"a": "b"}, "numbers": [2, 3]}),
            json!({"labels": {"a": "b"}, "numbers": [2]}),
        ),
    ]
}

/// The functions that Kubernetes adds to those of CEL.
fn library() -> Vec<Case> {
    let name = |good: &str, bad: &str| (json!({"name": good}), json!({"name": bad}));
    let of_name = [
        ("isQuantity(self.name)", "1.5Gi", "1.5G1"),
        ("quantity(self.name) == quantity('1000m')", "1", "2"),
        ("quantity(self.name).isGreaterThan(quantity('1Ki'))", "1025", "1k"),
        ("quantity(self.name).isLessThan(quantity('1Ki'))", "1k", "1Mi"),
        ("quantity(self.name).compareTo(quantity('-1')) == -1", "-2", "x"),
        ("sign(quantity(self.name)) == -1", "-2", "0"),
        ("quantity(self.name).isInteger()", "2k", "1500m"),
        ("quantity(self.name).asInteger() == 2000", "2k", "1500m"),
        ("quantity(self.name).asApproximateFloat() == 1.5", "1500m", "2"),
        ("quantity(self.name).add(quantity('1')).sub(1).add(2) == quantity('3')", "1", "2"),
        ("isIP(self.name)", "10.0.0.1", "10.0.0.256"),
        ("isIP(self.name) && ip(self.name).family() == 6", "::1", "::ffff:1.2.3.4"),
        ("ip(self.name).isLoopback()", "127.0.0.1", "10.0.0.1"),
        ("ip(self.name).isGlobalUnicast()", "10.0.0.1", "224.0.0.1"),
        ("ip(self.name).isLinkLocalUnicast()", "fe80::1", "fd00::1"),
        ("ip(self.name).isLinkLocalMulticast()", "ff02::1", "ff05::1"),
        ("ip(self.name).isUnspecified()", "0.0.0.0", "0.0.0.1"),
        ("ip.isCanonical(self.name)", "::1", "0::1"),
        ("string(ip(self.name)) == '::1'", "0::1", "::2"),
        ("isCIDR(self.name)", "10.0.0.0/8", "10.0.0.0/33"),
        ("cidr(self.name).containsIP('10.1.2.3')", "10.0.0.0/8", "11.0.0.0/8"),
        ("cidr(self.name).containsIP(ip('10.1.2.3'))", "10.1.0.0/16", "::/0"),
        ("cidr(self.name).containsCIDR('10.1.0.0/16')", "10.0.0.0/8", "10.1.0.0/24"),
        ("cidr(self.name).containsCIDR(cidr('fd00::/16'))", "fd00::/8", "fe00::/8"),
        ("cidr(self.name) == cidr(self.name).masked()", "10.0.0.0/8", "10.1.0.0/8"),
        ("cidr(self.name).prefixLength() == 24", "10.0.0.0/24", "10.0.0.0/25"),
        ("string(cidr(self.name).ip()) == '10.0.0.1'", "10.0.0.1/8", "10.0.0.2/8"),
        ("isSemver(self.name)", "1.2.3-rc.1+b", "1.2"),
        ("isSemver(self.name, true)", "v1.2", "x1.2"),
        ("semver(self.name).major() == 1 && semver(self.name).minor() == 2", "1.2.3", "1.3.3"),
        ("semver(self.name).patch() == 3", "1.2.3", "1.2.4"),
        ("semver(self.name).isLessThan(semver('1.0.0'))", "1.0.0-rc.1", "1.0.1"),
        ("semver(self.name, true).isGreaterThan(semver('1.0.0'))", "v01.1", "1"),
        ("semver(self.name).compareTo(semver('1.0.0')) == 0", "1.0.0", "1.0.1"),
        ("!format.dns1123Label().validate(self.name).hasValue()", "web-1", "Web.1"),
        ("!format.dns1123Subdomain().validate(self.name).hasValue()", "web.1", "Web"),
        ("!format.dns1035Label().validate(self.name).hasValue()", "web", "1web"),
        ("!format.qualifiedName().validate(self.name).hasValue()", "a.b/C", "a/b/c"),
        ("!format.dns1123LabelPrefix().validate(self.name).hasValue()", "web-", "web."),
        ("!format.labelValue().validate(self.name).hasValue()", "Web_1", "-"),
        ("!format.uri().validate(self.name).hasValue()", "http://a.b", "a b"),
        ("!format.byte().validate(self.name).hasValue()", "YQ==", "?"),
        ("!format.date().validate(self.name).hasValue()", "2020-01-01", "2020-13-01"),
        ("!format.datetime().validate(self.name).hasValue()", "2020-01-01T00:00:00Z", "2020"),
        ("!format.named('dns1123Label').value().validate(self.name).hasValue()", "a", "A"),
        ("format.named(self.name).hasValue()", "uuid", "uuid4"),
    ];
    let mut cases: Vec<Case> = of_name
        .into_iter()
        .map(|(rule, good, bad)| {
            let (good, bad) = name(good, bad);
            (rule, good, bad)
        })
        .collect();
    cases.extend(of_lists());
    cases.push(("self.?name.optMap(name, name == 'a').orValue(false)", json!({"name": "a"}), json!({})));
    cases
}

fn of_lists() -> Vec<Case> {
    let of_numbers: [(&'static str, &[i64], &[i64]); 12] = [
        ("self.numbers.isSorted()", &[1, 1, 2], &[2, 1]),
        ("self.numbers.sum() == 3", &[1, 2], &[]),
        ("self.numbers.min() == 1", &[2, 1], &[]),
        ("self.numbers.max() == 2", &[2, 1], &[3]),
        ("self.numbers.indexOf(1) == 1", &[2, 1, 1], &[2]),
        ("self.numbers.lastIndexOf(1) == 2", &[2, 1, 1], &[1]),
        ("self.numbers.first().orValue(5) == 5", &[], &[1]),
        ("self.numbers.last().value() == 2", &[1, 2], &[]),
        ("sets.contains(self.numbers, [1, 2])", &[3, 2, 1], &[1]),
        ("sets.equivalent(self.numbers, [1, 2])", &[2, 1, 1], &[1]),
        ("sets.intersects(self.numbers, [1, 2])", &[2, 3], &[3]),
        ("optional.unwrap([optional.none(), self.numbers.first()]) == [1]", &[1, 2], &[2]),
    ];
    of_numbers.map(|(rule, good, bad)| (rule, json!({"numbers": good}), json!({"numbers": bad}))).to_vec()
}

/// All rules with what they hold for.
pub(super) fn cases() -> Vec<Case> {
    [numbers(), texts(), collections(), pairs(), library()].concat()
}

fn definition(cases: &[Case]) -> Value {
    let mut spec = serde_json::Map::new();
    let place = |rule: Value| json!({"type": "object", "properties": properties(), "x-kubernetes-validations": [rule]});
    for (index, (rule, ..)) in cases.iter().enumerate() {
        spec.insert(format!("r{index}"), place(json!({"rule": rule})));
    }
    spec.insert("said".into(), place(json!({"rule": "self.min > 1", "message": "too small", "fieldPath": ".min", "reason": "FieldValueForbidden"})));
    spec.insert("told".into(), place(json!({"rule": "self.min > 1", "messageExpression": "self.name + ' is small'", "reason": "FieldValueRequired"})));
    spec.insert("kept".into(), place(json!({"rule": "self.name == oldSelf.name", "message": "it is immutable"})));
    spec.insert("once".into(), json!({"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}));
    spec.insert(
        "late".into(),
        json!({"type": "integer", "x-kubernetes-validations": [
        {"rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "optionalOldSelf": true}]}),
    );
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gauges.rules.example.com"},
        "spec": {"group": "rules.example.com", "scope": "Namespaced",
            "names": {"plural": "gauges", "kind": "Gauge"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}}}]},
    })
}

fn gauge(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "rules.example.com/v1", "kind": "Gauge", "metadata": {"name": name}, "spec": spec})
}

/// Definitions that are refused, by one rule.
pub(super) const REFUSED: &[&str] = &[
    "self.nope == 1",
    "nope == 1",
    "self.name.nope()",
    "self.name.first == 1",
    "self.min",
    "self.min >",
    "",
    "'x'",
    "self.tags.all(tag, nope)",
    "self.min < 1 && self.nope > 1",
    "strings.quote(self.name) == ''",
    "self.name.reverse() == ''",
    "base64.encode(b'a') == ''",
    "base64.decode('YQ==') == b'a'",
    "math.greatest(1, 2) == 2",
    "math.abs(-1) == 1",
    "lists.range(3) == [0]",
    "self.numbers.slice(0, 1) == [1]",
    "self.numbers.distinct() == [1]",
    "self.numbers.reverse() == [1]",
    "self.numbers.sort() == [1]",
    "self.numbers.sortBy(n, n) == [1]",
    "'%d'.format([self.min]) == '1'",
    "'a'.charAt(0) == 'a'",
    "'a'.trim() == 'a'",
    "optional.of(1).optMap(x, x + 1).value() == 2",
    "optional.of(1).optFlatMap(x, optional.of(x)).value() == 2",
    "optional.ofNonZeroValue(0).hasValue()",
    "optional.none().or(optional.of(1)).value() == 1",
    "optional.unwrap([optional.of(1)]) == [1]",
    "[optional.of(1)].unwrapOpt() == [1]",
    "[1].first().hasValue()",
    "[1].last().hasValue()",
    "cel.bind(x, 1, x == 1)",
    "sets.contains([1], [1])",
    "quantity('1').isLessThan(quantity('2'))",
    "semver('1.0.0').major() == 1",
    "isSemver('1.0.0', true)",
    "ip('1.1.1.1').family() == 4",
    "cidr('1.1.1.0/24').containsIP('1.1.1.1')",
    "format.named('uuid').hasValue()",
    "[1].isSorted() && [1].sum() == 1 && [1].min() == 1 && [1].max() == 1",
    "[1].indexOf(1) == 0 && [1].lastIndexOf(1) == 0",
    "jsonpatch.escapeKey('a') == 'a'",
    "isURL('/a') && url('/a').getEscapedPath() == '/a'",
    "url('/a').getQuery().size() == 0 && url('/a') == url('/b')",
];

/// Rules whose types do not fit, and some whose types do.
pub(super) const TYPED: &[&str] = &[
    "self.min + self.name == 1",
    "self.min + 1.5 > 2.0",
    "self.min == self.name",
    "self.min == null",
    "self.name != null",
    "self.when == null",
    "self.ports == null",
    "self == null",
    "self == 1",
    "self.min == 1.0",
    "self.min < 1.5 && self.min < 1u",
    "self.name < 1",
    "self.name && true",
    "self.on && self.min",
    "self.on || self.nope || self.min",
    "!self.name",
    "-self.name == ''",
    "-self.min == 1 && -self.ratio == 1.0",
    "self.tags[0] == 1",
    "self.tags['a'] == 'b'",
    "self.labels[1] == 'b'",
    "self.labels.nope == 'a'",
    "self.labels.nope == 1",
    "1 in self.tags",
    "'a' in self.name",
    "1 in self.labels",
    "self.min in [1, 2]",
    "self.min in ['a']",
    "self.name.startsWith(1)",
    "self.min.startsWith('a')",
    "lowerAscii(self.name) == ''",
    "self.name.size() == 'a'",
    "size(self.min) == 1",
    "self.tags.size() == 1u",
    "int(self.on) == 1",
    "string(self.tags) == ''",
    "bool(1)",
    "self.on ? 1 : 'a'",
    "self.on ? self.min : self.ratio",
    "self.min ? true : false",
    "(self.on ? self.min : self.max) == 1",
    "self.tags.map(tag, tag + 1).size() == 0",
    "self.tags.map(tag, tag.size())[0] == 'a'",
    "self.tags.all(tag, tag)",
    "self.tags.exists(tag, tag == 1)",
    "self.tags.filter(tag, tag.size()).size() == 0",
    "self.tags.exists_one(tag, tag == 1)",
    "self.numbers.map(n, n > 1, n * 2).size() == 1",
    "self.numbers.exists(n, self.tags.exists(tag, tag == n))",
    "self.min.all(one, true)",
    "self.name.exists(one, true)",
    "self.ports.all(port, port.nope == 1)",
    "self.ports.all(port, port.port == port.name)",
    "self.ports[0].nope == 1",
    "self.ports[0] == 1",
    "self.ports == self.tags",
    "self.ports.map(port, port.port).sum() == 1",
    "[1, 'a'].size() == 2",
    "[1, 2.0] == [1]",
    "[self.either, 1].size() == 2",
    "[self.either, self.either].size() == 2",
    "{'a': 1, 'b': 'c'}.size() == 2",
    "{'a': 1, 2: 3}.size() == 2",
    "'%s %s'.format(['a', 'b']) == ''",
    "'%s %s'.format(['a']) == ''",
    "'%s'.format(['a', 'b']) == '' && '%z'.format([1]) == ''",
    "'%'.format([1]) == ''",
    "'%% %s %%'.format([1]) == ''",
    "'%.2f %.e'.format([1.0, 2.0]) == ''",
    "'%.2'.format([1.0]) == ''",
    "'%.99999999999999999999f'.format([1.0]) == ''",
    "'%ä'.format([1]) == ''",
    "'%d %f %e %b %x %X %o'.format([1, 1.0, 'NaN', true, 'a', b'a', 1u]) == ''",
    "'%d'.format(['a']) == '' || '%f'.format([1]) == ''",
    "'%e'.format([self.when]) == ''",
    "'%b'.format([self.name]) == ''",
    "'%x'.format([self.wait]) == '' && '%o'.format([self.tags]) == ''",
    "'%d'.format([self.either]) == '' && '%d'.format([self.min]) == ''",
    "'%s'.format([self]) == ''",
    "'%s %s'.format([self.ports, [self.labels, {'a': null}]]) == ''",
    "'%s'.format([[1, [quantity('1')]]]) == ''",
    "'%s'.format([{'a': optional.of(1)}]) == '' && '%s'.format([ip('::1')]) == ''",
    "'%s %s'.format([int, type(1)]) == ''",
    "'%z'.format(self.tags) == '' && self.name.format(['a', 'b']) == ''",
    "self.tags.all(tag, '%d'.format([tag]) == '')",
    "'ä€' == 1 && '\u{1f600}' + 1 == 2",
    "self.name\t== 1 && 'ä'.nope()",
    "'ä' == self.name &&\n  'ö' == self.nope",
    "self.when + self.when > self.when",
    "self.when - self.when > duration('1s')",
    "self.when + self.wait > self.when",
    "self.wait * 2 > self.wait",
    "self.when.getFullYear('UTC') == 2020",
    "self.when.getFullYear(1) == 2020",
    "self.wait.getHours('UTC') == 1",
    "self.wait.getFullYear() == 1",
    "self.?name.orValue(1) == 1",
    "self.?name == 'a'",
    "self.?name.hasValue() && self.?ports[0].?name.orValue('') == ''",
    "self.?nope.hasValue()",
    "self.name.?x.hasValue()",
    "self.ports[?0].name.orValue('') == ''",
    "self.ports[?0].name == ''",
    "optional.of(self.name).value() == 1",
    "optional.none().orValue(1) == 1",
    "optional.of(1).or(optional.of('a')).hasValue()",
    "self.?name.optMap(name, name + 1).hasValue()",
    "oldSelf.name == 1",
    "oldSelf.name == self.name",
    "quantity(self.name) > quantity('1')",
    "quantity(self.name).add('1') == quantity('1')",
    "quantity(self.name) == 1",
    "quantity(self.name).x == 1",
    "semver(self.name).isLessThan(quantity('1'))",
    "semver(self.name, 1).major() == 1",
    "ip(self.name).x == 1",
    "ip(self.name) == cidr('1.1.1.1/24')",
    "cidr('1.1.1.1/24').containsIP(1)",
    "type(self.name) == string",
    "type(self.name) == 'string'",
    "type(self.wait) == google.protobuf.Duration",
    "type(ip(self.name)) == net.IP",
    "self.tags.sum() == 1",
    "self.numbers.sum() == 'a'",
    "self.ports.min() == 1",
    "self.tags.join(1) == ''",
    "self.numbers.join(',') == ''",
    "self.tags.join() == '' && self.tags.min() == '' && self.tags.isSorted()",
    "self.tags.indexOf(1) == 0",
    "sets.contains(self.tags, [1])",
    "sets.contains(self.tags, [])",
    "self.tags + [1] == []",
    "self.tags + ['a'] == []",
    "[] + [] == []",
    "[].map(one, one) == [1]",
    "self.numbers.slice('a', 1) == []",
    "self.tags.flatten() == []",
    "[[1]].flatten() == [1]",
    "self.tags.sort() == self.numbers",
    "self.tags.sortBy(tag, tag.size()) == self.tags",
    "self.tags.sortBy(tag, [tag]) == self.tags",
    "self.tags.first() == 'a'",
    "self.tags.first().value() == 'a'",
    "self.numbers.first().value() == 'a'",
    "duration(self.name) > 1",
    "timestamp(1) > self.when",
    "self.tags.all(i, i, true)",
    "self.tags.all(1, tag, true)",
    "self.tags.all(i, tag.x, true)",
    "self.tags.all(__result__, tag, true)",
    "self.tags.all(i, tag, i == 'a')",
    "self.labels.all(k, v, k == 1)",
    "self.tags.exists(i, tag, tag)",
    "self.tags.existsOne(i, tag, i)",
    "self.min.all(i, v, true)",
    "self.name.transformList(i, v, v) == []",
    "self.tags.transformList(i, tag, i) == ['a']",
    "self.tags.transformList(i, tag, tag, tag) == []",
    "self.tags.transformList(i, tag)",
    "self.tags.transformMap(i, tag, tag) == {'a': 'b'}",
    "self.tags.transformMap(i, tag, tag).size() == 1 && self.tags.transformMap(i, tag, i > 0, tag)[0].size() == 1",
    "self.tags.transformMapEntry(i, tag, tag) == {}",
    "self.tags.transformMapEntry(i, tag, {tag: i}) == {1: 1}",
    "self.tags.transformMapEntry(i, tag, i > 0, {tag: i})['a'] == 'b'",
    "[].transformMap(i, v, v) == {}",
    "transformList(self.tags, i, tag, tag) == []",
    "url(self.name) == self.name",
    "url(self.name).getHost() == 1",
    "url(self.name).getHost('a') == ''",
    "url(self.name).getQuery()['a'] == 'b'",
    "url(self.name).getQuery()[1] == ['b']",
    "url(self.name).host == ''",
    "url(self.name) < url(self.name)",
    "string(url(self.name)) == ''",
    "type(url(self.name)) == string",
    "isURL(self.min)",
    "self.name.matches('(')",
    "self.name.matches('[a-z') && self.nope",
    "self.name.matches('[a-z') && self.name.matches('a{1001}') && self.when > timestamp('x')",
    "matches('(', self.name)",
    "matches(self.name, '(')",
    "self.name.matches('(' + self.name)",
    "self.name.find('(') == ''",
    "self.name.split(',')[0] == 1",
    "self.name.replace('a') == ''",
    "self.name.find(1) == ''",
    "self.name.matches(self.min)",
    "matches(self.name, 'a') && self.name.matches('a')",
    "has(self.name.x)",
    "has(self.labels.x) && has(self.ports)",
    "self.metadata.name == ''",
    "self.apiVersion == ''",
    "authorizer.path('/x').check('get').allowed()",
    "dyn(self.min) + 'a' == 'b'",
    "dyn(self.min) == 'b'",
    "self.either",
    "self.either + 1",
    "self.either + 1 == 2 && self.either > 'a'",
    "self.min + self.max + self.name > 0 && self.nope",
    "self.name ==\n  1 &&\n  self.min == 'ä'",
    "string{}",
    "true ? self.tags : []",
    "self.wait > duration('x')",
    "self.wait > duration('1h2m3.5s') || self.wait == duration('-1ms')",
    "self.when > timestamp('2020-01-01')",
    "self.when > timestamp('2020-01-01T00:00:00.5+01:00')",
    "self.when > timestamp('x') && self.nope",
    "null",
    "self",
];

/// A text without the number that a kube-apiserver gives the type of `self`.
fn without_number(text: &str) -> String {
    const SELF: &str = "selfType";
    let mut parts = text.split(SELF);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + SELF + part.trim_start_matches(|digit: char| digit.is_ascii_digit()))
}

async fn refusals(real: &Server, own: &Server, wrong: &mut String) {
    let told = ["self.name + 1", "self.min", "self.tags", "self.either", "self.tags.join(1)", "self.name + 'a'"];
    let of_messages = told.map(|told| json!({"rule": "self.min > 1", "messageExpression": told}));
    let mut rules: Vec<Value> = REFUSED.iter().chain(TYPED).map(|rule| json!({"rule": rule, "message": "m"})).collect();
    rules.extend(of_messages);
    for rule in rules {
        let mut bad = definition(&[("true", Value::Null, Value::Null)]);
        let at = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/r0/x-kubernetes-validations/0";
        *bad.pointer_mut(at).unwrap() = rule.clone();
        bad["metadata"]["name"] = "others.rules.example.com".into();
        bad["spec"]["names"] = json!({"plural": "others", "kind": "Other"});
        let causes = |answer: &Value| -> Vec<Value> {
            let causes = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
            // The words about syntax are those of another parser.
            causes
                .into_iter()
                .map(|mut cause| {
                    let text = cause["message"].as_str().unwrap_or_default().to_owned();
                    cause["message"] = without_number(&text).into();
                    if text.contains("Syntax error") {
                        cause["message"] = "Syntax error".into();
                    }
                    cause
                })
                .collect()
        };
        let step = step("POST", TRIED, bad);
        let (said, told) = (real.raw(&step).await, own.raw(&step).await);
        let (said, told) = ((said.0, causes(&said.1)), (told.0, causes(&told.1)));
        if said != told {
            wrong.push_str(&format!("{rule}\n  said {said:?}\n  told {told:?}\n\n"));
        }
    }
}

#[tokio::test]
async fn rules_hold_and_break_as_at_a_kube_apiserver() {
    let member = Member::start("rules", MemberOptions::default()).await;
    let running = Own::new().start().await.unwrap();
    let (real, own) = (Server::Real(Box::new(member.api().await)), Server::Embedded(running.service()));
    let cases = cases();
    assert!(cases.len() >= 100);
    let mut steps = Vec::new();
    for (index, (_, good, bad)) in cases.iter().enumerate() {
        let place = format!("r{index}");
        steps.push(step("POST", GAUGES, gauge(&format!("good-{index}"), &json!({place.as_str(): good}))));
        steps.push(step("POST", GAUGES, gauge("bad", &json!({place.as_str(): bad}))));
    }
    const KEPT: &str = "/apis/rules.example.com/v1/namespaces/default/gauges/kept";
    steps.push(step("POST", GAUGES, gauge("bad", &json!({"said": {"min": 1}}))));
    steps.push(step("POST", GAUGES, gauge("bad", &json!({"told": {"min": 1, "name": "it"}}))));
    steps.push(step("POST", GAUGES, gauge("kept", &json!({"kept": {"name": "a"}, "once": "a", "late": 2}))));
    steps.push(step("PATCH", KEPT, json!({"spec": {"kept": {"name": "b"}}})));
    steps.push(step("PATCH", KEPT, json!({"spec": {"once": "b"}})));
    steps.push(step("PATCH", KEPT, json!({"spec": {"late": 1}})));
    steps.push(step("PATCH", KEPT, json!({"spec": {"late": 3, "once": null}})));
    steps.push(step("POST", GAUGES, gauge("bad", &json!({"r0": {"min": "x"}}))));
    for server in [&real, &own] {
        server.define(&definition(&cases), GAUGES).await;
    }
    let mut wrong = String::new();
    for step in &steps {
        let (said, told) = (real.answer(step).await, own.answer(step).await);
        if said != told {
            let (said, told) = (format!("{} {}", said.0, said.1), format!("{} {}", told.0, told.1));
            wrong.push_str(&format!("{} {}\n  said {said}\n  told {told}\n\n", step.path, step.body));
        }
    }
    refusals(&real, &own, &mut wrong).await;
    urls::compare(&real, &own, &mut wrong).await;
    patterns::compare(&real, &own, &mut wrong).await;
    assert!(wrong.is_empty(), "{wrong}");
    running.end().await;
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct Post {
    spec: PostSpec,
}

#[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct PostSpec {
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self != 'no'", "message": "is no title"}]))]
    title: String,
}

#[tokio::test]
async fn rules_of_a_rust_type_are_evaluated() {
    const POSTS: &str = "/apis/blog.example.com/v1/namespaces/default/posts";
    let kind = kubefold_apiserver::Kind::of::<Post>("blog.example.com", "v1", "Post").schema();
    let running = Own::new().kind(kind).start().await.unwrap();
    let own = Server::Embedded(running.service());
    let post = |title: &str| json!({"apiVersion": "blog.example.com/v1", "kind": "Post", "metadata": {"name": "a"}, "spec": {"title": title}});
    let (code, told) = own.answer(&step("POST", POSTS, post("no"))).await;
    assert_eq!(
        (code, told["details"]["causes"][0]["message"].as_str()),
        (422, Some("Invalid value: \"no\": is no title"))
    );
    assert_eq!(own.answer(&step("POST", POSTS, post("yes"))).await.0, 201);
    running.end().await;
}
