// Informer watches one resource the way every controller does, with client-go's own shared informer, and
// prints what reaches the handlers: one JSON object per line on stdout. A line "dump" on stdin prints the
// informer's store; the end of stdin ends the program.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// event is one line of stdout.
type event struct {
	Type string `json:"type"`
	Key  string `json:"key,omitempty"`
	RV   string `json:"rv,omitempty"`
	UID  string `json:"uid,omitempty"`
	// Changed says whether the object differs from the one before in anything but its resourceVersion.
	Changed bool `json:"changed"`
}

// contents is the line that answers "dump".
type contents struct {
	Type  string          `json:"type"`
	Items map[string]item `json:"items"`
}

type item struct {
	RV   string `json:"rv"`
	UID  string `json:"uid"`
	Data any    `json:"data"`
}

// printer keeps lines whole: handlers and the dump run on different goroutines.
type printer struct {
	mu  sync.Mutex
	out *json.Encoder
}

func (p *printer) print(line any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.out.Encode(line); err != nil {
		os.Exit(0) // The reader has gone.
	}
}

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file")
	context := flag.String("context", "", "context of the kubeconfig; empty: the current one")
	resource := flag.String("resource", "configmaps", "resource, as kubectl would name it: configmaps, deployments.apps, widgets.v1.example.com")
	watchlist := flag.Bool("watchlist", true, "fill the store by a streaming list (WatchList) instead of pages")
	klog.InitFlags(nil)
	flag.Parse()

	if err := run(*kubeconfig, *context, *resource, *watchlist); err != nil {
		fmt.Fprintln(os.Stderr, "informer:", err)
		os.Exit(1)
	}
}

func run(kubeconfig, context, resource string, watchlist bool) error {
	// client-go reads its feature gates from the environment, at the first use of one.
	if err := os.Setenv("KUBE_FEATURE_WatchListClient", strconv.FormatBool(watchlist)); err != nil {
		return err
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: context},
	).ClientConfig()
	if err != nil {
		return err
	}
	informer, err := newInformer(config, resource)
	if err != nil {
		return err
	}

	out := &printer{out: json.NewEncoder(os.Stdout)}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { out.print(describe("ADD", nil, obj)) },
		UpdateFunc: func(old, obj any) { out.print(describe("UPDATE", old, obj)) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			out.print(describe("DELETE", nil, obj))
		},
	})
	if err != nil {
		return err
	}

	stop := make(chan struct{})
	go informer.Run(stop)
	go func() {
		// The registration's own HasSynced: the handler has seen the whole first list, not just the store.
		if cache.WaitForCacheSync(stop, registration.HasSynced) {
			out.print(event{Type: "SYNCED"})
		}
	}()

	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if strings.TrimSpace(lines.Text()) == "dump" {
			out.print(dump(informer.GetStore()))
		}
	}
	close(stop)
	return nil
}

// newInformer builds a typed informer for config maps, which speaks protobuf as controllers do, and a
// dynamic one, which speaks JSON, for everything else.
func newInformer(config *rest.Config, resource string) (cache.SharedIndexInformer, error) {
	if resource == "configmaps" {
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return informers.NewSharedInformerFactory(client, 0).Core().V1().ConfigMaps().Informer(), nil
	}
	gvr, err := resolve(config, resource)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return dynamicinformer.NewFilteredDynamicInformer(client, gvr, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer(), nil
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

func describe(kind string, old, obj any) event {
	key, _ := cache.MetaNamespaceKeyFunc(obj)
	e := event{Type: kind, Key: key}
	if accessor, err := meta.Accessor(obj); err == nil {
		e.RV, e.UID = accessor.GetResourceVersion(), string(accessor.GetUID())
	}
	if old != nil {
		e.Changed = !equality.Semantic.DeepEqual(withoutRV(old), withoutRV(obj))
	}
	return e
}

func withoutRV(obj any) any {
	object, ok := obj.(runtime.Object)
	if !ok {
		return obj
	}
	object = object.DeepCopyObject()
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetResourceVersion("")
	}
	return object
}

func dump(store cache.Store) contents {
	items := map[string]item{}
	for _, obj := range store.List() {
		key, _ := cache.MetaNamespaceKeyFunc(obj)
		accessor, err := meta.Accessor(obj)
		if err != nil {
			continue
		}
		items[key] = item{RV: accessor.GetResourceVersion(), UID: string(accessor.GetUID()), Data: data(obj)}
	}
	return contents{Type: "DUMP", Items: items}
}

func data(obj any) any {
	switch object := obj.(type) {
	case *corev1.ConfigMap:
		return object.Data
	case *unstructured.Unstructured:
		return object.Object["data"]
	default:
		return nil
	}
}
