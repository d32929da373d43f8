// Verbs does with a typed clientset, which speaks protobuf, whatever that can do to an API server, and prints what came of each
// call: one JSON object per line on stdout. Two servers that behave alike print the same lines.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file")
	overrides := &clientcmd.ConfigOverrides{}
	flag.StringVar(&overrides.CurrentContext, "context", "", "context of the kubeconfig; empty: the current one")
	namespace := flag.String("namespace", "verbs", "that is made, and deleted in the end")
	flag.Parse()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: *kubeconfig}, overrides).ClientConfig()
	if err == nil {
		err = run(config, *namespace)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "verbs:", err)
		os.Exit(1)
	}
}

// caller prints what came of each call.
type caller struct {
	out *json.Encoder
}

// say prints an outcome: of a failure its reason, code and causes, of a success what `told` says of it.
func (c *caller) say(call string, told any, err error) {
	line := map[string]any{"call": call, "told": told}
	if err != nil {
		delete(line, "told")
		line["error"] = fmt.Sprintf("%T", err)
		if status, ok := err.(apierrors.APIStatus); ok {
			said := status.Status()
			line["reason"], line["code"], line["details"] = said.Reason, said.Code, said.Details
		}
	}
	if err := c.out.Encode(line); err != nil {
		os.Exit(0) // The reader has gone.
	}
}

func run(config *rest.Config, namespace string) error {
	custom, err := dynamic.NewForConfig(rest.CopyConfig(config))
	if err != nil {
		return err
	}
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c := &caller{json.NewEncoder(os.Stdout)}
	made, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	c.say("create namespace", made.Name, err)
	if err := objects(ctx, c, client, namespace); err != nil {
		return err
	}
	if err := workloads(ctx, c, client, namespace); err != nil {
		return err
	}
	reviews(ctx, c, client, namespace)
	pods(ctx, c, client, namespace)
	definitions(ctx, c, custom)
	err = client.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})
	c.say("delete namespace", nil, err)
	return nil
}

// data is what is compared of a ConfigMap.
func data(of *corev1.ConfigMap) any {
	return map[string]any{"name": of.Name, "labels": of.Labels, "data": of.Data, "binary": of.BinaryData, "immutable": of.Immutable}
}

func objects(ctx context.Context, c *caller, client kubernetes.Interface, namespace string) error {
	maps := client.CoreV1().ConfigMaps(namespace)
	watcher, err := maps.Watch(ctx, metav1.ListOptions{LabelSelector: "watched"})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	wanted := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"watched": "yes", "n": "1"}},
		Data:       map[string]string{"text": "\"quoted\" ü \x01\n"},
		BinaryData: map[string][]byte{"bytes": {0, 255, 10}},
	}
	one, err := maps.Create(ctx, wanted, metav1.CreateOptions{})
	c.say("create", data(one), err)
	_, err = maps.Create(ctx, wanted, metav1.CreateOptions{})
	c.say("create again", nil, err)
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "Not-A-Name"}}, metav1.CreateOptions{})
	c.say("create a wrong name", nil, err)
	dry, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "dry"}}, metav1.CreateOptions{DryRun: []string{"All"}})
	c.say("create dry", data(dry), err)
	generated, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}}, metav1.CreateOptions{})
	c.say("create by a generated name", len(generated.Name), err)
	got, err := maps.Get(ctx, "one", metav1.GetOptions{})
	c.say("get", data(got), err)
	_, err = maps.Get(ctx, "none", metav1.GetOptions{})
	c.say("get nothing", nil, err)
	got.Data["text"] = "new"
	updated, err := maps.Update(ctx, got, metav1.UpdateOptions{})
	c.say("update", data(updated), err)
	_, err = maps.Update(ctx, got, metav1.UpdateOptions{})
	c.say("update what is old", nil, err)
	patched, err := maps.Patch(ctx, "one", types.MergePatchType, []byte(`{"data":{"merge":"1"}}`), metav1.PatchOptions{})
	c.say("merge patch", data(patched), err)
	patched, err = maps.Patch(ctx, "one", types.StrategicMergePatchType, []byte(`{"data":{"merge":"2"}}`), metav1.PatchOptions{})
	c.say("strategic patch", data(patched), err)
	patched, err = maps.Patch(ctx, "one", types.JSONPatchType, []byte(`[{"op":"replace","path":"/data/merge","value":"3"}]`), metav1.PatchOptions{})
	c.say("JSON patch", data(patched), err)
	applied, err := maps.Apply(ctx, applycorev1.ConfigMap("one", namespace).WithData(map[string]string{"merge": "4"}), metav1.ApplyOptions{FieldManager: "verbs-apply"})
	c.say("apply in conflict", data(applied), err)
	applied, err = maps.Apply(ctx, applycorev1.ConfigMap("one", namespace).WithData(map[string]string{"merge": "4"}), metav1.ApplyOptions{FieldManager: "verbs-apply", Force: true})
	c.say("apply", data(applied), err)
	for at := range 5 {
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("more-%d", at), Labels: map[string]string{"more": "yes"}}}, metav1.CreateOptions{})
		c.say("create more", nil, err)
	}
	names, proceed := []string{}, ""
	for range 5 {
		page, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "more=yes", Limit: 2, Continue: proceed})
		if err != nil {
			c.say("page", nil, err)
			break
		}
		for _, item := range page.Items {
			names = append(names, item.Name)
		}
		if proceed = page.Continue; proceed == "" {
			break
		}
	}
	c.say("pages", names, nil)
	listed, err := maps.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=one"})
	c.say("list", len(listed.Items), err)
	_, err = maps.List(ctx, metav1.ListOptions{Continue: "bogus"})
	c.say("list by no such token", nil, err)
	err = maps.Delete(ctx, "one", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("bogus")})
	c.say("delete another", nil, err)
	err = maps.Delete(ctx, "one", metav1.DeleteOptions{})
	c.say("delete", nil, err)
	err = maps.Delete(ctx, "one", metav1.DeleteOptions{})
	c.say("delete again", nil, err)
	err = maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "more"})
	c.say("delete all", nil, err)
	events := []string{}
	for len(events) < 7 {
		select {
		case event := <-watcher.ResultChan():
			object, ok := event.Object.(*corev1.ConfigMap)
			if !ok {
				return fmt.Errorf("an event of %T", event.Object)
			}
			events = append(events, fmt.Sprintf("%s %s %s", event.Type, object.Name, object.Data["merge"]))
		case <-ctx.Done():
			return fmt.Errorf("only these events: %v", events)
		}
	}
	c.say("watch", events, nil)
	secret, err := client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"k": "v"}}, metav1.CreateOptions{})
	c.say("secret", map[string]any{"data": secret.Data, "type": secret.Type}, err)
	lease, err := client.CoordinationV1().Leases(namespace).Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Unix(1, 2000).UTC()}}}, metav1.CreateOptions{})
	c.say("lease", lease.Spec.RenewTime, err)
	role, err := client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}}, metav1.CreateOptions{})
	c.say("role", role.Rules, err)
	_, err = client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Rules: []rbacv1.PolicyRule{{}}}, metav1.CreateOptions{})
	c.say("a wrong role", nil, err)
	return nil
}

func workloads(ctx context.Context, c *caller, client kubernetes.Interface, namespace string) error {
	deployments := client.AppsV1().Deployments(namespace)
	replicas := int32(3)
	labels := map[string]string{"app": "web"}
	web, err := deployments.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "web", Image: "web:1",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")}},
				}}},
			},
		},
	}, metav1.CreateOptions{})
	spec := func(of *appsv1.Deployment) any {
		if len(of.Spec.Template.Spec.Containers) == 0 {
			return nil
		}
		return map[string]any{"replicas": of.Spec.Replicas, "image": of.Spec.Template.Spec.Containers[0].Image, "requests": of.Spec.Template.Spec.Containers[0].Resources.Requests, "strategy": of.Spec.Strategy, "generation": of.Generation > 0}
	}
	if err != nil {
		return err
	}
	c.say("deployment", spec(web), err)
	scale, err := deployments.GetScale(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	c.say("get scale", map[string]any{"spec": scale.Spec, "selector": scale.Status.Selector}, err)
	scale.Spec.Replicas = 5
	scale, err = deployments.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})
	c.say("update scale", scale.Spec, err)
	_, err = deployments.UpdateScale(ctx, "web", &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: autoscalingv1.ScaleSpec{Replicas: -1}}, metav1.UpdateOptions{})
	c.say("scale below nothing", nil, err)
	web, err = deployments.Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	web.Spec.Template.Spec.Containers[0].Image = "web:2"
	web, err = deployments.Update(ctx, web, metav1.UpdateOptions{})
	c.say("update deployment", spec(web), err)
	web.Status.Conditions = []appsv1.DeploymentCondition{{Type: "Tried", Status: "True", Reason: "Verbs"}}
	web, err = deployments.UpdateStatus(ctx, web, metav1.UpdateOptions{})
	c.say("update status", len(web.Status.Conditions) > 0, err)
	_, err = deployments.Patch(ctx, "web", types.StrategicMergePatchType, []byte(`{"spec":{"selector":{"matchLabels":{"app":"other"}}}}`), metav1.PatchOptions{})
	c.say("change the selector", nil, err)
	budget, err := client.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}}}, metav1.CreateOptions{})
	c.say("budget", budget.Name, err)
	background := metav1.DeletePropagationBackground
	c.say("delete deployment", nil, deployments.Delete(ctx, "web", metav1.DeleteOptions{PropagationPolicy: &background}))
	return nil
}

func reviews(ctx context.Context, c *caller, client kubernetes.Interface, namespace string) {
	access, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: namespace}}}, metav1.CreateOptions{})
	c.say("access review", access.Status.Allowed, err)
	who, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	c.say("who am I", who.Status.UserInfo.Username != "", err)
	seconds := int64(600)
	_, err = client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	c.say("service account", nil, err)
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "robot", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	c.say("token", token.Status.Token != "", err)
	groups, err := client.Discovery().ServerGroups()
	c.say("groups", groups != nil && len(groups.Groups) > 10, err)
	_, err = client.Discovery().ServerVersion()
	c.say("version", nil, err)
}

func pods(ctx context.Context, c *caller, client kubernetes.Interface, namespace string) {
	pods := client.CoreV1().Pods(namespace)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{ServiceAccountName: "robot", Containers: []corev1.Container{{Name: "c", Image: "c:1"}}}}
	made, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	c.say("pod", made.Spec.RestartPolicy, err)
	_, err = pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "none"}}, metav1.CreateOptions{})
	c.say("a pod without containers", nil, err)
	_, err = pods.GetLogs("p", &corev1.PodLogOptions{}).DoRaw(ctx)
	c.say("logs of what does not run", nil, err)
	err = pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Target: corev1.ObjectReference{Kind: "Node", Name: "none"}}, metav1.CreateOptions{})
	c.say("bind nothing", nil, err)
	_, err = pods.UpdateEphemeralContainers(ctx, "none", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "none"}}, metav1.UpdateOptions{})
	c.say("ephemeral containers of nothing", nil, err)
	err = pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace}})
	c.say("evict", nil, err)
	err = pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "none", Namespace: namespace}})
	c.say("evict nothing", nil, err)
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	c.say("nodes", len(nodes.Items) >= 0, err)
}

// definitions: what is in no clientset is JSON, whatever is preferred.
func definitions(ctx context.Context, c *caller, client dynamic.Interface) {
	gvr := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "things.verbs.example"},
		"spec": map[string]any{
			"group": "verbs.example", "scope": "Cluster", "names": map[string]any{"kind": "Thing", "plural": "things"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
		},
	}}
	made, err := client.Resource(gvr).Create(ctx, definition, metav1.CreateOptions{})
	if err == nil {
		c.say("definition", made.GetName(), err)
	} else {
		c.say("definition", nil, err)
	}
	c.say("delete definition", nil, client.Resource(gvr).Delete(ctx, "things.verbs.example", metav1.DeleteOptions{}))
}
