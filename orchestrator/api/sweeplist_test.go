package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// The REST list of sweeps equals the gateway's on every page, and an unchanged list is not sent again.
func TestTheListOfSweepsIsSentOnce(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	for i := range 5 {
		h.control.add(fmt.Sprintf("digits-%d", i), "vision", i)
	}
	h.control.add("words-1", "speech", 1)
	list := func(who, query, tag string) (status int, text, newTag string) {
		resp, body := h.call(t, http.MethodGet, "/v1/sweeps"+query, "", "Authorization", "Bearer "+token(who), "If-None-Match", tag)
		return resp.StatusCode, string(body), resp.Header.Get("ETag")
	}
	_, text, tag := list("ann", "?page_size=2", "")
	found, err := h.dial(t, token("ann")).ListSweeps(t.Context(), &outbidv1.ListSweepsRequest{PageSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	want, err := newMarshaler().Marshal(found)
	if err != nil || !sameJSON(t, text, string(want)) || len(found.GetSweeps()) != 2 || found.GetNextPageToken() == "" {
		t.Errorf("got %s, want %s, %v", text, want, err)
	}
	if code, _, again := list("ann", "?page_size=2", tag); code != http.StatusNotModified || again != tag {
		t.Errorf("the same list: %d with the tag %s, which was %s", code, again, tag)
	}
	for name, other := range map[string][2]string{
		"the next page": {"ann", "?page_size=2&page_token=" + found.GetNextPageToken()}, "another tenant": {"bob", "?page_size=2"}, "another size": {"ann", ""},
	} {
		if code, text, again := list(other[0], other[1], tag); code != http.StatusOK || again == tag || !json.Valid([]byte(text)) {
			t.Errorf("%s: %d with the tag %s, which was %s: %s", name, code, again, tag, text)
		}
	}
	h.control.change("digits-4", func(s *fakeSweep) { s.view.Reason = "enough" })
	if code, text, _ := list("ann", "?page_size=2", tag); code != http.StatusOK || !strings.Contains(text, "enough") {
		t.Errorf("after a change: %d, %s", code, text)
	}
	for query, says := range map[string]string{"?page_size=x": "page_size", "?size=2": "is not a parameter", "?page_token=x": "page_token"} {
		if code, text, _ := list("ann", query, ""); code != http.StatusBadRequest || !strings.Contains(text, says) {
			t.Errorf("%s: %d, %s", query, code, text)
		}
	}
}

// Callers who may not see the values of variables get them hidden, and another tag.
func TestTheListOfSweepsHidesVariables(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	h.control.add("digits-1", "vision", 1)
	h.control.sweeps["digits-1"].view.Spec.Workload = &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Command: []string{"train"}, Env: map[string]string{"KEY": "opensesame"}}}
	tags := map[string]bool{}
	for who, sees := range map[string]bool{"ann": true, "ned": false} {
		for range 2 {
			resp, body := h.call(t, http.MethodGet, "/v1/sweeps", "", "Authorization", "Bearer "+token(who))
			tags[resp.Header.Get("ETag")] = true
			if strings.Contains(string(body), "opensesame") != sees {
				t.Errorf("%s gets %s", who, body)
			}
		}
	}
	if len(tags) != 2 {
		t.Errorf("the tags are %v, want two", tags)
	}
}

// list encodes the fields that a list has now.
func TestAListHasNoOtherFields(t *testing.T) {
	t.Parallel()
	if n := (&outbidv1.ListSweepsResponse{}).ProtoReflect().Descriptor().Fields().Len(); n != 2 {
		t.Errorf("ListSweepsResponse has %d fields: add the new ones to sweepEncodings.list and sweepList.render", n)
	}
}

// The encoding of a sweep is kept as long as the view, and JSON up to a size.
func TestEncodingsOfSweepsAreBounded(t *testing.T) {
	t.Parallel()
	e := &sweepEncodings{}
	kept := func() (n int) {
		e.kept.Range(func(any, any) bool { n++; return true })
		return n
	}
	last := &outbidv1.Sweep{Id: "last"}
	for i := range 1000 {
		if _, err := e.of(&outbidv1.Sweep{Id: fmt.Sprint("sweep-", i)}); err != nil {
			t.Fatal(err)
		}
	}
	first, err := e.of(last)
	if again, _ := e.of(last); err != nil || &first[0] != &again[0] {
		t.Errorf("a sweep was encoded twice: %v", err)
	}
	for kept() > 1 {
		runtime.GC()
	}
	runtime.KeepAlive(last)
	l := newSweepList(nil, nil)
	for i := range 100 {
		data, err := proto.Marshal(&outbidv1.Sweep{Id: fmt.Sprint("sweep-", i), Reason: strings.Repeat("x", keptJSON/16)})
		if err == nil {
			_, err = l.sweep(data)
		}
		if err != nil || len(l.sweeps)+len(l.before) > 16 {
			t.Fatalf("%d and %d sweeps are kept: %v", len(l.sweeps), len(l.before), err)
		}
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var values [2]any
	for i, text := range []string{a, b} {
		if err := json.Unmarshal([]byte(text), &values[i]); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}
