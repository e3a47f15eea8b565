package policytest

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"time"

	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/cluster"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// DrawView draws a view for a policy.
func DrawView(t *rapid.T) *policy.View { return drawWorld(t).view() }

// Imprint returns everything that a policy can see as bytes, to detect changes.
func Imprint(v *policy.View) []byte { return imprint(nil, v) }

// imprint appends everything that a policy can see as bytes, which differ if the policy changes anything. It contains
// the same as dumpView but is many times faster, and is computed twice for each decision of a test.
func imprint(to []byte, v *policy.View) []byte {
	i := imprinter{data: to, seen: map[uintptr]bool{}}
	i.add(reflect.ValueOf(*v))
	for n := range v.Nodes {
		i.free(v, n)
	}
	return i.data
}

type imprinter struct {
	data []byte
	seen map[uintptr]bool
}

func (i *imprinter) number(n uint64) { i.data = binary.LittleEndian.AppendUint64(i.data, n) }

func (i *imprinter) yes(b bool) {
	if b {
		i.number(1)
	} else {
		i.number(0)
	}
}

// add appends a whole value, whatever its fields.
func (i *imprinter) add(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for f := range v.NumField() {
			i.add(v.Field(f))
		}
	case reflect.Slice, reflect.Array:
		i.number(uint64(v.Len()))
		for e := range v.Len() {
			i.add(v.Index(e))
		}
	case reflect.Pointer:
		at := v.Pointer() // a replaced pointer is a change even if the value is equal
		i.number(uint64(at))
		if at != 0 && !i.seen[at] && !opaque(v.Type()) {
			i.seen[at] = true
			i.add(v.Elem())
		}
	case reflect.Func:
		i.yes(v.IsNil())
	case reflect.String:
		i.number(uint64(v.Len()))
		i.data = append(i.data, v.String()...)
	case reflect.Bool:
		i.yes(v.Bool())
	case reflect.Float32, reflect.Float64:
		i.number(math.Float64bits(v.Float()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		i.number(v.Uint())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		i.number(uint64(v.Int()))
	default:
		i.data = fmt.Append(i.data, v)
	}
}

// opaque types have internal changes without meaning; free capacity is covered by imprinter.free.
func opaque(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[*cluster.Capacity](), reflect.TypeFor[*outbidv1.SweepSpec](), reflect.TypeFor[*time.Location]():
		return true
	default:
		return false
	}
}

// free appends what is free on a node. Demands that fit reveal the free cores and memory.
func (i *imprinter) free(v *policy.View, node int) {
	i.number(uint64(v.Free.FreeAt(node, "")))
	for d := range v.Nodes[node].Devices {
		i.yes(v.Free.IsFree(cluster.Gang{{Node: node, Devices: []int{d}}}))
	}
	for _, d := range probes() {
		i.yes(v.Free.Fits(cluster.Gang{{Node: node}}, d))
	}
}

// probes are demands that distinguish the possible remainders of a node.
func probes() []cluster.Demand {
	return []cluster.Demand{{CPUs: 1}, {CPUs: 2}, {CPUs: 3}, {Memory: 1}, {Memory: 2}, {Memory: 4}}
}
