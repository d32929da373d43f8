package main

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// event is the line of an event, and of SYNCED.
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

// list is the line that answers "list" and "pages": every item as often as it came, and the revision of each page.
type list struct {
	Type      string   `json:"type"`
	Items     []item   `json:"items"`
	Revisions []string `json:"revisions"`
	Error     string   `json:"error,omitempty"`
}

type item struct {
	Key  string `json:"key"`
	RV   string `json:"rv"`
	UID  string `json:"uid"`
	Data any    `json:"data"`
}

func describe(kind string, old, obj any) event {
	it := itemOf(obj)
	e := event{Type: kind, Key: it.Key, RV: it.RV, UID: it.UID}
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

func dump(held []any) contents {
	items := map[string]item{}
	for _, obj := range held {
		it := itemOf(obj)
		items[it.Key] = it
	}
	return contents{Type: "DUMP", Items: items}
}

func listed(objects []runtime.Object, revisions []string, err error) list {
	line := list{Type: "LIST", Items: []item{}, Revisions: revisions}
	if err != nil {
		line.Error = err.Error()
	}
	for _, object := range objects {
		line.Items = append(line.Items, itemOf(object))
	}
	return line
}

func itemOf(obj any) item {
	key, _ := cache.MetaNamespaceKeyFunc(obj)
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return item{Key: key}
	}
	it := item{Key: key, RV: accessor.GetResourceVersion(), UID: string(accessor.GetUID())}
	switch object := obj.(type) {
	case *corev1.ConfigMap:
		it.Data = object.Data
	case *unstructured.Unstructured:
		it.Data = object.Object["data"]
	}
	return it
}
