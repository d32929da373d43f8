package main

import (
	"reflect"
	"sort"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1beta1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"
)

// newScheme returns every type a typed Go client may post: client-go's own, and those of the
// two API servers that live beside the main one.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	adders := []func(*runtime.Scheme) error{
		clientscheme.AddToScheme,
		apiextensionsv1.AddToScheme,
		apiextensionsv1beta1.AddToScheme,
		apiregistrationv1.AddToScheme,
		apiregistrationv1beta1.AddToScheme,
		metav1.AddMetaToScheme,
	}
	for _, add := range adders {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	scheme.AddKnownTypes(metav1.SchemeGroupVersion,
		&metav1.ListOptions{}, &metav1.GetOptions{}, &metav1.DeleteOptions{},
		&metav1.CreateOptions{}, &metav1.UpdateOptions{}, &metav1.PatchOptions{})
	return scheme, nil
}

// knownKind is one apiVersion and kind, and the Go type behind it.
type knownKind struct {
	gvk schema.GroupVersionKind
	typ reflect.Type
}

// protobufKinds lists the kinds that have a protobuf encoding, sorted.
func protobufKinds(scheme *runtime.Scheme) []knownKind {
	marshaller := reflect.TypeOf((*runtime.ProtobufMarshaller)(nil)).Elem()
	var kinds []knownKind
	for gvk, typ := range scheme.AllKnownTypes() {
		// The internal version is Go's in-memory form; it never travels. A WatchEvent is no object.
		if gvk.Version == runtime.APIVersionInternal || gvk.Kind == metav1.WatchEventKind {
			continue
		}
		if reflect.PointerTo(typ).Implements(marshaller) {
			kinds = append(kinds, knownKind{gvk, typ})
		}
	}
	sort.Slice(kinds, func(i, j int) bool { return kinds[i].gvk.String() < kinds[j].gvk.String() })
	return kinds
}
