package main

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// filler sets the fields of an object, the same way for the same seed.
type filler struct {
	random *rand.Rand
	// chance is the share of fields that are set; at 1 all are.
	chance float64
}

func newFiller(seed uint64, chance float64) *filler {
	return &filler{random: rand.New(rand.NewPCG(seed, 0)), chance: chance}
}

var quantities = []string{"0", "1", "100m", "1500m", "2Gi", "64Mi", "5k", "1e3", "-7", "12345678901234567890", "3n"}

var jsonTexts = []string{
	`{}`, `null`, `true`, `1.50`, `"text"`, `[1, "two", {"three": null}]`,
	`{"apiVersion":"v1", "kind":"Pod", "spec": {"a b":" \" : , ", "n":12345678901234567890}}`,
}

var texts = []string{"a", "name", "kubernetes.io/hostname", "Größe ☸", "say \"no\" \\ to\ttabs\n", "<b>&amp;</b>", "\x01\x1f\x7f"}

// nestingMax ends recursive types (JSONSchemaProps): one inside another, and no further.
const nestingMax = 2

func (f *filler) object(obj runtime.Object) {
	value := reflect.ValueOf(obj).Elem()
	for i := 0; i < value.NumField(); i++ {
		if value.Type().Field(i).Name != "TypeMeta" {
			f.fill(value.Field(i), map[reflect.Type]int{})
		}
	}
}

func (f *filler) skip() bool { return f.chance < 1 && f.random.Float64() >= f.chance }

func pick[T any](f *filler, from []T) T { return from[f.random.IntN(len(from))] }

func (f *filler) fill(value reflect.Value, inside map[reflect.Type]int) {
	if f.custom(value) {
		return
	}
	switch value.Kind() {
	case reflect.Struct:
		f.structure(value, inside)
	case reflect.Pointer:
		if !f.skip() && !tooDeep(value.Type().Elem(), inside) {
			value.Set(reflect.New(value.Type().Elem()))
			f.fill(value.Elem(), inside)
		}
	case reflect.Slice:
		f.slice(value, inside)
	case reflect.Map:
		f.mapping(value, inside)
	default:
		if !f.skip() {
			f.scalar(value)
		}
	}
}

func tooDeep(typ reflect.Type, inside map[reflect.Type]int) bool { return inside[typ] >= nestingMax }

func (f *filler) structure(value reflect.Value, inside map[reflect.Type]int) {
	inside[value.Type()]++
	defer func() { inside[value.Type()]-- }()
	for i := 0; i < value.NumField(); i++ {
		if value.Type().Field(i).Tag.Get("protobuf") != "" {
			f.fill(value.Field(i), inside)
		}
	}
}

func (f *filler) slice(value reflect.Value, inside map[reflect.Type]int) {
	if f.skip() || tooDeep(value.Type().Elem(), inside) {
		return
	}
	length := 1
	if value.Type().Elem().Kind() != reflect.Struct || f.chance < 1 {
		length += f.random.IntN(2)
	}
	if value.Type().Elem().Kind() == reflect.Uint8 {
		length += f.random.IntN(5)
	}
	value.Set(reflect.MakeSlice(value.Type(), length, length))
	for i := 0; i < length; i++ {
		f.fill(value.Index(i), inside)
	}
}

func (f *filler) mapping(value reflect.Value, inside map[reflect.Type]int) {
	if f.skip() || tooDeep(value.Type().Elem(), inside) {
		return
	}
	value.Set(reflect.MakeMap(value.Type()))
	for range 1 + f.random.IntN(2) {
		key := reflect.New(value.Type().Key()).Elem()
		key.SetString(fmt.Sprintf("key-%d", f.random.IntN(100)))
		element := reflect.New(value.Type().Elem()).Elem()
		f.fill(element, inside)
		value.SetMapIndex(key, element)
	}
}

func (f *filler) scalar(value reflect.Value) {
	switch value.Kind() {
	case reflect.Bool:
		value.SetBool(f.chance == 1 || f.random.IntN(2) == 0)
	case reflect.Int32:
		value.SetInt(int64(pick(f, []int32{1, -1, 80, 300, 65535, 1<<31 - 1, -1 << 31})))
	case reflect.Int64:
		value.SetInt(pick(f, []int64{1, -1, 300, 1 << 40, 1<<63 - 1, -1 << 63}))
	case reflect.Float64:
		value.SetFloat(pick(f, []float64{1, 0.5, -2.25, 1e-9, 1e21, 123456789, 1.7976931348623157e308}))
	case reflect.Uint8:
		value.SetUint(uint64(f.random.IntN(256)))
	case reflect.String:
		value.SetString(pick(f, texts))
	default:
		fail(fmt.Errorf("cannot fill %s", value.Type()))
	}
}

// custom fills the types whose fields are not independent of each other.
func (f *filler) custom(value reflect.Value) bool {
	seconds := pick(f, []int64{0, 1, -1, 1700000000, 951782400, -62135596799, 253402300799})
	text := []byte(pick(f, jsonTexts))
	switch target := value.Addr().Interface().(type) {
	case *metav1.Time:
		if !f.skip() {
			*target = metav1.Unix(seconds, 0)
		}
	case *metav1.MicroTime:
		if !f.skip() {
			*target = metav1.MicroTime{Time: time.Unix(seconds, int64(f.random.IntN(1_000_000_000)))}
		}
	case *metav1.Duration:
		target.Duration = pick(f, []time.Duration{0, 1, 1500, -time.Millisecond * 3 / 2, 90 * time.Second, 36*time.Hour + 500*time.Millisecond, -1 << 63})
	case *resource.Quantity:
		*target = resource.MustParse(pick(f, quantities))
	case *intstr.IntOrString:
		*target = pick(f, []intstr.IntOrString{intstr.FromInt32(0), intstr.FromInt32(-8080), intstr.FromString("25%"), intstr.FromString("")})
	case *runtime.RawExtension:
		target.Raw = text
	case *metav1.FieldsV1:
		target.SetRawBytes([]byte(`{"f:metadata":{"f:labels":{".":{}, "k:{\"a\":1}":{}}}}`))
	case *apiextensionsv1.JSON:
		target.Raw = text
	case *apiextensionsv1beta1.JSON:
		target.Raw = text
	default:
		return false
	}
	return true
}
