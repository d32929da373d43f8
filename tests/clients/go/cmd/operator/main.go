// Operator is a controller as people write them with controller-runtime: for each Site it makes a Deployment that the Site
// owns, keeps its replicas and image as the Site says, and writes what is ready into the Site's status.
//
// It knows nothing of kubefold. The end of stdin ends it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var siteKind = schema.GroupVersionKind{Group: "e2e.kubefold.io", Version: "v1", Kind: "Site"}

func main() {
	path := flag.String("config", os.Getenv("KUBECONFIG"), "kubeconfig file")
	overrides := &clientcmd.ConfigOverrides{}
	flag.StringVar(&overrides.CurrentContext, "context", "", "context of the kubeconfig; empty: the current one")
	klog.InitFlags(nil)
	flag.Parse()
	ctrllog.SetLogger(klog.Background())
	if err := run(*path, overrides); err != nil {
		fmt.Fprintln(os.Stderr, "operator:", err)
		os.Exit(1)
	}
}

func run(path string, overrides *clientcmd.ConfigOverrides) error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: path}, overrides).ClientConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	site := &unstructured.Unstructured{}
	site.SetGroupVersionKind(siteKind)
	err = ctrl.NewControllerManagedBy(manager).For(site).Owns(&appsv1.Deployment{}).Named("site").
		Complete(&reconciler{manager.GetClient()})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		buffer := make([]byte, 64)
		for {
			if _, err := os.Stdin.Read(buffer); err != nil {
				stop()
				return
			}
		}
	}()
	return manager.Start(ctx)
}

type reconciler struct{ client client.Client }

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	site := &unstructured.Unstructured{}
	site.SetGroupVersionKind(siteKind)
	if err := r.client.Get(ctx, request.NamespacedName, site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if site.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, nil
	}
	replicas, _, err := unstructured.NestedInt64(site.Object, "spec", "replicas")
	if err != nil {
		return ctrl.Result{}, err
	}
	image, _, err := unstructured.NestedString(site.Object, "spec", "image")
	if err != nil {
		return ctrl.Result{}, err
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: site.GetNamespace(), Name: site.GetName() + "-web"}}
	_, err = controllerutil.CreateOrUpdate(ctx, r.client, deployment, func() error {
		labels := map[string]string{"site": site.GetName()}
		count := int32(replicas)
		deployment.Spec.Replicas = &count
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = labels
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: image}}
		return controllerutil.SetControllerReference(site, deployment, r.client.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	ready := int64(deployment.Status.ReadyReplicas)
	if was, _, _ := unstructured.NestedInt64(site.Object, "status", "ready"); was == ready && site.Object["status"] != nil {
		return ctrl.Result{}, nil
	}
	if err := unstructured.SetNestedField(site.Object, ready, "status", "ready"); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.client.Status().Update(ctx, site)
}
