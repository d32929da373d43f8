package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

const vectorsHeader = `# Golden vectors for protobuf: what Go encodes, the JSON Go prints for it, and what Go encodes of that JSON.
#
# Generated, do not edit: tests/testbed/types.
#
# Four lines each: apiVersion, kind and how it was filled; the body in base64; the JSON of
# json(decode(body)), without HTML escapes; encode(that JSON) in base64, or - where it is the body.
# A "damaged" body had records dropped, doubled, emptied and moved before Go decoded it.
`

// committedKinds are the kinds that clients create most; one line per apiVersion.
var committedKinds = map[string][]string{
	"v1": {"Binding", "ConfigMap", "Endpoints", "Event", "LimitRange", "List", "Namespace", "Node",
		"PersistentVolume", "PersistentVolumeClaim", "Pod", "ResourceQuota", "Secret", "Service", "ServiceAccount", "ServiceList", "Status", "DeleteOptions"},
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

// filling is how many of an object's fields are set, from all to none, and what happens then.
type filling struct {
	name    string
	chance  float64
	damaged bool
}

var fillings = []filling{{"full", 1, false}, {"sparse", 0.5, false}, {"empty", 0, false}, {"damaged", 0.6, true}}

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
			if err := writeVector(out, scheme, kind.gvk, filling, seed); err != nil {
				return fmt.Errorf("%s %s: %w", name, filling.name, err)
			}
		}
	}
	if len(wanted) > 0 {
		return fmt.Errorf("not in the scheme: %v", wanted)
	}
	return nil
}

func writeVector(out io.Writer, scheme *runtime.Scheme, gvk schema.GroupVersionKind, filling filling, seed uint64) error {
	obj, err := scheme.New(gvk)
	if err != nil {
		return err
	}
	newFiller(seed, filling.chance).object(obj)
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	body, err := encode(scheme, obj)
	if err != nil {
		return err
	}
	printed, err := decode(scheme, body)
	if err == nil && filling.damaged {
		body, printed, err = damaged(scheme, seed, gvk, body)
	}
	if err != nil {
		return err
	}
	again, err := scheme.New(gvk)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(printed, again); err != nil {
		return err
	}
	again.GetObjectKind().SetGroupVersionKind(gvk)
	encoded, err := encode(scheme, again)
	if err != nil {
		return err
	}
	reencoded := "-"
	if !bytes.Equal(encoded, body) {
		reencoded = base64.StdEncoding.EncodeToString(encoded)
	}
	name := gvk.GroupVersion().String() + " " + gvk.Kind
	_, err = fmt.Fprintf(out, "%s %s\n%s\n%s%s\n", name, filling.name, base64.StdEncoding.EncodeToString(body), printed, reencoded)
	return err
}

// withoutHTMLEscapes undoes what hand-written MarshalJSON methods escape inside their values.
var withoutHTMLEscapes = strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&")

// encode returns what Go sends for an object.
func encode(scheme *runtime.Scheme, obj runtime.Object) ([]byte, error) {
	var encoded bytes.Buffer
	err := protobuf.NewSerializer(scheme, scheme).Encode(obj, &encoded)
	return encoded.Bytes(), err
}

// decode returns the JSON line of what a Go server reads from a body.
func decode(scheme *runtime.Scheme, body []byte) ([]byte, error) {
	decoded, _, err := protobuf.NewSerializer(scheme, scheme).Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	var printed bytes.Buffer
	encoder := json.NewEncoder(&printed)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(decoded); err != nil {
		return nil, err
	}
	return []byte(withoutHTMLEscapes.Replace(printed.String())), nil
}

// damaged returns a damaged form of a body that Go still reads and prints without loss.
func damaged(scheme *runtime.Scheme, seed uint64, gvk schema.GroupVersionKind, body []byte) ([]byte, []byte, error) {
	random := rand.New(rand.NewPCG(seed, 1))
	for range 1000 {
		var envelope runtime.Unknown
		if err := envelope.Unmarshal(body[4:]); err != nil {
			return nil, nil, err
		}
		envelope.Raw = damage(random, envelope.Raw)
		out, err := encode(scheme, &envelope)
		if err != nil {
			return nil, nil, err
		}
		printed, err := decode(scheme, out)
		if err == nil && !bytes.Contains(printed, []byte("\\ufffd")) {
			return out, printed, nil
		}
	}
	return nil, nil, fmt.Errorf("%s: every damage was refused", gvk)
}
