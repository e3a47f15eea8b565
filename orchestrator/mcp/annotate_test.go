package mcp

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestAnnotateSendsOnlyWhatWasGivenAndReturnsWhatWasBefore(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.sweeps[0].Annotation = &outbidv1.Annotation{Description: "older\u202e", Tags: []string{"draft"}}
	session := f.client(t, Config{})
	got := mustAsk(t, session, "annotate", map[string]any{"sweep": "digits", "add_tags": []any{"good"}, "remove_tags": []any{"draft"}})
	if diff := cmp.Diff(map[string]any{"description": "older\ufffd", "tags": []any{"draft"}}, got["before"]); diff != "" {
		t.Errorf("before (-want +got):\n%s", diff)
	}
	if sweep := got["sweep"].(map[string]any); sweep["tags"].([]any)[0] != "good" {
		t.Errorf("the sweep is %v", sweep)
	}
	mustAsk(t, session, "annotate", map[string]any{"sweep": "digits-1", "description": ""})
	first, second := f.got[0].(*outbidv1.AnnotateSweepRequest), f.got[1].(*outbidv1.AnnotateSweepRequest)
	if first.GetSweep() != "digits-2" || first.Description != nil || first.GetAddTags()[0] != "good" || first.GetRemoveTags()[0] != "draft" {
		t.Errorf("the first request is %v", first)
	}
	if second.GetSweep() != "digits-1" || second.Description == nil || second.GetDescription() != "" {
		t.Errorf("the second request is %v", second)
	}
}

func TestListsShortenDescriptions(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.sweeps[0].Annotation = &outbidv1.Annotation{Description: strings.Repeat("long ", 300)}
	session := f.client(t, Config{})
	listed := mustAsk(t, session, "list_sweeps", nil)["sweeps"].([]any)[0].(map[string]any)
	if n := len(listed["description"].(string)); n > maxName+3 {
		t.Errorf("a list has %d bytes of a description", n)
	}
	shown := mustAsk(t, session, "show_sweep", map[string]any{"sweep": "digits-2"})["sweep"].(map[string]any)
	if n := len(shown["description"].(string)); n != 1500 {
		t.Errorf("show_sweep has %d bytes of the description", n)
	}
}
