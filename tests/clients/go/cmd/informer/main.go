// Informer watches one resource the way controllers do, with the informer of one of Go's libraries, and prints what
// reaches the handlers: one JSON object per line on stdout, as all programs in tests/clients do.
//
// Lines on stdin are orders: "dump" prints the cache, "list" a list, "pages 7" a list in pages of 7. The end of stdin
// ends the program.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file")
	overrides := &clientcmd.ConfigOverrides{}
	flag.StringVar(&overrides.CurrentContext, "context", "", "context of the kubeconfig; empty: the current one")
	mode := flag.String("mode", "typed", "whose informer: typed, dynamic, metadata or controller-runtime")
	resource := flag.String("resource", "configmaps", "for dynamic and metadata, as kubectl would name it: configmaps, deployments.apps, widgets.v1.example.com")
	namespace := flag.String("namespace", "", "only the objects of this namespace; empty: of all")
	watchlist := flag.Bool("watchlist", true, "fill the cache by a streaming list (WatchList) instead of pages")
	klog.InitFlags(nil)
	flag.Parse()
	ctrllog.SetLogger(klog.Background())

	if err := run(*kubeconfig, overrides, *mode, *resource, *namespace, *watchlist); err != nil {
		fmt.Fprintln(os.Stderr, "informer:", err)
		os.Exit(1)
	}
}

func run(kubeconfig string, overrides *clientcmd.ConfigOverrides, mode, resource, namespace string, watchlist bool) error {
	// client-go reads its feature gates from the environment, at the first use of one.
	if err := os.Setenv("KUBE_FEATURE_WatchListClient", strconv.FormatBool(watchlist)); err != nil {
		return err
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, overrides).ClientConfig()
	if err != nil {
		return err
	}
	library, err := newLibrary(config, mode, resource, namespace)
	if err != nil {
		return err
	}

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	out := &printer{out: json.NewEncoder(os.Stdout)}
	registration, err := library.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
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
	go library.run(ctx)
	go func() {
		// The registration's own HasSynced: the handler has seen the whole first list, not just the store.
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			out.print(event{Type: "SYNCED"})
		}
	}()

	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		order := strings.Fields(lines.Text())
		switch {
		case len(order) == 1 && order[0] == "dump":
			out.print(dump(library.held()))
		case len(order) == 1 && order[0] == "list":
			out.print(listed(library.list(ctx, 0)))
		case len(order) == 2 && order[0] == "pages":
			size, err := strconv.ParseInt(order[1], 10, 64)
			if err != nil {
				return err
			}
			out.print(listed(library.list(ctx, size)))
		default:
			return fmt.Errorf("no such order: %q", lines.Text())
		}
	}
	return nil
}

// printer keeps lines whole: handlers and orders run on different goroutines.
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
