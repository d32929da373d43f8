package main

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// library is one way to have an informer in Go.
type library struct {
	informer interface {
		AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error)
	}
	run func(context.Context)
	// held gives what the cache holds.
	held func() []any
	// page reads one page from the server.
	page func(context.Context, metav1.ListOptions) (runtime.Object, error)
}

func newLibrary(config *rest.Config, mode, resource, namespace string) (*library, error) {
	switch mode {
	case "typed":
		return newTyped(config, namespace)
	case "controller-runtime":
		return newControllerRuntime(config, namespace)
	case "dynamic", "metadata":
		gvr, err := resolve(config, resource)
		if err != nil {
			return nil, err
		}
		if mode == "dynamic" {
			return newDynamic(config, gvr, namespace)
		}
		return newMetadata(config, gvr, namespace)
	}
	return nil, fmt.Errorf("no such mode: %q", mode)
}

// newTyped speaks protobuf, as controllers do.
func newTyped(config *rest.Config, namespace string) (*library, error) {
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	informer := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace)).Core().V1().ConfigMaps().Informer()
	return shared(informer, func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().ConfigMaps(namespace).List(ctx, options)
	}), nil
}

func newDynamic(config *rest.Config, gvr schema.GroupVersionResource, namespace string) (*library, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(client, gvr, namespace, 0, cache.Indexers{}, nil)
	return shared(informer.Informer(), func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.Resource(gvr).Namespace(namespace).List(ctx, options)
	}), nil
}

func newMetadata(config *rest.Config, gvr schema.GroupVersionResource, namespace string) (*library, error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	informer := metadatainformer.NewFilteredMetadataInformer(client, gvr, namespace, 0, cache.Indexers{}, nil)
	return shared(informer.Informer(), func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.Resource(gvr).Namespace(namespace).List(ctx, options)
	}), nil
}

func shared(informer cache.SharedIndexInformer, page func(context.Context, metav1.ListOptions) (runtime.Object, error)) *library {
	return &library{informer: informer, run: informer.RunWithContext, held: informer.GetStore().List, page: page}
}

// newControllerRuntime is the cache that managers read from, and the client that they read with beside it.
func newControllerRuntime(config *rest.Config, namespace string) (*library, error) {
	options := ctrlcache.Options{}
	if namespace != "" {
		options.DefaultNamespaces = map[string]ctrlcache.Config{namespace: {}}
	}
	objects, err := ctrlcache.New(config, options)
	if err != nil {
		return nil, err
	}
	live, err := client.New(config, client.Options{})
	if err != nil {
		return nil, err
	}
	informer, err := objects.GetInformer(context.Background(), &corev1.ConfigMap{}, ctrlcache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	return &library{
		informer: informer,
		run: func(ctx context.Context) {
			if err := objects.Start(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "informer:", err)
				os.Exit(1)
			}
		},
		held: func() []any {
			all := &corev1.ConfigMapList{}
			if err := objects.List(context.Background(), all); err != nil {
				fmt.Fprintln(os.Stderr, "informer:", err)
			}
			held := []any{}
			for index := range all.Items {
				held = append(held, &all.Items[index])
			}
			return held
		},
		page: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			page := &corev1.ConfigMapList{}
			err := live.List(ctx, page, client.InNamespace(namespace), client.Limit(options.Limit), client.Continue(options.Continue))
			return page, err
		},
	}, nil
}

// list reads from the server: in one piece, or by client-go's pager in pages of a size.
func (l *library) list(ctx context.Context, size int64) ([]runtime.Object, []string, error) {
	var objects []runtime.Object
	var revisions []string
	fetch := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		page, err := l.page(ctx, options)
		if err == nil {
			if accessor, err := meta.ListAccessor(page); err == nil {
				revisions = append(revisions, accessor.GetResourceVersion())
			}
		}
		return page, err
	}
	take := func(object runtime.Object) error {
		objects = append(objects, object)
		return nil
	}
	if size == 0 {
		page, err := fetch(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, nil, err
		}
		return objects, revisions, meta.EachListItem(page, func(object runtime.Object) error {
			return take(object)
		})
	}
	pages := pager.New(fetch)
	pages.PageSize = size
	err := pages.EachListItem(ctx, metav1.ListOptions{}, take)
	return objects, revisions, err
}

// resolve finds the group and version of a resource by the server's discovery, as kubectl does.
func resolve(config *rest.Config, resource string) (schema.GroupVersionResource, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	groups, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	exact, partial := schema.ParseResourceArg(resource)
	if exact != nil {
		if gvr, err := mapper.ResourceFor(*exact); err == nil {
			return gvr, nil
		}
	}
	return mapper.ResourceFor(partial.WithVersion(""))
}
