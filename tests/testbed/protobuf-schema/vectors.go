package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

const vectorsHeader = `# Golden vectors for src/wire/protobuf: what Go encodes, and the JSON Go prints for it.
#
# Generated, do not edit. To regenerate, in tests/testbed/protobuf-schema:
#     go run . vectors > ../../../src/wire/protobuf/testdata/vectors.txt
#
# Three lines each: apiVersion, kind and how it was filled; the body in base64; the JSON of
# json(decode(encode(object))), without HTML escapes.
`

// committedKinds are the kinds that clients create most; one line per apiVersion.
var committedKinds = map[string][]string{
	"v1": {"Binding", "ConfigMap", "Endpoints", "Event", "LimitRange", "List", "Namespace", "Node",
		"PersistentVolume", "PersistentVolumeClaim", "Pod", "PodList", "PodTemplate", "ReplicationController",
		"ResourceQuota", "Secret", "Service", "ServiceAccount", "Status", "DeleteOptions"},
	"apps/v1":                         {"ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"},
	"batch/v1":                        {"CronJob", "Job"},
	"autoscaling/v1":                  {"HorizontalPodAutoscaler", "Scale"},
	"autoscaling/v2":                  {"HorizontalPodAutoscaler"},
	"policy/v1":                       {"Eviction", "PodDisruptionBudget"},
	"networking.k8s.io/v1":            {"Ingress", "IngressClass", "NetworkPolicy", "ServiceCIDR"},
	"rbac.authorization.k8s.io/v1":    {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"},
	"authentication.k8s.io/v1":        {"SelfSubjectReview", "TokenRequest", "TokenReview"},
	"authorization.k8s.io/v1":         {"LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview"},
	"coordination.k8s.io/v1":          {"Lease"},
	"discovery.k8s.io/v1":             {"EndpointSlice"},
	"events.k8s.io/v1":                {"Event"},
	"storage.k8s.io/v1":               {"CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"},
	"scheduling.k8s.io/v1":            {"PriorityClass"},
	"node.k8s.io/v1":                  {"RuntimeClass"},
	"certificates.k8s.io/v1":          {"CertificateSigningRequest"},
	"flowcontrol.apiserver.k8s.io/v1": {"FlowSchema", "PriorityLevelConfiguration"},
	"admissionregistration.k8s.io/v1": {"MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration"},
	"resource.k8s.io/v1":              {"DeviceClass", "ResourceClaim", "ResourceSlice"},
	"apiextensions.k8s.io/v1":         {"CustomResourceDefinition"},
	"apiregistration.k8s.io/v1":       {"APIService"},
	"meta.k8s.io/v1":                  {"PartialObjectMetadata"},
}

// fillings are how many of an object's fields are set, from all to none.
var fillings = []struct {
	name   string
	chance float64
}{{"full", 1}, {"sparse", 0.5}, {"empty", 0}}

func writeVectors(out io.Writer, all bool, seed uint64) error {
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for apiVersion, kinds := range committedKinds {
		for _, kind := range kinds {
			wanted[apiVersion+" "+kind] = true
		}
	}
	fmt.Fprint(out, vectorsHeader)
	for _, kind := range protobufKinds(scheme) {
		name := kind.gvk.GroupVersion().String() + " " + kind.gvk.Kind
		if !all && !wanted[name] {
			continue
		}
		delete(wanted, name)
		for _, filling := range fillings {
			obj, err := scheme.New(kind.gvk)
			if err != nil {
				return err
			}
			newFiller(seed, filling.chance).object(obj)
			obj.GetObjectKind().SetGroupVersionKind(kind.gvk)
			encoded, printed, err := roundTrip(scheme, obj)
			if err != nil {
				return fmt.Errorf("%s %s: %w", name, filling.name, err)
			}
			fmt.Fprintf(out, "%s %s\n%s\n%s", name, filling.name, base64.StdEncoding.EncodeToString(encoded), printed)
		}
	}
	if len(wanted) > 0 {
		return fmt.Errorf("not in the scheme: %v", wanted)
	}
	return nil
}

// withoutHTMLEscapes undoes what hand-written MarshalJSON methods escape inside their values.
var withoutHTMLEscapes = strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&")

// roundTrip returns what Go sends, and the JSON line of what a Go server reads from it.
func roundTrip(scheme *runtime.Scheme, obj runtime.Object) ([]byte, []byte, error) {
	codec := protobuf.NewSerializer(scheme, scheme)
	var encoded bytes.Buffer
	if err := codec.Encode(obj, &encoded); err != nil {
		return nil, nil, err
	}
	decoded, _, err := codec.Decode(encoded.Bytes(), nil, nil)
	if err != nil {
		return nil, nil, err
	}
	var printed bytes.Buffer
	encoder := json.NewEncoder(&printed)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(decoded); err != nil {
		return nil, nil, err
	}
	return encoded.Bytes(), []byte(withoutHTMLEscapes.Replace(printed.String())), nil
}
