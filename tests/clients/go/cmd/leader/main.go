// Leader takes part in client-go's own leader election over a Lease, and prints when it leads: one JSON object per line on
// stdout. The end of stdin ends the program without a release, as a crash would.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file")
	overrides := &clientcmd.ConfigOverrides{}
	flag.StringVar(&overrides.CurrentContext, "context", "", "context of the kubeconfig; empty: the current one")
	namespace := flag.String("namespace", "default", "of the lease")
	name := flag.String("name", "leader", "of the lease")
	identity := flag.String("identity", "", "of this candidate")
	klog.InitFlags(nil)
	flag.Parse()
	if err := run(*kubeconfig, overrides, *namespace, *name, *identity); err != nil {
		fmt.Fprintln(os.Stderr, "leader:", err)
		os.Exit(1)
	}
}

func run(kubeconfig string, overrides *clientcmd.ConfigOverrides, namespace, name, identity string) error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, overrides).ClientConfig()
	if err != nil {
		return err
	}
	// As controllers do: a request that hangs must not outlive the lease.
	config.Timeout = 2 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	// Nobody but the callbacks prints, and the elector calls those one after the other.
	say := func(what string) {
		line := map[string]any{"type": what, "identity": identity, "nanos": time.Now().UnixNano()}
		if err := out.Encode(line); err != nil {
			os.Exit(0) // The reader has gone.
		}
	}
	go func() {
		// Until its end: there are no orders.
		buffer := make([]byte, 64)
		for {
			if _, err := os.Stdin.Read(buffer); err != nil {
				os.Exit(0)
			}
		}
	}()
	stopped := make(chan struct{})
	for {
		leaderelection.RunOrDie(context.Background(), leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name},
				Client:     client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
			},
			LeaseDuration: 6 * time.Second,
			RenewDeadline: 4 * time.Second,
			RetryPeriod:   time.Second,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					say("LEADS")
					<-ctx.Done()
					stopped <- struct{}{}
				},
				OnStoppedLeading: func() {
					select {
					case <-stopped:
						say("STOPPED")
					case <-time.After(time.Second): // It never led.
					}
				},
			},
			Name: name,
		})
	}
}
