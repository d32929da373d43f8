// Writes src/apiserver/kinds/forms.txt: which fields the types of the built-in kinds have, in the order in which Go's
// encoder writes them, and what it leaves out.
//
//	cd tests/testbed && go run ./kind-forms > ../../src/apiserver/kinds/forms.txt
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

var roots = []any{
	corev1.Namespace{}, corev1.Node{}, corev1.Pod{}, corev1.Service{}, corev1.Endpoints{}, corev1.ConfigMap{},
	corev1.Secret{}, corev1.ServiceAccount{}, corev1.Event{}, corev1.PersistentVolume{},
	corev1.PersistentVolumeClaim{}, corev1.ReplicationController{}, corev1.ResourceQuota{}, corev1.LimitRange{},
	corev1.PodTemplate{}, corev1.Binding{}, policyv1.Eviction{},
	appsv1.Deployment{}, appsv1.ReplicaSet{}, appsv1.StatefulSet{}, appsv1.DaemonSet{}, appsv1.ControllerRevision{},
	batchv1.Job{}, batchv1.CronJob{}, coordinationv1.Lease{}, discoveryv1.EndpointSlice{}, eventsv1.Event{},
	rbacv1.Role{}, rbacv1.RoleBinding{}, rbacv1.ClusterRole{}, rbacv1.ClusterRoleBinding{},
	storagev1.StorageClass{}, storagev1.CSIDriver{}, storagev1.CSINode{}, storagev1.VolumeAttachment{},
	storagev1.CSIStorageCapacity{}, networkingv1.Ingress{}, networkingv1.IngressClass{}, networkingv1.NetworkPolicy{},
	policyv1.PodDisruptionBudget{}, autoscalingv1.HorizontalPodAutoscaler{}, autoscalingv2.HorizontalPodAutoscaler{},
	autoscalingv1.Scale{}, schedulingv1.PriorityClass{}, certificatesv1.CertificateSigningRequest{},
	nodev1.RuntimeClass{}, admissionregistrationv1.ValidatingWebhookConfiguration{},
	admissionregistrationv1.MutatingWebhookConfiguration{}, admissionregistrationv1.ValidatingAdmissionPolicy{},
	admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, apiextensionsv1.CustomResourceDefinition{},
	apiregistrationv1.APIService{},
}

var special = map[reflect.Type]string{
	reflect.TypeFor[resource.Quantity]():  "quantity",
	reflect.TypeFor[metav1.Time]():        "time",
	reflect.TypeFor[metav1.MicroTime]():   "microtime",
	reflect.TypeFor[intstr.IntOrString](): "intstr",
	reflect.TypeFor[metav1.Duration]():    "any",
}

var (
	marshaler = reflect.TypeFor[json.Marshaler]()
	lines     = map[string][]string{}
)

func name(t reflect.Type) string {
	path := strings.TrimPrefix(t.PkgPath(), "k8s.io/")
	path = strings.NewReplacer("pkg/apis/", "", "/", ".").Replace(path)
	return path + "." + t.Name()
}

// shape says what a value of a type looks like.
func shape(t reflect.Type) string {
	if word, ok := special[t]; ok {
		return word
	}
	if t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) {
		return "any"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return shape(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[" + shape(t.Elem())
	case reflect.Map:
		return "{" + shape(t.Elem())
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "truth"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint32, reflect.Uint64, reflect.Float64:
		return "number"
	case reflect.Struct:
		visit(t)
		return name(t)
	default:
		return "any"
	}
}

func visit(t reflect.Type) {
	if _, ok := lines[name(t)]; ok {
		return
	}
	lines[name(t)] = nil
	lines[name(t)] = fields(t)
}

func fields(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		field := t.Field(i)
		tag, rest, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && tag == "" {
			out = append(out, fields(field.Type)...)
			continue
		}
		if tag == "-" || tag == "" {
			continue
		}
		out = append(out, tag+" "+presence(field.Type, rest)+" "+shape(field.Type))
	}
	return out
}

// presence says when a field is written: `!` always, `?` unless it is empty, `*` where it is set, if to nothing.
func presence(t reflect.Type, rest string) string {
	may := strings.Contains(rest, "omitempty")
	zero := strings.Contains(rest, "omitzero")
	switch {
	case t.Kind() == reflect.Pointer && (may || zero):
		return "*"
	case zero:
		return "?"
	case t.Kind() == reflect.Struct:
		return "!"
	case t.Kind() == reflect.Interface && may:
		return "*"
	case may:
		return "?"
	case t.Kind() == reflect.Pointer:
		return "n"
	default:
		return "!"
	}
}

func main() {
	for _, root := range roots {
		shape(reflect.TypeOf(root))
	}
	names := make([]string, 0, len(lines))
	for name := range lines {
		names = append(names, name)
	}
	sort.Strings(names)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	fmt.Fprint(out, "# What Go's encoder makes of the types of the built-in kinds; tests/testbed/kind-forms writes this.\n"+
		"# A type, then its fields: name, presence, shape. `!` is always written, `n` too, as null where it is unset; `?`\n"+
		"# unless it is empty; `*` where it is set, be it to nothing. `[` is a list of, `{` a map of.\n")
	for _, name := range names {
		fmt.Fprintf(out, "%s\n", name)
		for _, line := range lines[name] {
			fmt.Fprintf(out, "\t%s\n", line)
		}
	}
}
