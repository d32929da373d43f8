// Writer creates and deletes with client-go's typed clients, as controllers do: its bodies are protobuf. What
// it sees it prints, one JSON object per line; it ends with an error at the first thing that a Go program
// would not expect.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// sent is the Content-Type of one request with a body.
type sent struct {
	Method      string `json:"method"`
	ContentType string `json:"contentType"`
}

type recorder struct {
	next http.RoundTripper
	out  *json.Encoder
}

func (r recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		if err := r.out.Encode(sent{request.Method, request.Header.Get("Content-Type")}); err != nil {
			return nil, err
		}
	}
	return r.next.RoundTrip(request)
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path")
	member := flag.String("member", "", "where to pin")
	flag.Parse()
	if err := run(*kubeconfig, *member); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, member string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return recorder{next, out} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := deployment(ctx, client, out); err != nil {
		return fmt.Errorf("deployment: %w", err)
	}
	if err := pin(ctx, client, member); err != nil {
		return fmt.Errorf("pin: %w", err)
	}
	return nil
}

func deployment(ctx context.Context, client kubernetes.Interface, out *json.Encoder) error {
	deployments, replicas := client.AppsV1().Deployments("default"), int32(3)
	labels := map[string]string{"app": "typed"}
	wanted := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "typed"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
			},
		},
	}
	made, err := deployments.Create(ctx, wanted, metav1.CreateOptions{FieldManager: "writer"})
	if err != nil {
		return err
	}
	if err := out.Encode(made); err != nil {
		return err
	}
	read, err := deployments.Get(ctx, "typed", metav1.GetOptions{})
	if err != nil || read.UID != made.UID {
		return fmt.Errorf("read %v, made %v: %w", read.UID, made.UID, err)
	}
	if _, err := deployments.Create(ctx, wanted, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("created twice: %w", err)
	}
	other := types.UID("another")
	err = deployments.Delete(ctx, "typed", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	if !apierrors.IsConflict(err) {
		return fmt.Errorf("deleted another's: %w", err)
	}
	policy := metav1.DeletePropagationForeground
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}, PropagationPolicy: &policy}
	if err := deployments.Delete(ctx, "typed", options); err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := deployments.Get(ctx, "typed", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
}

func pin(ctx context.Context, client kubernetes.Interface, member string) error {
	name := "typed@" + member
	wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, BinaryData: map[string][]byte{"k": {0, 255}}}
	made, err := client.CoreV1().ConfigMaps("default").Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if made.Name != name || string(made.BinaryData["k"]) != string(wanted.BinaryData["k"]) {
		return fmt.Errorf("made %v", made)
	}
	return nil
}
