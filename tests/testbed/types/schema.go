package main

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const header = `# The fields of Kubernetes' built-in types, in JSON and in protobuf.
#
# Generated, do not edit: tests/testbed/types. From k8s.io/kubernetes %s.
#
# package NAME [APIVERSION]        what follows belongs to this Go package, which OpenAPI calls so
# kind NAME [ATTRIBUTES]           a struct that is an object of the package's APIVERSION; its fields follow
# struct NAME [ATTRIBUTES]         any other struct
# either NAME                      a struct that JSON prints as its first field that is set
# NUMBER NAME TYPE [ATTRIBUTES]    a field, in the order in which JSON prints them
# also APIVERSION KIND TYPE        a kind of another package, or of several; APIVERSION * is any
#
# NUMBER: protobuf's; - if it is not sent.
# NAME: ends in ? if it is omitted when empty, ! if it is omitted when zero, ^ if its own fields print in its place,
#   ~ if the API has lost it: older clients still send it empty.
# TYPE: *T may be absent (null), []T repeated, map[string]T, GO=T if Go calls it GO. A struct of the same package goes
#   by its name, another by the last two words of its package and its name. Types with a JSON form of their own: time,
#   micro-time, duration, quantity, int-or-string; raw, json, fields (JSON text); wrapped[]string (in protobuf, a
#   message with repeated field 1).
# ATTRIBUTES: what the OpenAPI documents say of it: required, list=TYPE[:KEYS], map=TYPE, merge[=KEY], retainKeys,
#   default=JSON. Versions that a server of today does not serve have no documents.
`

// customTypes have a hand-written MarshalJSON; the readers know each by this name.
var customTypes = map[string]string{
	"meta.v1.Time":               "time",
	"meta.v1.MicroTime":          "micro-time",
	"meta.v1.Duration":           "duration",
	"meta.v1.FieldsV1":           "fields",
	"api.resource.Quantity":      "quantity",
	"util.intstr.IntOrString":    "int-or-string",
	"pkg.runtime.RawExtension":   "raw",
	"apiextensions.v1.JSON":      "json",
	"apiextensions.v1beta1.JSON": "v1beta1.JSON=json",
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
	"meta.v1.ObjectMeta": "15 clusterName~ string\n",
}

var jsonMarshaler = reflect.TypeOf((*json.Marshaler)(nil)).Elem()

// schemaWriter collects structs while it walks the types.
type schemaWriter struct {
	known   map[string]definition
	seen    map[reflect.Type]bool
	pending []reflect.Type
	// embedders are the structs whose JSON has a struct's fields in its own place.
	embedders map[reflect.Type][]reflect.Type
	err       error
}

func writeSchema(out io.Writer) error {
	known, version, err := kubernetesDefinitions()
	if err != nil {
		return err
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	kinds := protobufKinds(scheme)
	walk := &schemaWriter{known: known, seen: map[reflect.Type]bool{}, embedders: map[reflect.Type][]reflect.Type{}}
	for _, kind := range kinds {
		if kind.typ.Field(0).Name != "TypeMeta" {
			return fmt.Errorf("%s: TypeMeta is not its first field", kind.gvk)
		}
		walk.reach(kind.typ)
	}
	// No object, but what a watch is made of.
	walk.reach(reflect.TypeOf(metav1.WatchEvent{}))
	for len(walk.pending) > 0 {
		next := walk.pending[0]
		walk.pending = walk.pending[1:]
		// Twice: what this reaches is wanted first, then what all embed.
		walk.fields(next)
	}
	fmt.Fprintf(out, header, version)
	if err := walk.print(out, kinds); err != nil {
		return err
	}
	return walk.err
}

// print writes the packages in order, each with its structs in order, then the odd kinds.
func (w *schemaWriter) print(out io.Writer, kinds []knownKind) error {
	owner, irregular := assignKinds(kinds)
	var types []reflect.Type
	for typ := range w.seen {
		types = append(types, typ)
	}
	sort.Slice(types, func(i, j int) bool {
		a, b := types[i], types[j]
		if openapiPackage(a) != openapiPackage(b) {
			return openapiPackage(a) < openapiPackage(b)
		}
		return a.Name() < b.Name()
	})
	apiVersions, packages := map[string]string{}, map[string]string{}
	for _, typ := range types {
		name := openapiPackage(typ)
		if other, taken := packages[packageName(typ)]; taken && other != name {
			return fmt.Errorf("the packages %s and %s have the same last words", name, other)
		}
		packages[packageName(typ)] = name
		apiVersion, isKind := owner[typ]
		if other, taken := apiVersions[name]; taken && isKind && other != apiVersion {
			return fmt.Errorf("package %s has the apiVersions %s and %s", name, other, apiVersion)
		}
		if isKind {
			apiVersions[name] = apiVersion
		}
	}
	current := ""
	for _, typ := range types {
		if name := openapiPackage(typ); name != current {
			current = name
			fmt.Fprintln(out, "\n"+strings.TrimSpace("package "+name+" "+apiVersions[name]))
		}
		word := "struct"
		if _, either := eitherTypes[typ.Name()]; either {
			word = "either"
		} else if _, ok := owner[typ]; ok {
			word = "kind"
		}
		known := w.known[current+"."+typ.Name()]
		fmt.Fprintf(out, "%s %s%s\n%s", word, typ.Name(), known.attributes(), w.fields(typ))
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
			foreign := packageName(typ) == "meta.v1"
			switch {
			case everywhere:
				lines[fmt.Sprintf("also * %s %s", use.gvk.Kind, structName(typ))] = true
			case foreign || use.gvk.Kind != typ.Name() || len(uses) > 1:
				lines[fmt.Sprintf("also %s %s %s", apiVersion, use.gvk.Kind, structName(typ))] = true
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
	if !w.seen[typ] {
		w.seen[typ] = true
		w.pending = append(w.pending, typ)
	}
}

// fields returns the lines of a struct's fields, and reaches the structs that they name.
func (w *schemaWriter) fields(typ reflect.Type) string {
	var lines strings.Builder
	if order, either := eitherTypes[typ.Name()]; either {
		for _, name := range order {
			field, _ := typ.FieldByName(name)
			fmt.Fprintf(&lines, "%s %s %s\n", w.number(typ, field), field.Name, w.typeName(typ, field.Type))
		}
		return lines.String()
	}
	if reflect.PointerTo(typ).Implements(jsonMarshaler) {
		w.fail("%s prints its own JSON and is not known here", structName(typ))
	}
	w.checkNames(typ, typ, map[string]bool{})
	for i := 0; i < typ.NumField(); i++ {
		w.field(&lines, typ, typ.Field(i))
	}
	return lines.String() + retiredFields[structName(typ)]
}

func (w *schemaWriter) field(lines *strings.Builder, typ reflect.Type, field reflect.StructField) {
	name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
	has := func(option string) bool { return strings.Contains(","+options+",", ","+option+",") }
	known := ""
	switch {
	case name == "-" && field.Tag.Get("protobuf") == "":
		return
	case name == "-" || has("string"):
		w.fail("%s.%s: json tag %q is not supported", structName(typ), field.Name, field.Tag.Get("json"))
	case name == "" && !(field.Anonymous && field.Type.Kind() == reflect.Struct):
		w.fail("%s.%s has no JSON name", structName(typ), field.Name)
	case name == "":
		name = field.Name + "^"
		if !slices.Contains(w.embedders[field.Type], typ) {
			w.embedders[field.Type] = append(w.embedders[field.Type], typ)
		}
	case has("omitzero"):
		if structName(field.Type) != "meta.v1.Time" {
			w.fail("%s.%s: omitzero is supported for Time alone", structName(typ), field.Name)
		}
		known = w.property(typ, name)
		name += "!"
	case has("omitempty"):
		known = w.property(typ, name)
		name += "?"
	default:
		known = w.property(typ, name)
	}
	fmt.Fprintf(lines, "%s %s %s%s\n", w.number(typ, field), name, w.typeName(typ, field.Type), known)
}

// property is what OpenAPI says of a field: in the definition of its struct, and in those of the structs that embed it,
// which must agree.
func (w *schemaWriter) property(typ reflect.Type, name string) string {
	said, by := "", reflect.Type(nil)
	for _, in := range append([]reflect.Type{typ}, w.embeddersOf(typ)...) {
		known, found := w.known[openapiPackage(in)+"."+in.Name()]
		if !found {
			continue
		}
		if here := known.property(name); by == nil {
			said, by = here, in
		} else if said != here {
			w.fail("field %q is%q in %s, and is%q in %s", name, said, structName(by), here, structName(in))
		}
	}
	return said
}

func (w *schemaWriter) embeddersOf(typ reflect.Type) []reflect.Type {
	var all []reflect.Type
	for _, outer := range w.embedders[typ] {
		all = append(append(all, outer), w.embeddersOf(outer)...)
	}
	return all
}

// number returns the field number. The wire type beside it is not read: some tags misstate it
// (DeleteOptions.propagationPolicy, PriorityClass.value), and Go's encoder goes by the Go type.
func (w *schemaWriter) number(typ reflect.Type, field reflect.StructField) string {
	tag := field.Tag.Get("protobuf")
	if tag == "" && field.Name == "TypeMeta" {
		// The envelope carries the type; nothing else that JSON prints may be missing from the wire.
		return "-"
	}
	parts := strings.Split(tag, ",")
	if len(parts) < 2 {
		w.fail("%s.%s: protobuf tag %q", structName(typ), field.Name, tag)
		return ""
	}
	if _, err := strconv.ParseUint(parts[1], 10, 32); err != nil {
		w.fail("%s.%s: %v", structName(typ), field.Name, err)
	}
	return parts[1]
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
			w.fail("%s has two fields %q", structName(root), name)
		}
		seen[name] = true
	}
}

func (w *schemaWriter) typeName(in reflect.Type, typ reflect.Type) string {
	if custom, ok := customTypes[structName(typ)]; ok {
		return custom
	}
	if typ.Kind() == reflect.Struct {
		w.reach(typ)
		if typ.PkgPath() == in.PkgPath() {
			return typ.Name()
		}
		return structName(typ)
	}
	called := ""
	if typ.PkgPath() != "" {
		called = typ.String() + "="
	}
	switch typ.Kind() {
	case reflect.Bool, reflect.Int32, reflect.Int64, reflect.Float64, reflect.String:
		return called + typ.Kind().String()
	case reflect.Pointer:
		return "*" + w.typeName(in, typ.Elem())
	case reflect.Slice:
		return called + w.sliceName(in, typ)
	case reflect.Map:
		if typ.Key().Kind() == reflect.String {
			return called + "map[string]" + w.typeName(in, typ.Elem())
		}
	}
	w.fail("%s: type %s is not supported", structName(in), typ)
	return ""
}

func (w *schemaWriter) sliceName(in reflect.Type, typ reflect.Type) string {
	if _, message := reflect.PointerTo(typ).MethodByName("MarshalToSizedBuffer"); message {
		if typ.Elem() != reflect.TypeOf("") {
			w.fail("%s: wrapped slice of %s is not supported", structName(typ), typ.Elem())
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

func structName(typ reflect.Type) string { return packageName(typ) + "." + typ.Name() }

// packageName is the last two words of the package's name.
func packageName(typ reflect.Type) string {
	parts := strings.Split(openapiPackage(typ), ".")
	return strings.Join(parts[max(0, len(parts)-2):], ".")
}
