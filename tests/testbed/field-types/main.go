// Command field-types writes what the embedded API server knows of the built-in kinds' fields.
//
//	cd tests/testbed && go run ./field-types > ../../src/apiserver/schema/builtin.txt
//
// Order, names and types are read from the Go types that a kube-apiserver decodes into; how lists merge, what is
// required and the defaults from its OpenAPI documents. Descriptions are left out.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

const header = `# The fields of Kubernetes' built-in kinds, for src/apiserver/schema/builtin.rs.
#
# Generated, do not edit: tests/testbed/field-types. From k8s.io/kubernetes %s.
#
# package NAME                what follows belongs to it
# struct NAME [ATTRIBUTES]    a type; its fields follow in the order in which JSON prints them
# NAME TYPE [ATTRIBUTES]      a field; NAME may end in ? omitted when empty, ! omitted when zero, and begin with the
#                             Go names of the structs that embed it, each followed by ^
#
# TYPE: *T may be absent, []T, map[string]T, GO=T where Go calls it GO; a struct of the same package goes by its name.
# ATTRIBUTES: kind=GROUP/VERSION, required, list=TYPE[:KEYS], map=TYPE, merge[=KEY], retainKeys, default=JSON.
`

// groups are the group versions of which everything is written.
var groups = []string{
	"v1", "apps/v1", "batch/v1", "coordination.k8s.io/v1", "discovery.k8s.io/v1", "events.k8s.io/v1",
	"rbac.authorization.k8s.io/v1", "storage.k8s.io/v1", "autoscaling/v1", "autoscaling/v2", "networking.k8s.io/v1",
	"policy/v1", "scheduling.k8s.io/v1", "apiextensions.k8s.io/v1", "apiregistration.k8s.io/v1",
	"admissionregistration.k8s.io/v1", "certificates.k8s.io/v1", "node.k8s.io/v1", "authentication.k8s.io/v1",
	"authorization.k8s.io/v1", "flowcontrol.apiserver.k8s.io/v1",
}

// meta are types that a server uses for all groups.
var meta = []any{
	metav1.Status{}, metav1.DeleteOptions{}, metav1.WatchEvent{}, metav1.APIResourceList{}, metav1.APIGroup{},
	metav1.APIGroupList{}, metav1.APIVersions{}, metav1.PartialObjectMetadata{}, metav1.PartialObjectMetadataList{},
}

// custom types read JSON by functions of their own.
var custom = map[string]string{
	"io.k8s.apimachinery.pkg.apis.meta.v1.Time":       "time",
	"io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime":  "micro-time",
	"io.k8s.apimachinery.pkg.apis.meta.v1.Duration":   "duration",
	"io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1":   "fields",
	"io.k8s.apimachinery.pkg.api.resource.Quantity":   "quantity",
	"io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
	"io.k8s.apimachinery.pkg.runtime.RawExtension":    "raw",
	apiextensions + "JSON":                            "json",
	apiextensions + "JSONSchemaPropsOrBool":           "schema-or-bool",
	apiextensions + "JSONSchemaPropsOrArray":          "schema-or-list",
	apiextensions + "JSONSchemaPropsOrStringArray":    "schema-or-strings",
}

const apiextensions = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."

type definition struct {
	Properties map[string]definition `json:"properties"`
	Required   []string              `json:"required"`
	Default    json.RawMessage       `json:"default"`
	ListType   string                `json:"x-kubernetes-list-type"`
	ListKeys   []string              `json:"x-kubernetes-list-map-keys"`
	MapType    string                `json:"x-kubernetes-map-type"`
	Strategy   string                `json:"x-kubernetes-patch-strategy"`
	MergeKey   string                `json:"x-kubernetes-patch-merge-key"`
	Kinds      []struct {
		Group, Version, Kind string
	} `json:"x-kubernetes-group-version-kind"`
}

type writer struct {
	definitions map[string]definition
	text        map[string]map[string]string
	seen        map[reflect.Type]bool
}

func main() {
	dir, version := module("k8s.io/kubernetes")
	w := &writer{documents(dir), map[string]map[string]string{}, map[reflect.Type]bool{}}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientscheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme,
	} {
		check(add(scheme))
	}
	for _, group := range groups {
		parsed, err := schema.ParseGroupVersion(group)
		check(err)
		for kind, typ := range scheme.KnownTypes(parsed) {
			// Options are read from queries, not from bodies.
			if !strings.HasSuffix(kind, "Options") && kind != "WatchEvent" {
				w.structure(typ)
			}
		}
	}
	for _, object := range meta {
		w.structure(reflect.TypeOf(object))
	}
	fmt.Printf(header, version)
	for _, name := range sorted(w.text) {
		fmt.Printf("\npackage %s\n", name)
		for _, typ := range sorted(w.text[name]) {
			fmt.Print(w.text[name][typ])
		}
	}
}

// documents reads every definition of the OpenAPI v3 documents.
func documents(dir string) map[string]definition {
	files, err := filepath.Glob(filepath.Join(dir, "api/openapi-spec/v3/*.json"))
	check(err)
	all := map[string]definition{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		check(err)
		var document struct {
			Components struct{ Schemas map[string]definition }
		}
		check(json.Unmarshal(text, &document))
		for name, definition := range document.Components.Schemas {
			all[name] = definition
		}
	}
	return all
}

// split gives the package and the name under which OpenAPI knows a Go type.
func split(typ reflect.Type) (string, string) {
	host, rest, _ := strings.Cut(typ.PkgPath(), "/")
	parts := strings.Split(host, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(rest, "/", "."), typ.Name()
}

func (w *writer) structure(typ reflect.Type) {
	if w.seen[typ] {
		return
	}
	w.seen[typ] = true
	pkg, name := split(typ)
	known, found := w.definitions[pkg+"."+name]
	if !found {
		fmt.Fprintln(os.Stderr, "no OpenAPI definition:", pkg+"."+name)
	}
	out := "struct " + name
	if len(known.Kinds) == 1 {
		out += " kind=" + known.Kinds[0].Group + "/" + known.Kinds[0].Version
	}
	if known.MapType != "" {
		out += " map=" + known.MapType
	}
	out += "\n" + w.fields(typ, pkg, known, "")
	if w.text[pkg] == nil {
		w.text[pkg] = map[string]string{}
	}
	w.text[pkg][name] = out
}

func (w *writer) fields(typ reflect.Type, pkg string, known definition, embedded string) string {
	out := ""
	for i := range typ.NumField() {
		field := typ.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		options = "," + options + ","
		switch {
		case name == "-":
			continue
		case name == "" && field.Anonymous:
			inner := field.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			out += w.fields(inner, pkg, known, embedded+field.Name+"^")
			continue
		case name == "" || strings.Contains(options, ",string,"):
			check(fmt.Errorf("%s.%s: json tag %q", typ, field.Name, field.Tag.Get("json")))
		}
		line := embedded + name
		if strings.Contains(options, ",omitzero,") {
			line += "!"
		} else if strings.Contains(options, ",omitempty,") {
			line += "?"
		}
		out += line + " " + w.name(field.Type, pkg) + attributes(known.Properties[name])
		if slices.Contains(known.Required, name) {
			out += " required"
		}
		if value := known.Properties[name].Default; value != nil {
			out += " default=" + string(value)
		}
		out += "\n"
	}
	return out
}

func attributes(field definition) string {
	out := ""
	if field.ListType != "" {
		out += " list=" + field.ListType
		if len(field.ListKeys) > 0 {
			out += ":" + strings.Join(field.ListKeys, ",")
		}
	}
	if field.MapType != "" {
		out += " map=" + field.MapType
	}
	for _, strategy := range strings.Split(field.Strategy, ",") {
		if strategy == "merge" && field.MergeKey != "" {
			strategy += "=" + field.MergeKey
		}
		if strategy != "" {
			out += " " + strategy
		}
	}
	return out
}

func (w *writer) name(typ reflect.Type, in string) string {
	pkg, name := split(typ)
	if own, found := custom[pkg+"."+name]; found {
		return own
	}
	if typ.Kind() == reflect.Struct {
		w.structure(typ)
		if pkg == in {
			return name
		}
		return pkg + "." + name
	}
	called := ""
	if typ.PkgPath() != "" {
		called = typ.String() + "="
	}
	switch typ.Kind() {
	case reflect.Pointer:
		return "*" + w.name(typ.Elem(), in)
	case reflect.Map:
		return called + "map[string]" + w.name(typ.Elem(), in)
	case reflect.Slice:
		if typ.Elem().Kind() == reflect.Uint8 {
			return called + "bytes"
		}
		return called + "[]" + w.name(typ.Elem(), in)
	case reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64, reflect.String:
		return called + typ.Kind().String()
	}
	check(fmt.Errorf("type %s is not supported", typ))
	return ""
}

func module(path string) (string, string) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", path).Output()
	check(err)
	dir, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	return dir, version
}

func sorted[T any](from map[string]T) []string {
	var keys []string
	for key := range from {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "field-types:", err)
		os.Exit(1)
	}
}
