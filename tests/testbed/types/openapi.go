package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// definition is what an OpenAPI document says of a type or field.
type definition struct {
	Description string                `json:"description"`
	Properties  map[string]definition `json:"properties"`
	Required    []string              `json:"required"`
	Default     json.RawMessage       `json:"default"`
	ListType    string                `json:"x-kubernetes-list-type"`
	ListKeys    []string              `json:"x-kubernetes-list-map-keys"`
	MapType     string                `json:"x-kubernetes-map-type"`
	Strategy    string                `json:"x-kubernetes-patch-strategy"`
	MergeKey    string                `json:"x-kubernetes-patch-merge-key"`
}

// kubernetesDefinitions are those of Kubernetes in the version of go.mod, which it names.
func kubernetesDefinitions() (map[string]definition, string, error) {
	dir, version, err := module("k8s.io/kubernetes")
	if err != nil {
		return nil, "", err
	}
	known, err := definitions(dir)
	return known, version, err
}

// definitions reads every definition of the OpenAPI v3 documents in the source of Kubernetes.
func definitions(dir string) (map[string]definition, error) {
	files, err := filepath.Glob(filepath.Join(dir, "api/openapi-spec/v3/*.json"))
	if err != nil {
		return nil, err
	}
	all := map[string]definition{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var document struct {
			Components struct{ Schemas map[string]definition }
		}
		if err := json.Unmarshal(text, &document); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for name, definition := range document.Components.Schemas {
			all[name] = definition
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no OpenAPI documents in %s", dir)
	}
	return all, nil
}

// property is what the definition of a struct says of one of its fields.
func (known definition) property(name string) string {
	field := known.Properties[name]
	out := field.attributes()
	if slices.Contains(known.Required, name) {
		out += " required"
	}
	if field.Default != nil {
		out += " default=" + string(field.Default)
	}
	return out
}

func (known definition) attributes() string {
	out := ""
	if known.ListType != "" {
		out += " list=" + known.ListType
		if len(known.ListKeys) > 0 {
			out += ":" + strings.Join(known.ListKeys, ",")
		}
	}
	if known.MapType != "" {
		out += " map=" + known.MapType
	}
	for _, strategy := range strings.Split(known.Strategy, ",") {
		switch {
		case strategy == "merge" && known.MergeKey != "":
			out += " merge=" + known.MergeKey
		case strategy == "merge" || strategy == "retainKeys":
			out += " " + strategy
		}
	}
	return out
}

// openapiPackage is the package of a Go type as OpenAPI names it: io.k8s.api.core.v1.
func openapiPackage(typ reflect.Type) string {
	host, rest, _ := strings.Cut(typ.PkgPath(), "/")
	parts := strings.Split(host, ".")
	slices.Reverse(parts)
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(rest, "/", ".")
}

// module returns the folder and the version of a module of this testbed.
func module(path string) (string, string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", path).Output()
	dir, version, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	return dir, version, err
}
