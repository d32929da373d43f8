// Command table-columns writes the columns of every kind that a kube-apiserver prints specially.
//
//	cd tests/testbed && go run ./table-columns > ../../crates/table/src/columns.txt
//
// They are read from the printers that the server itself registers, so that they cannot differ from what it answers.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/printers/internalversion"
)

// groups are named by the Go package of their internal types; the others by the package's name with ".k8s.io".
var groups = map[string]string{
	"core": "", "apps": "apps", "autoscaling": "autoscaling", "batch": "batch", "policy": "policy",
	"rbac": "rbac.authorization.k8s.io", "flowcontrol": "flowcontrol.apiserver.k8s.io",
	"apiserverinternal": "internal.apiserver.k8s.io", "v1": "meta.k8s.io",
}

type handler struct {
	kinds map[string]string
	// known columns stand at the top, and go by their name.
	known map[string]string
}

func (h handler) TableHandler(columns []metav1.TableColumnDefinition, printFunc interface{}) error {
	kind := reflect.TypeOf(printFunc).In(0).Elem()
	if strings.HasSuffix(kind.Name(), "List") {
		return nil
	}
	parts := strings.Split(kind.PkgPath(), "/")
	name := parts[len(parts)-1]
	group, known := groups[name]
	if !known {
		group = name + ".k8s.io"
	}
	out := ""
	for _, column := range columns {
		// As the server's own encoder: it escapes HTML.
		text, err := json.Marshal(column)
		if err != nil {
			return err
		}
		line := string(text)
		for name, known := range h.known {
			if line == known {
				line = name
			}
		}
		out += line + "\n"
	}
	h.kinds[fmt.Sprintf("kind %s/%s", group, kind.Name())] = out
	return nil
}

func main() {
	h := handler{kinds: map[string]string{}, known: map[string]string{}}
	meta := metav1.ObjectMeta{}.SwaggerDoc()
	for name, column := range map[string]metav1.TableColumnDefinition{
		"name": {Name: "Name", Type: "string", Format: "name", Description: meta["name"]},
		"age":  {Name: "Age", Type: "string", Description: meta["creationTimestamp"]},
	} {
		text, err := json.Marshal(column)
		if err != nil {
			os.Exit(1)
		}
		h.known[name] = string(text)
	}
	internalversion.AddHandlers(h)
	version := "?"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "k8s.io/kubernetes" {
				version = module.Version
			}
		}
	}
	fmt.Printf("# Columns of the kinds that a kube-apiserver prints specially, one to a line, as it writes them.\n#\n")
	fmt.Printf("# Generated, do not edit: tests/testbed/table-columns. From k8s.io/kubernetes %s.\n", version)
	for _, name := range []string{"name", "age"} {
		fmt.Printf("%s %s\n", name, h.known[name])
	}
	names := make([]string, 0, len(h.kinds))
	for name := range h.kinds {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if _, err := fmt.Fprintf(os.Stdout, "%s\n%s", name, h.kinds[name]); err != nil {
			os.Exit(1)
		}
	}
}
