// Command jsonpath writes golden vectors of what client-go's JSONPath finds, as columns of custom resources use it.
//
//	cd tests/testbed && go run ./jsonpath > ../../crates/wire/src/jsonpath/vectors.txt
//
// scripts/generated compares the file with what this program writes.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"

	"k8s.io/client-go/util/jsonpath"
	kjson "sigs.k8s.io/json"
)

const header = `# What client-go's JSONPath finds, for crates/wire/src/jsonpath.rs.
#
# Generated, do not edit: tests/testbed/jsonpath.
#
# One JSON array to a line: ["document", it], then ["path", what stands between the braces, outcome] of paths in that
# document. The outcome is "refused" where the path is not understood, "nothing" where it leads to nothing or fails, and
# else the first value that it leads to, in an array.
`

var documents = []string{
	`{"metadata": {"labels": {"a.b/c": "dot"}, "name": "x"}, "spec": {"list": [{"type": "A", "n": 1}, {"type": "Ready",
		"status": "True", "n": 2}], "empty": [], "f": 1.5, "none": null, "on": true}}`,
	`{"a": [{"a": [], "b": "x"}, {"a": [1, 2, 3], "b": "y"}, {"a": [{"b": "x"}]}, null]}`,
	`{"a": {"b": {"a": [{"a": 1, "b": "x"}, {"a": 2.5, "b": "y"}, {"a": true, "b": "z'\"\n"}]}}, "b": "t"}`,
	// Of client-go's own tests: util/jsonpath/jsonpath_test.go.
	`{"kind": "List", "items": [{"kind": "None", "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname":
		"127.0.0.1"}}, "status": {"capacity": {"cpu": "4"}, "ready": true, "addresses": [{"type": "LegacyHostIP", "address":
		"127.0.0.1"}]}}, {"kind": "None", "metadata": {"name": "127.0.0.2", "labels": {"kubernetes.io/hostname": "127.0.0.2"}},
		"status": {"capacity": {"cpu": "8"}, "ready": false, "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.2"},
		{"type": "another", "address": "127.0.0.3"}]}}], "users": [{"name": "myself", "user": {}}, {"name": "e2e", "user":
		{"username": "admin", "password": "secret"}}], "floats": [1.5, 2.2, 3.3, 4.5], "mixed": [true, "one", 1, 1.1]}`,
}

var paths = []string{
	"", ".", ".metadata.name", "metadata.name", "$.metadata.name", `.metadata.labels.a\.b/c`, `.metadata.labels['a\.b/c']`,
	".metadata.labels['a.b/c']", `.metadata.labels["a.b/c"]`, ".spec.list[0].type", ".spec.list[-1].type", ".spec.list[2].type",
	".spec.list[-3].type", ".spec.list[*].n", ".spec.list[0:1].n", ".spec.list[0:1:1].n", ".spec.list[0:2:0].n", ".spec.list[::2].n",
	".spec.list[:].n", ".spec.list[1:0].n", ".spec.list[+1].n", ".spec.list[a].n", ".spec.list[0:1:1:1].n", ".spec.list[", ".spec.list]",
	".spec.empty[0]", ".spec.empty[*]", ".spec.empty[-1]", `.spec.list[?(@.type=="Ready")].status`, ".spec.list[?(@.type == 'Ready')].n",
	".spec.list[?(@.n>1)].type", ".spec.list[?(@.n>=1)].type", ".spec.list[?(@.n<2)].type", ".spec.list[?(@.n<=0)].type",
	".spec.list[?(@.n!=1)].type", ".spec.list[?(@.n<>1)].type", ".spec.list[?(@.n==)].type", ".spec.list[?(1==@.n)].type",
	".spec.list[?(@.status)].n", ".spec.list[?(@.n>1.5)].type", `.spec.list[?(@.type=="\x41")].n`, `.spec.list[?(@.type=="A")].n`,
	`.spec.list[?(@.type=="\q")].n`, `.spec.list[?(@.type=='A"')].n`, `.spec.list[?(@.type=="A)")].n`, `.spec.list[?(@.type=="A]")].n`,
	".spec.list[?(@.type)", ".spec.list[?(@.type", ".spec.list[0,1].n", ".spec.list[1, 0].n", ".spec.list[1, a].n",
	".spec.list[0]['n','type']", ".spec.list[0]['type', 'n']", "..type", "..list[1].n", "...type", ".spec..n", ".spec.nothing.below",
	".spec.none", ".spec.none.x", ".spec.none[0]", ".spec.name[0]", ".spec.f", ".spec.on", ".spec.f.x", ".spec. f", ".spec .f", ".spec f",
	".spec.f range", ".spec.f end", ".spec.f true", ".spec.f 1", ".spec.f -1.5", ".spec.f 1.2.3", `.spec.f "t"`, `.spec.f 't\n'`, ".spec.f@", ".spec.f$",
	".spec.f,x", ".spec.f-x", `.spec.f\`, `.spec\.f`, ".spec.*", ".metadata.name.*", "['metadata']['name']", "['metadata'].name", "['metadata.name']",
	"[0]", ".metadata.labels.*", ".spec.list.*.n", "@.metadata.name", "true", "1", "'t'", "(", ".spec.f!", ".spec.f(x)",
	".items[*].status.addresses[*].address", ".items[*]['metadata.name', 'status.capacity']", `.users[?(@.name=="e2e")].user.password`,
	`.items[0].metadata.labels.kubernetes\.io/hostname`, `.items[?(@.metadata.labels.kubernetes\.io/hostname=="127.0.0.1")].kind`,
	".items[?(@..ready==true)].metadata.name", ".items[?(@.status.ready>false)].kind", ".floats[-2]", ".floats[:4:2]", ".floats[1::2]",
	".mixed[?(@>1)]", ".mixed[?(@==1)]", ".mixed[2]", ".users[0].user.*", ".users[*].user.username",
}

// What random paths are made of.
var parts = []string{
	".a", ".a", ".a", ".b", ".b", "..", "..a", ".*", "[0]", "[1]", "[-1]", "[*]", "[*]", "[0:1]", "[1:]", "[:-1]", "[0:0]", "['a']", "['a.b']",
	"[0,1]", "['a','b']", "[?(@.a)]", "[?(@.a==1)]", `[?(@.b=="x")]`, "[?(@.b!='y')]", "[?(@.a>1)]", "[?(@.a<2.6)]", "[?(@.a[0])]",
	"[?(@>1)]", "[?(@.a==true)]", " ", "@", "$", `\`, "x", "true", "7", `"t"`, "[", "]", "(", "'",
}

func main() {
	fmt.Print(header)
	random := rand.New(rand.NewPCG(2, 0))
	for range 900 {
		path := ""
		for range 1 + random.IntN(4) {
			path += parts[random.IntN(len(parts))]
		}
		paths = append(paths, path)
	}
	seen := map[string]bool{}
	for _, text := range documents {
		var document any
		check(kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &document))
		line("document", document)
		for _, path := range paths {
			outcome := find(path, document)
			stable := true
			// Go's maps have no order. A small one is walked from a random one of eight slots, so that few walks differ.
			for range 300 {
				stable = stable && reflect.DeepEqual(find(path, document), outcome)
			}
			key := fmt.Sprint(path, outcome)
			// A path without an outcome says the same in every document.
			if stable && !(seen[key] && (outcome == "nothing" || outcome == "refused")) {
				line("path", path, outcome)
			}
			seen[key] = true
		}
	}
}

// As apiextensions-apiserver's tableconvertor: the first value of the path in braces.
func find(path string, document any) any {
	// What closes the braces begins a template's text, which no column has.
	if strings.ContainsAny(path, "{}") {
		return "refused"
	}
	compiled := jsonpath.New("column").AllowMissingKeys(true)
	if err := compiled.Parse("{" + path + "}"); err != nil {
		return "refused"
	}
	results, err := compiled.FindResults(document)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return "nothing"
	}
	found := results[0][0]
	// A single byte of a text is printed as nothing.
	if found.Kind() == reflect.Uint8 {
		return "nothing"
	}
	return []any{found.Interface()}
}

func line(values ...any) {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(values))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
