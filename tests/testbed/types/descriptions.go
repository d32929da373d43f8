package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// unstable are the types of versions that no embedded server serves.
var unstable = regexp.MustCompile(`\.v\d+(alpha|beta)\d+\.`)

const descriptionsHead = `# The descriptions of Kubernetes' built-in types and of their fields, without alpha and beta versions.
#
# Generated, do not edit: tests/testbed/types. From k8s.io/kubernetes %s.
#
# TYPE TEXT          a type, as OpenAPI calls it
#  FIELD TEXT        a field of the type before it
# TEXT has \n for the end of a line, and \\ for a backslash.
`

// writeDescriptions writes what the OpenAPI documents say of types and fields in words.
func writeDescriptions(out io.Writer) error {
	known, version, err := kubernetesDefinitions()
	if err != nil {
		return err
	}
	escape := strings.NewReplacer("\\", "\\\\", "\n", "\\n")
	fmt.Fprintf(out, descriptionsHead, version)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if unstable.MatchString(name) {
			continue
		}
		of := known[name]
		fmt.Fprintf(out, "%s %s\n", name, escape.Replace(of.Description))
		for _, field := range slices.Sorted(maps.Keys(of.Properties)) {
			if text := of.Properties[field].Description; text != "" {
				fmt.Fprintf(out, " %s %s\n", field, escape.Replace(text))
			}
		}
	}
	return nil
}
