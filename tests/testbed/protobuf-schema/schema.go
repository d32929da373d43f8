package main

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
)

const header = `# Protobuf schema of the Kubernetes API, for src/wire/protobuf/schema.rs.
#
# Generated, do not edit. To regenerate, in tests/testbed/protobuf-schema:
#     go run . schema > ../../../src/wire/protobuf/schema.txt
# From %s.
#
# package NAME [APIVERSION]   what follows belongs to this Go package
# kind NAME                   a message that is an object of the package's APIVERSION
# message NAME                a message that only occurs inside others
# either NAME                 a message that JSON prints as its first field that is set
# NUMBER NAME TYPE            a field, in the order JSON prints them; NAME may end in
#                             ? omitted when empty, ! omitted when zero, ^ its fields print in
#                             place, ~ gone from the API: older clients still write it empty
# also APIVERSION KIND TYPE   a kind of another package; APIVERSION * is any
#
# TYPE: *T may be absent (null), []T repeated, map[string]T; a message of the same package goes
# by its name, another as PACKAGE.NAME. Types with a JSON form of their own: time, micro-time,
# duration, quantity, int-or-string, json (raw JSON text), wrapped[]string (a message with
# repeated field 1).
`

// customTypes have a hand-written MarshalJSON; the decoder knows each by this name.
var customTypes = map[string]string{
	"meta/v1.Time":               "time",
	"meta/v1.MicroTime":          "micro-time",
	"meta/v1.Duration":           "duration",
	"meta/v1.FieldsV1":           "json",
	"resource.Quantity":          "quantity",
	"intstr.IntOrString":         "int-or-string",
	"runtime.RawExtension":       "json",
	"apiextensions/v1.JSON":      "json",
	"apiextensions/v1beta1.JSON": "json",
}

// eitherTypes print as the first of these fields that is set.
var eitherTypes = map[string][]string{
	"JSONSchemaPropsOrBool":        {"Schema", "Allows"},
	"JSONSchemaPropsOrArray":       {"JSONSchemas", "Schema"},
	"JSONSchemaPropsOrStringArray": {"Property", "Schema"},
}

// retiredFields are fields that left the Go types although clients of their time wrote them in
// every object, as Go's encoder writes empty strings too. ObjectMeta lost clusterName in 1.24.
var retiredFields = map[string]string{
	"meta/v1.ObjectMeta": "15 clusterName~ string\n",
}

var jsonMarshaler = reflect.TypeOf((*json.Marshaler)(nil)).Elem()

// schemaWriter collects messages while it walks the types.
type schemaWriter struct {
	messages map[reflect.Type]string
	pending  []reflect.Type
	err      error
}

func writeSchema(out io.Writer) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	kinds := protobufKinds(scheme)
	walk := &schemaWriter{messages: map[reflect.Type]string{}}
	for _, kind := range kinds {
		if kind.typ.Field(0).Name != "TypeMeta" {
			return fmt.Errorf("%s: TypeMeta is not its first field", kind.gvk)
		}
		walk.reach(kind.typ)
	}
	for len(walk.pending) > 0 && walk.err == nil {
		next := walk.pending[0]
		walk.pending = walk.pending[1:]
		walk.message(next)
	}
	if walk.err != nil {
		return walk.err
	}
	fmt.Fprintf(out, header, moduleVersions())
	return walk.print(out, kinds)
}

func moduleVersions() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown modules"
	}
	var found []string
	for _, dep := range info.Deps {
		switch dep.Path {
		case "k8s.io/api", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator":
			found = append(found, dep.Path+" "+dep.Version)
		}
	}
	return strings.Join(found, ", ")
}

// print writes the packages in order, each with its messages in order, then the odd kinds.
func (w *schemaWriter) print(out io.Writer, kinds []knownKind) error {
	owner, irregular := assignKinds(kinds)
	var types []reflect.Type
	for typ := range w.messages {
		types = append(types, typ)
	}
	sort.Slice(types, func(i, j int) bool {
		a, b := types[i], types[j]
		if packageName(a) != packageName(b) {
			return packageName(a) < packageName(b)
		}
		return a.Name() < b.Name()
	})
	apiVersions := map[string]string{}
	for typ, apiVersion := range owner {
		if other, taken := apiVersions[packageName(typ)]; taken && other != apiVersion {
			return fmt.Errorf("package %s has the apiVersions %s and %s", packageName(typ), other, apiVersion)
		}
		apiVersions[packageName(typ)] = apiVersion
	}
	current := ""
	for _, typ := range types {
		if name := packageName(typ); name != current {
			current = name
			fmt.Fprintln(out, "\n"+strings.TrimSpace("package "+name+" "+apiVersions[name]))
		}
		word := "message"
		if _, either := eitherTypes[typ.Name()]; either {
			word = "either"
		} else if _, ok := owner[typ]; ok {
			word = "kind"
		}
		fmt.Fprintf(out, "%s %s\n%s", word, typ.Name(), w.messages[typ])
	}
	fmt.Fprintln(out)
	for _, line := range irregular {
		fmt.Fprintln(out, line)
	}
	return nil
}

// assignKinds splits the kinds into those that live under one apiVersion with their type's own
// name, and the rest. A type of three or more apiVersions (DeleteOptions) is found under any.
func assignKinds(kinds []knownKind) (map[reflect.Type]string, []string) {
	byType := map[reflect.Type][]knownKind{}
	for _, kind := range kinds {
		byType[kind.typ] = append(byType[kind.typ], kind)
	}
	owner := map[reflect.Type]string{}
	lines := map[string]bool{}
	for typ, uses := range byType {
		everywhere := len(uses) > 2
		for _, use := range uses {
			apiVersion := use.gvk.GroupVersion().String()
			foreign := packageName(typ) == "meta/v1"
			switch {
			case everywhere:
				lines[fmt.Sprintf("also * %s %s", use.gvk.Kind, messageName(typ))] = true
			case foreign || use.gvk.Kind != typ.Name() || len(uses) > 1:
				lines[fmt.Sprintf("also %s %s %s", apiVersion, use.gvk.Kind, messageName(typ))] = true
			default:
				owner[typ] = apiVersion
			}
		}
	}
	var sorted []string
	for line := range lines {
		sorted = append(sorted, line)
	}
	sort.Strings(sorted)
	return owner, sorted
}

func (w *schemaWriter) reach(typ reflect.Type) {
	if _, seen := w.messages[typ]; !seen {
		w.messages[typ] = ""
		w.pending = append(w.pending, typ)
	}
}

func (w *schemaWriter) message(typ reflect.Type) {
	var lines strings.Builder
	if order, either := eitherTypes[typ.Name()]; either {
		for _, name := range order {
			field, _ := typ.FieldByName(name)
			number := w.number(typ, field)
			fmt.Fprintf(&lines, "%d %s %s\n", number, field.Name, w.typeName(typ, field.Type))
		}
	} else {
		if reflect.PointerTo(typ).Implements(jsonMarshaler) {
			w.fail("%s prints its own JSON and is not known here", messageName(typ))
		}
		w.checkNames(typ, typ, map[string]bool{})
		for i := 0; i < typ.NumField(); i++ {
			w.field(&lines, typ, typ.Field(i))
		}
	}
	w.messages[typ] = lines.String() + retiredFields[messageName(typ)]
}

func (w *schemaWriter) field(lines *strings.Builder, typ reflect.Type, field reflect.StructField) {
	name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	if field.Tag.Get("protobuf") == "" {
		// The envelope carries the type; nothing else that JSON prints may be missing from the wire.
		if field.Name != "TypeMeta" && name != "-" {
			w.fail("%s.%s has no protobuf tag", messageName(typ), field.Name)
		}
		return
	}
	number := w.number(typ, field)
	has := func(option string) bool { return strings.Contains(","+options+",", ","+option+",") }
	switch {
	case name == "-" || has("string"):
		w.fail("%s.%s: json tag %q is not supported", messageName(typ), field.Name, field.Tag.Get("json"))
	case name == "" && !(field.Anonymous && field.Type.Kind() == reflect.Struct):
		w.fail("%s.%s has no JSON name", messageName(typ), field.Name)
	case name == "":
		name = field.Name + "^"
	case has("omitzero"):
		if messageName(field.Type) != "meta/v1.Time" {
			w.fail("%s.%s: omitzero is supported for Time alone", messageName(typ), field.Name)
		}
		name += "!"
	case has("omitempty"):
		name += "?"
	}
	fmt.Fprintf(lines, "%d %s %s\n", number, name, w.typeName(typ, field.Type))
}

// number returns the field number. The wire type beside it is not read: some tags misstate it
// (DeleteOptions.propagationPolicy, PriorityClass.value), and Go's encoder goes by the Go type.
func (w *schemaWriter) number(typ reflect.Type, field reflect.StructField) int {
	parts := strings.Split(field.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		w.fail("%s.%s: protobuf tag %q", messageName(typ), field.Name, field.Tag.Get("protobuf"))
		return 0
	}
	number, err := strconv.Atoi(parts[1])
	if err != nil {
		w.fail("%s.%s: %v", messageName(typ), field.Name, err)
	}
	return number
}

// checkNames refuses what Go's rules for embedded structs would otherwise have to settle.
func (w *schemaWriter) checkNames(root, typ reflect.Type, seen map[string]bool) {
	for i := 0; i < typ.NumField(); i++ {
		field := typ.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && field.Anonymous && field.Type.Kind() == reflect.Struct {
			w.checkNames(root, field.Type, seen)
			continue
		}
		if seen[name] {
			w.fail("%s has two fields %q", messageName(root), name)
		}
		seen[name] = true
	}
}

func (w *schemaWriter) typeName(in reflect.Type, typ reflect.Type) string {
	if custom, ok := customTypes[messageName(typ)]; ok {
		return custom
	}
	switch typ.Kind() {
	case reflect.Bool:
		return "bool"
	case reflect.Int32:
		return "int32"
	case reflect.Int64:
		return "int64"
	case reflect.Float64:
		return "double"
	case reflect.String:
		return "string"
	case reflect.Pointer:
		return "*" + w.typeName(in, typ.Elem())
	case reflect.Slice:
		return w.sliceName(in, typ)
	case reflect.Map:
		if typ.Key().Kind() == reflect.String {
			return "map[string]" + w.typeName(in, typ.Elem())
		}
	case reflect.Struct:
		w.reach(typ)
		if typ.PkgPath() == in.PkgPath() {
			return typ.Name()
		}
		return messageName(typ)
	}
	w.fail("%s: type %s is not supported", messageName(in), typ)
	return ""
}

func (w *schemaWriter) sliceName(in reflect.Type, typ reflect.Type) string {
	if _, message := reflect.PointerTo(typ).MethodByName("MarshalToSizedBuffer"); message {
		if typ.Elem().Kind() != reflect.String {
			w.fail("%s: wrapped slice of %s is not supported", messageName(typ), typ.Elem())
		}
		return "wrapped[]string"
	}
	if typ.Elem().Kind() == reflect.Uint8 {
		return "bytes"
	}
	return "[]" + w.typeName(in, typ.Elem())
}

func (w *schemaWriter) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func messageName(typ reflect.Type) string { return packageName(typ) + "." + typ.Name() }

// packageName is the last part of the import path, with the group before a version.
func packageName(typ reflect.Type) string {
	parts := strings.Split(typ.PkgPath(), "/")
	last := parts[len(parts)-1]
	if len(parts) > 1 && len(last) > 1 && last[0] == 'v' && last[1] >= '0' && last[1] <= '9' {
		return parts[len(parts)-2] + "/" + last
	}
	return last
}
