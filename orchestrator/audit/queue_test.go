package audit

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestATenantDoesNotDisplaceTheRecordsOfOthers fills the queue with one tenant's records while the stream is impossible.
func TestATenantDoesNotDisplaceTheRecordsOfOthers(t *testing.T) {
	t.Parallel()
	q := newQueue(6)
	var lost []string
	add := func(tenant, name string) {
		e := call("create", name)
		e.User = User{Username: "user-of-" + name, Groups: []string{"role:user", "tenant:" + tenant}}
		if e, full := q.push(entry{event: e}); full {
			lost = append(lost, e.event.ObjectRef.Name)
		}
	}
	add("vision", "v0")
	for i := range 9 {
		add("flood", fmt.Sprint("f", i))
	}
	add("speech", "s0")
	add("speech", "s1")
	add("vision", "v1")
	add("flood", "f9")
	if want := []string{"f5", "f6", "f7", "f8", "f4", "f3", "f2", "f9"}; !slices.Equal(lost, want) {
		t.Errorf("lost %v, want %v", lost, want)
	}
	var kept []string
	for e, ok := q.pop(); ok; e, ok = q.pop() {
		kept = append(kept, e.event.ObjectRef.Name)
	}
	if want := []string{"v0", "f0", "f1", "s0", "s1", "v1"}; !slices.Equal(kept, want) {
		t.Errorf("kept %v, want %v", kept, want)
	}
	if len(q.tenants) != 0 {
		t.Errorf("it remembers %v", q.tenants)
	}
}

// TestAQueueLosesOnlyOfTheLargest compares the queue with the rule for any calls.
func TestAQueueLosesOnlyOfTheLargest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 8).Draw(t, "size")
		q, waits, order := newQueue(size), map[string]int{}, []string{}
		for _, tenant := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", ""}), 0, 40).Draw(t, "calls") {
			if tenant == "" {
				e, ok := q.pop()
				if ok != (len(order) > 0) || ok && e.event.User.Username != order[0] {
					t.Fatalf("took %q, %v of %v", e.event.User.Username, ok, order)
				}
				if ok {
					waits[order[0]]--
					order = order[1:]
				}
				continue
			}
			before := len(order)
			lost, full := q.push(entry{event: Event{User: User{Username: tenant}}})
			if full != (before == size) {
				t.Fatalf("full is %v with %d of %d", full, before, size)
			}
			order = append(order, tenant)
			waits[tenant]++
			if full {
				name := lost.event.User.Username
				if waits[name] < max(waits["a"], waits["b"], waits["c"]) {
					t.Fatalf("%q lost a record of %v", name, waits)
				}
				waits[name]--
				for i := len(order) - 1; ; i-- {
					if order[i] == name {
						order = slices.Delete(order, i, i+1)
						break
					}
				}
			}
		}
	})
}
