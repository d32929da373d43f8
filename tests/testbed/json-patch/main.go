// Command json-patch writes what the patch library of a kube-apiserver makes of patches.
//
//	cd tests/testbed && go run ./json-patch > ../../crates/wire/src/patch/vectors.json
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

const live = `{"a":1,"f":1.5,"s":"x","z":null,"o":{"k":"v","n":null},"l":[1,2,3],"m":[{"name":"p","v":1},{"name":"q"}],"a/b":{"c~d":1}}`

// Patches of the object above, as clients write them.
var patches = strings.Split(strings.TrimSpace(`
[]
[{"op":"add","path":"/b","value":2}]
[{"op":"add","path":"/b"}]
[{"op":"add","path":"/a","value":2}]
[{"op":"add","path":"","value":{"x":1}}]
[{"op":"add","path":"b","value":2}]
[{"op":"add","path":"x/b","value":2}]
[{"op":"add","path":"/","value":2}]
[{"op":"add","path":"/b/c","value":2}]
[{"op":"add","path":"/a/c","value":2}]
[{"op":"add","path":"/z/c","value":2}]
[{"op":"add","path":"/l/-","value":4}]
[{"op":"add","path":"/l/3","value":4}]
[{"op":"add","path":"/l/4","value":4}]
[{"op":"add","path":"/l/-1","value":4}]
[{"op":"add","path":"/l/-4","value":4}]
[{"op":"add","path":"/l/-5","value":4}]
[{"op":"add","path":"/l/+1","value":4}]
[{"op":"add","path":"/l/01","value":4}]
[{"op":"add","path":"/l/x","value":4}]
[{"op":"add","path":"/m/-1/v","value":4}]
[{"op":"remove","path":"/a"}]
[{"op":"remove","path":"/z"}]
[{"op":"remove","path":"/nothing"}]
[{"op":"remove","path":"/nothing/there"}]
[{"op":"remove","path":"/l/0"}]
[{"op":"remove","path":"/l/-1"}]
[{"op":"remove","path":"/l/3"}]
[{"op":"remove","path":"/l/-4"}]
[{"op":"remove","path":"/l/-"}]
[{"op":"remove","path":""}]
[{"op":"replace","path":"/nothing","value":1}]
[{"op":"replace","path":"/o/nothing","value":1}]
[{"op":"replace","path":"/nothing/there","value":1}]
[{"op":"replace","path":"/l/-1","value":9}]
[{"op":"replace","path":"/l/3","value":9}]
[{"op":"replace","path":"/l/-4","value":9}]
[{"op":"replace","path":"","value":{"x":1}}]
[{"op":"replace","path":"","value":[1]}]
[{"op":"replace","path":"","value":1}]
[{"op":"replace","path":"","value":null}]
[{"op":"move","from":"/a","path":"/b"}]
[{"op":"move","from":"/z","path":"/b"}]
[{"op":"move","from":"/nothing","path":"/b"}]
[{"op":"move","from":"/l/0","path":"/l/2"}]
[{"op":"move","from":"/l/0","path":"/l/3"}]
[{"op":"move","from":"/o","path":"/o/k"}]
[{"op":"move","from":"","path":"/b"}]
[{"op":"move","path":"/b"}]
[{"op":"copy","from":"/o","path":"/b"},{"op":"add","path":"/b/k","value":2}]
[{"op":"copy","from":"/nothing","path":"/b"}]
[{"op":"copy","from":"/nothing/there","path":"/b"}]
[{"op":"copy","from":"/l/9","path":"/b"}]
[{"op":"copy","from":"/l/-1","path":"/l/0"}]
[{"op":"copy","path":"/b"}]
[{"op":"test","path":"/a","value":1}]
[{"op":"test","path":"/a","value":1.0}]
[{"op":"test","path":"/a","value":2}]
[{"op":"test","path":"/a","value":"1"}]
[{"op":"test","path":"/f","value":1.5}]
[{"op":"test","path":"/s","value":"x"}]
[{"op":"test","path":"/z","value":null}]
[{"op":"test","path":"/z"}]
[{"op":"test","path":"/z","value":0}]
[{"op":"test","path":"/nothing","value":null}]
[{"op":"test","path":"/nothing"}]
[{"op":"test","path":"/nothing","value":1}]
[{"op":"test","path":"/nothing/there","value":null}]
[{"op":"test","path":"/a"}]
[{"op":"test","path":"/l/9","value":null}]
[{"op":"test","path":"/l","value":[1,2,3]}]
[{"op":"test","path":"/l","value":[1,2]}]
[{"op":"test","path":"/o","value":{"n":null,"k":"v"}}]
[{"op":"test","path":"/o","value":{"k":"v"}}]
[{"op":"test","path":"","value":{"x":1}}]
[{"op":"test","path":"/a~1b/c~0d","value":1}]
[{"op":"jump","path":"/a"}]
[{"op":"add","value":1}]
[{"op":"add","path":null,"value":1}]
[{"path":"/a"}]
[{}]
[{"op":"remove","op":"add","path":"/b","path":"/c","value":1}]
{"a":null}
{"a":{"b":null,"c":1}}
{"z":{"b":null,"c":1}}
{"o":{"k":null,"x":{"y":null,"z":1}}}
{"o":[{"k":null}]}
{"l":[{"k":null}]}
{"a":[{"k":null}]}
{"new":[{"k":null,"j":[null,{"i":null}]},null]}
{"l":[null,1]}
{"o":1}
{"nothing":null}
{}
`), "\n")

type vector struct {
	Patch  string          `json:"patch"`
	Result json.RawMessage `json:"result"`
}

func apply(patch string) (json.RawMessage, error) {
	if strings.HasPrefix(patch, "{") {
		return jsonpatch.MergePatch([]byte(live), []byte(patch))
	}
	operations, err := jsonpatch.DecodePatch([]byte(patch))
	if err != nil {
		return nil, err
	}
	return operations.Apply([]byte(live))
}

func main() {
	fmt.Printf("{\"live\":%s,\"vectors\":[\n", live)
	for at, patch := range patches {
		result, err := apply(patch)
		if err != nil {
			result = json.RawMessage("null")
		}
		line, err := json.Marshal(vector{patch, result})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		comma := ","
		if at == len(patches)-1 {
			comma = ""
		}
		fmt.Printf("%s%s\n", line, comma)
	}
	fmt.Println("]}")
}
