// Openapi reads OpenAPI documents as typed clients do, in protobuf, and prints the name of every type, one per line
// after the version of the document.
package main

import (
	"flag"
	"fmt"
	"os"

	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path")
	document := flag.String("document", "", "of version 3, such as apis/apps/v1")
	flag.Parse()
	if err := run(*kubeconfig, *document); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, document string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	swagger, err := client.OpenAPISchema()
	if err != nil {
		return err
	}
	for _, one := range swagger.GetDefinitions().GetAdditionalProperties() {
		fmt.Println("v2", one.GetName())
	}
	paths, err := client.OpenAPIV3().Paths()
	if err != nil {
		return err
	}
	groupVersion, found := paths[document]
	if !found {
		return fmt.Errorf("no document %s", document)
	}
	body, err := groupVersion.Schema(openapi.ContentTypeOpenAPIV3PB)
	if err != nil {
		return err
	}
	parsed := &openapi_v3.Document{}
	if err := proto.Unmarshal(body, parsed); err != nil {
		return err
	}
	for _, one := range parsed.GetComponents().GetSchemas().GetAdditionalProperties() {
		fmt.Println("v3", one.GetName())
	}
	return nil
}
