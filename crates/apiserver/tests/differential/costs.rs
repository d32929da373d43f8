//! What rules in CEL cost at most, at a kube-apiserver and at the embedded server: which definitions are refused for it, and in
//! which words.

use kubefold_apiserver::Server as Own;
use serde_json::{Map, Value, json};

use super::{
    rules::{REFUSED, TYPED, cases, properties},
    writes::{Server, step},
};
use testbed::{Member, MemberOptions};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const TRIED: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
const ONE: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/meters.costs.example.com";

/// Rules whose costs are compared beside those of the rules of [`cases`].
const RULES: &[&str] = &[
    "self.text.contains(self.name)",
    "self.text.matches('^[a-z]+$')",
    "self.text.matches(self.name)",
    "matches(self.text, self.name)",
    "self.free.startsWith(self.name)",
    "self.text.endsWith(self.free)",
    "self.text < self.name || self.data > b'abc'",
    "self.text == self.free && self.free != self.name",
    "self.kind == 'abc' || self.kind.contains(self.kind)",
    "self.when > timestamp('2020-01-01T00:00:00Z') && self.day == self.when",
    "self.wait == duration('1s')",
    "string(self.data) == self.text && bytes(self.text) == self.data",
    "string(bytes(self.name)).contains(self.text)",
    "self.either == self.bounded && self.either == 5",
    "dyn(self.bounded).size() == dyn(self.text).size()",
    "self.bounded.contains('a') && self.bounded.startsWith(self.bounded)",
    "self.text.split(',').size() == 2",
    "self.text.split(',', 3).all(part, part.contains(self.name))",
    "self.text.split(',').exists(part, part == self.name)",
    "self.name.split(',').map(part, part + self.text).join('-').contains('x')",
    "self.tags.join(',').contains(self.tags.join())",
    "self.words.join().contains('a')",
    "self.text.replace('a', 'bb').contains('x')",
    "self.text.replace('', self.name).contains('x')",
    "self.text.replace('abc', 'b').contains('x')",
    "self.text.replace(self.name, 'b', 2).matches('x')",
    "self.text.lowerAscii().upperAscii().trim().substring(1).contains('a')",
    "self.text.charAt(1).contains('a')",
    "self.text.find(self.name).contains('a')",
    "self.text.findAll('[a-z]+').all(part, part.matches('a'))",
    "self.text.findAll('[a-z]+', 2).exists_one(part, part == 'a')",
    "'%s and %s'.format([self.text, self.name]).contains('a')",
    "self.tags.all(a, self.words.all(b, a == b))",
    "self.tags.exists(a, self.numbers.exists(b, b > 3 && a.contains('a')))",
    "self.tags.map(a, a + 'x').exists(a, a.contains('b'))",
    "self.tags.map(a, a + self.text).all(a, a.contains('b'))",
    "self.tags.map(a, a.size() > 1, a).filter(a, a != 'b').size() == 2",
    "self.tags.filter(a, a.matches('b')).all(a, a.contains('c'))",
    "self.tags.exists_one(a, a.contains('c'))",
    "(self.tags + self.words).all(a, a.contains('c'))",
    "(self.tags + ['a', 'bcd']).all(a, a.contains('c'))",
    "(['a', 'bcd'] + ['efgh']).all(a, self.text.contains(a))",
    "[self.text, self.name].all(a, a.contains('c'))",
    "['x', self.name].all(a, self.text.contains(a))",
    "{'a': self.text, 'bc': 'd'}.all(key, self.text.contains(key))",
    "{'a': self.text, 'bc': 'd'}['a'].contains('x')",
    "[self.text, self.name][1].contains('x')",
    "self.tags[0].contains(self.tags[1])",
    "self.labels['a'].contains(self.labels.b)",
    "self.labels.all(key, key.contains('a') && self.labels[key].contains('b'))",
    "self.labels.map(key, self.labels[key]).all(value, value.matches('a'))",
    "self.groups.all(key, self.groups[key].all(one, one.matches(key)))",
    "self.groups.all(key, self.groups[key].exists(one, one.matches('a')))",
    "self.ports.all(p, p.name.contains('a') && p.tags.all(tag, tag.matches('b')))",
    // The place of what is gone through is overwritten by that of what is used for it.
    "self.ports.all(p, p.tags.all(tag, tag == p.name))",
    "self.ports.all(p, p.tags.all(tag, tag == 'a' && p.about == tag))",
    "self.ports.all(p, p.tags.exists(tag, p.port > 1) && p.about.contains(p.name))",
    "self.ports.all(p, self.ports.exists_one(q, p.name == q.name && p.about == q.about))",
    "self.ports.map(p, p.name).all(name, name.contains('a'))",
    "self.ports.map(p, p).all(p, p.name.contains('a'))",
    "self.ports.filter(p, p.port > 1).all(p, p.about.contains('a'))",
    "self.ports[0].about.contains(self.ports[1].name)",
    "self.ports == self.ports && self.labels == self.labels",
    "self == self || self in [self]",
    "self == oldSelf && self.text == oldSelf.text",
    "self.name in self.tags || self.name in self.labels || 5 in self.numbers",
    "self.name in ['a', 'b', 'c']",
    "(self.on ? self.text : self.name).contains('a')",
    "(self.on ? self.tags : self.words).all(a, a.contains('x'))",
    "(self.on ? ['a'] : ['bcd']).all(a, self.text.contains(a))",
    "has(self.text) && has(self.ports) && !has(self.labels.x)",
    "self.?text.orValue('abc').contains('a')",
    "self.?ports[?0].?name.orValue('').contains('a')",
    "self.?text.optMap(t, t.contains('a')).orValue(false)",
    "self.?tags.optFlatMap(t, t.first()).orValue('x').contains('a')",
    "self.?ports.orValue([]).all(p, p.name.contains('a'))",
    "optional.of(self.text).value().contains('a')",
    "self.labels[?'a'].hasValue() && self.tags[?1].hasValue()",
    "optional.unwrap([self.?text, self.?name]).all(t, t.contains('a'))",
    "self.tags.isSorted() && self.words.isSorted() && self.numbers.isSorted()",
    "self.tags.max() == self.tags.min() && self.numbers.sum() == 3",
    "self.tags.indexOf('a') == self.text.indexOf('a')",
    "self.tags.map(a, a).lastIndexOf('x') == self.text.lastIndexOf(self.name, 3)",
    "self.tags.map(a, a).isSorted() && self.numbers.map(a, a * 2).max() == 1",
    "self.tags.slice(1, 3).all(a, a.contains('x'))",
    "self.tags.slice(int(self.name), self.numbers[0]).size() == 1",
    "self.tags.reverse().all(a, a.contains('x'))",
    "self.tags.distinct().all(a, a.contains('x'))",
    "self.tags.sort() == self.words.sort() && self.numbers.sort() == [1]",
    "self.ports.sortBy(p, p.port).all(p, p.name.contains('a'))",
    "self.ports.sortBy(p, p.name)[0].name.contains('a')",
    "[self.tags, self.words].flatten().all(a, a.contains('b'))",
    "[[self.numbers]].flatten(2).size() == 3",
    "lists.range(10).all(i, i > self.min) && lists.range(3).size() == 3",
    "sets.contains(self.tags, ['a', 'b']) && sets.intersects(self.tags, self.words)",
    "sets.equivalent(self.numbers, [1, 2, 3])",
    "quantity(self.text) == quantity(self.name)",
    "isURL(self.free)",
    "isURL(self.text) && url(self.text).getHost() == self.name",
    "url(self.text) == url(self.name)",
    "url(self.name) == url(self.free)",
    "url(self.free) != url(self.name)",
    "url(self.text).getQuery()['a'].exists(value, value == self.text)",
    "url(self.text).getQuery().all(name, name.contains(self.text))",
    "(self.text == '' ? url(self.text) : url(self.free)) == url(self.free)",
    "url(self.free) in [url(self.text)]",
    "isQuantity(self.free) && quantity(self.text).add(quantity('1')).isLessThan(quantity('3'))",
    "semver(self.text) == semver('1.0.0') && isSemver(self.name, true)",
    "ip(self.text) == ip(self.name) && isIP(self.name) && ip.isCanonical(self.text)",
    "cidr(self.name) == cidr(self.text) && isCIDR(self.text)",
    "cidr(self.name).containsIP(self.text) && cidr(self.name).containsIP(ip(self.text))",
    "cidr(self.name).containsCIDR(self.text) && cidr(self.name).containsCIDR(cidr(self.text))",
    "string(ip(self.name)) == self.text && string(cidr(self.name).ip()) == 'x'",
    "format.dns1123Label().validate(self.text).hasValue()",
    "format.named(self.name).value().validate(self.name).value().all(one, one.contains('a'))",
    "format.uuid() == format.named('uuid').value()",
    "type(self.text) == string && type(self.wait) == google.protobuf.Duration",
    "string(self.min) == self.name && int(self.name) == self.min && double(self.name) > self.ratio",
    "self.min + self.max > 3 && -self.min < self.max * 2 && self.min % 2 == 1",
    "self.on && !self.on || self.min == 1 && (self.on || self.min == 2)",
    "self.text + self.name + 'abc' == self.free",
    "(self.text + self.name).contains(self.name + 'a')",
    "self.data + b'abc' == self.data",
    "self.my__dash__text.contains(self.__namespace__)",
    "self.whole.metadata.name.contains('a') && self.whole.kind == 'a'",
    "self.whole.spec.text.contains('a')",
    "self.tags.all(self, self.contains('a'))",
    "self.tags.all(a, self.words.all(a, a.contains('b')) && a.contains('c'))",
    "[1, 2, 3].all(i, self.text.contains('a'))",
    "[].all(i, i == 1) && {}.all(i, i == 1)",
    "self.tags.all(i, tag, i > 1 && tag.contains('a'))",
    "self.labels.exists(key, value, value.contains(key))",
    "self.groups.all(key, words, words.exists(i, word, word.matches(key)))",
    "self.ports.exists_one(i, p, p.about.contains(p.name) && p.tags.all(tag, tag.matches('b')))",
    "self.tags.transformList(i, tag, tag + self.text).all(tag, tag.contains('a'))",
    "self.tags.transformList(i, tag, i > 1, tag)[0].contains('a')",
    "self.labels.transformList(key, value, key + value).join(',').contains('a')",
    "self.labels.transformMap(key, value, value + key).all(key, key.contains('a'))",
    "self.labels.transformMap(key, value, value != '', value)['a'].contains(self.text)",
    "self.tags.transformMap(i, tag, tag).all(i, tag, i > 1 && tag.contains('a'))",
    "self.labels.transformMapEntry(key, value, {value: key})['a'].contains(self.text)",
    "self.tags.transformMapEntry(i, tag, i > 1, {tag: i}).all(key, key.contains('a'))",
    "['a', self.text].all(i, word, word.contains('a'))",
    "{'a': self.text}.all(key, word, word.contains(key))",
    "self.when.getFullYear('UTC') == 2020 && self.wait.getHours() == 1 && self.day.getDate() == 1",
];

/// Twelve of it cost too much together, at 40,000 letters.
const RULES_TOGETHER: &str =
    "self.contains('abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz')";

fn text(max: u64) -> Value {
    json!({"type": "string", "maxLength": max})
}

fn list(max: u64, items: &Value) -> Value {
    json!({"type": "array", "maxItems": max, "items": items})
}

fn map(max: u64, values: &Value) -> Value {
    json!({"type": "object", "maxProperties": max, "additionalProperties": values})
}

fn object(properties: &Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn ruled(mut schema: Value, rules: &[&str]) -> Value {
    let rules: Vec<Value> = rules.iter().map(|rule| json!({"rule": rule})).collect();
    schema["x-kubernetes-validations"] = rules.into();
    schema
}

/// Without a limit that a schema has.
fn without(mut schema: Value, name: &str) -> Value {
    schema.as_object_mut().unwrap().remove(name);
    schema
}

fn bounded() -> Value {
    json!({
        "text": text(1000), "name": text(20), "free": {"type": "string"}, "kind": {"type": "string", "enum": ["a", "äbc"]},
        "when": {"type": "string", "format": "date-time"}, "day": {"type": "string", "format": "date"},
        "wait": {"type": "string", "format": "duration"}, "data": {"type": "string", "format": "byte", "maxLength": 50},
        "either": {"x-kubernetes-int-or-string": true}, "bounded": {"x-kubernetes-int-or-string": true, "maxLength": 10},
        "min": {"type": "integer"}, "max": {"type": "integer"}, "ratio": {"type": "number"}, "on": {"type": "boolean"},
        "tags": list(5, &text(20)), "words": list(7, &json!({"type": "string"})), "numbers": list(9, &json!({"type": "integer"})),
        "labels": map(5, &text(30)), "groups": map(4, &list(3, &text(8))), "my-text": text(11), "namespace": text(12),
        "ports": list(6, &object(&json!({"name": text(15), "about": text(100), "port": {"type": "integer"}, "tags": list(8, &text(3))}))),
        "whole": {"type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"spec": object(&json!({"text": text(40)}))}},
    })
}

fn definition(spec: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "meters.costs.example.com"},
        "spec": {"group": "costs.example.com", "scope": "Namespaced", "names": {"plural": "meters", "kind": "Meter"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": spec}}}}]},
    })
}

/// A rule in lists of ever more items: of one the cost is told to six digits.
fn scaled(rule: &str, properties: &Value) -> Value {
    let mut max = 100.0_f64;
    let mut all = Map::new();
    while max < 4_000_000.0 {
        let item = ruled(object(properties), &[rule]);
        let mut list = list(max.round() as u64, &item);
        // So `oldSelf` may be used.
        list["x-kubernetes-list-type"] = "map".into();
        list["x-kubernetes-list-map-keys"] = json!(["key"]);
        list["items"]["properties"]["key"] = text(5);
        list["items"]["required"] = json!(["key"]);
        all.insert(format!("a{}", max.round()), list);
        max *= 1.45;
    }
    object(&all.into())
}

/// The words about costs, sorted: a kube-apiserver goes through properties in any order. So it names any of those that cost too
/// much to be counted.
fn told(answer: &Value) -> Vec<String> {
    let causes = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
    let is_cost = |cause: &&Value| cause["message"].as_str().is_some_and(|text| text.contains("exceeds budget"));
    let forbidden = causes.iter().filter(is_cost);
    let mut told: Vec<String> = forbidden.map(|cause| format!("{}: {}", cause["field"], cause["message"])).collect();
    told.sort();
    told
}

async fn costs(real: &Server, own: &Server, wrong: &mut String) {
    let known = cases().into_iter().map(|(rule, ..)| rule).chain(REFUSED.iter().chain(TYPED).copied());
    let of_known = known.map(|rule| (rule, properties()));
    let (mut compared, mut exact) = (0, 0);
    for (rule, properties) in RULES.iter().map(|rule| (*rule, bounded())).chain(of_known) {
        let step = step("POST", TRIED, definition(&scaled(rule, &properties)));
        let (said, answered) = (real.raw(&step).await, own.raw(&step).await);
        let (said_costs, told_costs) = (told(&said.1), told(&answered.1));
        compared += 1;
        exact += usize::from(said_costs.iter().any(|told| told.contains("factor of 1.") && told.contains("estimated")));
        if (said.0, &said_costs) != (answered.0, &told_costs) {
            let only = |some: &[String], others: &[String]| -> Vec<String> {
                some.iter().filter(|one| !others.contains(one)).take(3).cloned().collect()
            };
            let (said_only, told_only) = (only(&said_costs, &told_costs), only(&told_costs, &said_costs));
            wrong
                .push_str(&format!("{rule}\n  {} said {said_only:#?}\n  {} told {told_only:#?}\n", said.0, answered.0));
        }
    }
    assert!(compared >= 400 && exact >= 240, "{compared} rules, of {exact} the cost to six digits");
}

fn unbounded() -> Vec<Value> {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let names = json!({"type": "array", "items": text(10)});
    let nested = json!({"type": "array", "items": texts});
    let labels = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let port = object(&json!({"name": {"type": "string"}, "port": {"type": "integer"}}));
    let required = json!({"type": "object", "required": ["name", "port"], "properties": {"name": text(5), "port": {"type": "integer"}}});
    let free = json!({"type": "string"});
    let items = |items: &Value| json!({"type": "array", "items": items});
    vec![
        ruled(texts.clone(), &["self.all(a, a.contains('x'))"]),
        ruled(texts.clone(), &["self.all(a, self.exists(b, a == b))"]),
        ruled(texts, &["self.size() < 5", "self[0] == 'a'"]),
        ruled(names.clone(), &["self.all(a, a.size() > 1)"]),
        ruled(names, &["self.exists_one(a, a == 'x')"]),
        ruled(nested.clone(), &["self.all(a, a.all(b, b == 'x'))"]),
        ruled(nested, &["self.all(a, a.size() < 3)"]),
        ruled(labels.clone(), &["self.all(key, key.startsWith('a'))"]),
        ruled(labels.clone(), &["self.all(key, self[key].matches('^a+$'))"]),
        ruled(labels, &["self.exists(key, self[key] == key)", "'a' in self"]),
        ruled(free.clone(), &["self.matches('^[a-z0-9]{1,20}$')"]),
        ruled(free.clone(), &["self.contains('abc')"]),
        ruled(free.clone(), &["self.contains('abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz')"]),
        ruled(free.clone(), &["self.contains(self)"]),
        ruled(free.clone(), &["self.split(',').all(a, a == 'x')"]),
        ruled(free.clone(), &["self.split(',').join('-') == self"]),
        ruled(free.clone(), &["self.replace('a', 'bcdef').contains(self)"]),
        ruled(free.clone(), &["self == 'a'", "self.startsWith('b')", "self.lowerAscii() == self"]),
        ruled(free, &["self.find('[a-z]+') == ''", "self.findAll('[a-z]+').size() > 2"]),
        ruled(json!({"type": "string", "format": "byte"}), &["self == b'a'", "string(self).contains('abcdefghijk')"]),
        ruled(json!({"type": "string", "format": "date-time"}), &["self > timestamp('2020-01-01T00:00:00Z')"]),
        ruled(json!({"x-kubernetes-int-or-string": true}), &["self == 5 || self.matches('^[0-9]+%$')"]),
        ruled(json!({"type": "string", "enum": ["a", "bcd"]}), &["self.matches('a')", "self != 'bcd'"]),
        ruled(object(&json!({"ports": items(&port)})), &["self.ports.all(p, p.name.contains('a'))"]),
        ruled(
            object(&json!({"ports": items(&required)})),
            &["self.ports.all(p, self.ports.exists_one(q, p.name == q.name))"],
        ),
        ruled(object(&json!({"ports": items(&required)})), &["self.ports.map(p, p.port).sum() < 9"]),
        items(&ruled(port.clone(), &["self.name == 'a'"])),
        items(&ruled(port.clone(), &["self.name.contains('a')"])),
        items(&ruled(required.clone(), &["self.name == 'a'", "self.port > 1"])),
        items(&ruled(json!({"type": "integer"}), &["self > 1 && self < 10 && self != 5"])),
        items(&ruled(json!({"type": "boolean"}), &["self || !self"])),
        items(&ruled(json!({"type": "string", "format": "duration"}), &["self > duration('1s')"])),
        items(&ruled(
            json!({"type": "string", "format": "date"}),
            &["self > timestamp('2020-01-01T00:00:00Z') && self == self"],
        )),
        json!({"type": "object", "additionalProperties": ruled(port, &["self.name.size() < 5"])}),
        json!({"type": "object", "additionalProperties": items(&ruled(required, &["self.port > 1 && self.name != ''"]))}),
    ]
}

fn limited() -> Vec<Value> {
    let deep = |max: u64, rule: &str| list(max, &map(max, &list(max, &ruled(text(10), &[rule]))));
    let mut all = Vec::new();
    // Around the limit of one rule.
    for max in [12_499, 12_500, 12_501, 400_000] {
        all.push(ruled(text(max), &["self.contains('abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz')"]));
        all.push(ruled(list(max * 10, &text(5)), &["self.all(a, a.contains('x'))"]));
        all.push(ruled(map(max * 10, &text(5)), &["self.all(a, self[a] == 'x')"]));
    }
    for max in [99, 100, 101, 105, 115, 130, 1_000, 10_000] {
        all.push(deep(max, "self == 'abc'"));
        all.push(deep(max, "self.matches('^[a-z]+$')"));
        all.push(ruled(list(max, &list(max, &list(max, &text(10)))), &["self.all(a, a.all(b, b.all(c, c == 'x')))"]));
    }
    all.push(without(deep(10, "self == 'abc'"), "maxItems"));
    let mut inner = deep(10, "self == 'abc'");
    inner["items"] = without(inner["items"].clone(), "maxProperties");
    all.push(inner);
    all.push(list(0, &ruled(text(10), &["self == 'a'"])));
    // All together.
    let costly = "self.matches('abcdefghijklmnopqrstuvwxyzabcdefghij')";
    for count in [9, 10, 11, 12, 13, 20] {
        all.push(ruled(text(24_000), &vec![costly; count]));
    }
    let costs = ["self.contains('abcdefghij')", costly, "self == 'a'", "self.matches('abcd')"];
    all.push(ruled(text(400_000), &[costs, costs, costs].concat()));
    all.push(ruled(json!({"type": "string"}), &[costs, costs].concat()));
    // At several depths: those inside are told first.
    let within = ruled(list(500, &ruled(text(30_000), &[costs[0], costs[1]])), &["self.all(a, a.matches('abc'))"]);
    all.push(ruled(
        object(&json!({"list": within})),
        &["self.list.size() < 3", "self.list.all(a, a.contains('abcdefghijklmn'))"],
    ));
    // With what is wrong otherwise.
    all.push(ruled(text(4_000_000), &[costly, "self.nope()", "self"]));
    all
}

fn messages() -> Vec<Value> {
    let told = |mut schema: Value, rule: &str, message: &str| {
        schema["x-kubernetes-validations"] = json!([{"rule": rule, "messageExpression": message}]);
        schema
    };
    let free = json!({"type": "string"});
    let texts = json!({"type": "array", "items": {"type": "string"}});
    let costly = "self.matches('abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz') ? 'a' : 'b'";
    let mut optional = ruled(free.clone(), &["!oldSelf.hasValue() || self.contains(oldSelf.value())"]);
    optional["x-kubernetes-validations"][0]["optionalOldSelf"] = true.into();
    let mut unused = ruled(free.clone(), &["self.contains(self)"]);
    unused["x-kubernetes-validations"][0]["optionalOldSelf"] = true.into();
    let mut unread = ruled(free.clone(), &["self.nope"]);
    unread["x-kubernetes-validations"][0]["optionalOldSelf"] = true.into();
    vec![
        told(free.clone(), "self != 'a'", costly),
        told(free.clone(), "self.contains(self)", costly),
        told(free.clone(), "self != 'a'", "'no ' + self"),
        told(free.clone(), "self.contains(self)", "self.nope"),
        told(texts.clone(), "self.size() < 3", "self.join(', ')"),
        told(texts.clone(), "self.size() < 3", "self.map(a, a + a).join(', ')"),
        list(100, &told(text(100_000), "self != 'a'", costly)),
        json!({"type": "array", "items": told(text(100), "self != 'a'", costly)}),
        ruled(free.clone(), &["self == oldSelf", "self.contains(oldSelf)"]),
        ruled(texts, &["self.all(a, a in oldSelf)", "self == oldSelf"]),
        json!({"type": "array", "items": ruled(free, &["self == oldSelf", "self.contains(oldSelf)"])}),
        optional,
        unused,
        unread,
    ]
}

#[tokio::test]
async fn rules_that_cost_too_much_are_refused_as_at_a_kube_apiserver() {
    let member = Member::start("costs", MemberOptions::default()).await;
    let running = Own::new().start().await.unwrap();
    let (real, own) = (Server::Real(Box::new(member.api().await)), Server::Embedded(running.service()));
    let mut wrong = String::new();
    let schemas: Vec<Value> = [unbounded(), limited(), messages()].concat();
    let mut steps: Vec<_> = schemas.iter().map(|spec| step("POST", TRIED, definition(spec))).collect();
    let mut root = definition(&json!({"type": "object", "additionalProperties": {"type": "string"}}));
    root["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = json!([{"rule": "self.metadata.name.contains('abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz')"}, {"rule": "self.spec.all(a, a == self.kind)"}]);
    steps.push(step("POST", TRIED, root));
    // What is stored, and then costs too much.
    let cheap = json!({"type": "string", "x-kubernetes-validations": [{"rule": "self != 'a'"}]});
    let costly = ruled(json!({"type": "string"}), &["self != 'a'", "self.contains(self)"]);
    let version = |name: &str, spec: &Value| {
        let mut version = definition(spec)["spec"]["versions"][0].clone();
        version["name"] = name.into();
        version["storage"] = (name == "v1").into();
        version
    };
    let changed = |versions: &[Value]| step("PATCH", ONE, json!({"spec": {"versions": versions}}));
    steps.push(step("POST", DEFINITIONS, definition(&cheap)));
    let costlier = ruled(json!({"type": "string"}), &["self.matches(self)", "self.contains(self)"]);
    let large = ruled(text(40_000), &[RULES_TOGETHER; 12]);
    steps.push(changed(&[version("v1", &costly)]));
    steps.push(changed(&[version("v1", &costlier)]));
    steps.push(changed(&[version("v1", &large)]));
    for [first, second] in
        [[&cheap, &costly], [&costly, &costly], [&costly, &cheap], [&large, &cheap], [&cheap, &large]]
    {
        steps.push(changed(&[version("v1", first), version("v2", second)]));
    }
    steps.push(step("PATCH", ONE, json!({"metadata": {"labels": {"a": "b"}}})));
    assert!(steps.len() >= 90, "{}", steps.len());
    let mut refused = 0;
    for step in &steps {
        let (said, told) = (real.answer(step).await, own.answer(step).await);
        refused += usize::from(said.0 == 422 && said.1.to_string().contains("exceed"));
        if said != told {
            wrong.push_str(&format!(
                "{} {}\n  said {} {}\n  told {} {}\n\n",
                step.path, step.body, said.0, said.1, told.0, told.1
            ));
        }
    }
    assert!(refused >= 40, "{refused}");
    costs(&real, &own, &mut wrong).await;
    assert!(wrong.is_empty(), "{wrong}");
    running.end().await;
}
