package control_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/control"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/policy/baseline"
	"github.com/outbid-dev/outbid/orchestrator/sim"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// annotate sends a request for the bench's sweep as ann, and returns the number of events that it made.
func (b *bench) annotate(req *outbidv1.AnnotateSweepRequest) (events int, err error) {
	if req.GetSweep() == "" {
		req.Sweep = "s-1"
	}
	before := b.core.State().Seq
	b.step(control.Annotate{Request: req, Actor: "ann", Done: func(e error) { err = e }})
	return int(b.core.State().Seq - before), err
}

// A user describes a sweep and changes its tags, also after its end. A snapshot keeps both.
func TestASweepIsAnnotated(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, sim.Sweep("s", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 2})))
	s := b.core.State().Sweeps["s-1"]
	check := func(req *outbidv1.AnnotateSweepRequest, events int, description string, tags ...string) {
		t.Helper()
		before := proto.CloneOf(s.Annotation)
		held := s.Annotation
		n, err := b.annotate(req)
		if err != nil || n != events || s.Annotation.GetDescription() != description || !slices.Equal(s.Annotation.GetTags(), tags) {
			t.Errorf("%v made %d batches and %v, %v", req, n, s.Annotation, err)
		}
		if !proto.Equal(held, before) {
			t.Errorf("readers have %v, which became %v", before, held)
		}
	}
	check(&outbidv1.AnnotateSweepRequest{Description: new("")}, 0, "")
	check(&outbidv1.AnnotateSweepRequest{Description: new(" The baseline\nof <October>. \n"), AddTags: []string{"old", "good", "old"}}, 1,
		"The baseline\nof <October>.", "good", "old")
	check(&outbidv1.AnnotateSweepRequest{AddTags: []string{"old"}, RemoveTags: []string{"none"}}, 0, "The baseline\nof <October>.", "good", "old")
	b.step(control.Command{Sweep: "s-1", Command: outbidv1.SweepCommand_SWEEP_COMMAND_STOP, Actor: "ann", Done: func(error) {}})
	check(&outbidv1.AnnotateSweepRequest{AddTags: []string{"best"}, RemoveTags: []string{"old"}}, 1, "The baseline\nof <October>.", "best", "good")
	restored, err := state.Restore(b.core.State().Snapshot())
	if err != nil || !proto.Equal(restored.Sweeps["s-1"].Annotation, s.Annotation) {
		t.Errorf("restored: %v, %v", restored.Sweeps["s-1"].Annotation, err)
	}
	check(&outbidv1.AnnotateSweepRequest{Description: new(""), RemoveTags: []string{"best", "good"}}, 1, "")
}

func TestBadAnnotations(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, sim.Sweep("s", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 2})))
	many := make([]string, limits.TagCount+1)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	for name, tc := range map[string]struct {
		req  *outbidv1.AnnotateSweepRequest
		want error
		text string
	}{
		"no sweep":    {&outbidv1.AnnotateSweepRequest{Sweep: "s-9", AddTags: []string{"a"}}, state.ErrNotFound, "s-9"},
		"long":        {&outbidv1.AnnotateSweepRequest{Description: new(strings.Repeat("x", 2001))}, state.ErrInvalid, "description: has 2001 bytes; at most 2000 are allowed"},
		"a control":   {&outbidv1.AnnotateSweepRequest{Description: new("a\x1b[2Jb")}, state.ErrInvalid, "description: has the control character U+001B at byte 1"},
		"bidi":        {&outbidv1.AnnotateSweepRequest{Description: new("a\u202eb")}, state.ErrInvalid, "description: has the control character U+202E"},
		"an empty":    {&outbidv1.AnnotateSweepRequest{AddTags: []string{""}}, state.ErrInvalid, `add_tags: "" is not a valid tag; use 1 to 64 bytes without spaces and commas`},
		"a space":     {&outbidv1.AnnotateSweepRequest{AddTags: []string{"a b"}}, state.ErrInvalid, `add_tags: "a b" is not a valid tag`},
		"a comma":     {&outbidv1.AnnotateSweepRequest{AddTags: []string{"a,b"}}, state.ErrInvalid, `add_tags: "a,b" is not a valid tag`},
		"a long tag":  {&outbidv1.AnnotateSweepRequest{AddTags: []string{strings.Repeat("x", 65)}}, state.ErrInvalid, "has 65 bytes; at most 64 are allowed"},
		"many at all": {&outbidv1.AnnotateSweepRequest{AddTags: many}, state.ErrInvalid, "add_tags: the sweep would have 21 tags; at most 20 are allowed"},
	} {
		n, err := b.annotate(tc.req)
		if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) || n != 0 {
			t.Errorf("%s: %d batches, %v", name, n, err)
		}
	}
}

// A tenant that annotates without an end is slowed down like one that reports too fast; its sweep continues.
func TestEndlessAnnotationsAreSlowedDown(t *testing.T) {
	t.Parallel()
	set := settings()
	set.Limits = func(string, *outbidv1.Tenant) limits.Tenant {
		l := limits.Boundless()
		l.ReportRate = 100
		return l
	}
	b := benchOf(t, control.NewCore(set, baseline.FIFO{}, state.New()), 1, sim.Sweep("s", "min", 1, sim.Tuner("random", map[string]int64{"max_steps": 2})))
	text := strings.Repeat("x", 1990)
	for i := range 1000 {
		_, err := b.annotate(&outbidv1.AnnotateSweepRequest{Description: new(fmt.Sprint(i, text))})
		if over, ok := errors.AsType[*state.LimitError](err); ok && over.Limit == "report_rate" && over.RetryAfter > 0 {
			if i < 40 || i > 60 {
				t.Errorf("it was slowed down after %d annotations of 2,000 bytes; a burst of 100,000 is allowed", i)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("a thousand annotations were accepted")
}
