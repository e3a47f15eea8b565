package remote_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/remote"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func spec(name string) *outbidv1.SweepSpec { return &outbidv1.SweepSpec{Name: name} }

func at(second int) time.Time { return time.Unix(1_700_000_000+int64(second), 0).UTC() }

// Questions are answered in order, each once.
func TestQuestionsAreAnsweredInOrder(t *testing.T) {
	t.Parallel()
	r := remote.New(spec("s"), &outbidv1.TunerStatus{Outlook: &outbidv1.Outlook{Trials: 3}})
	if r.Outlook().Trials != 3 || r.Status() != (tuner.Status{}) {
		t.Errorf("it begins with %+v, %+v", r.Outlook(), r.Status())
	}
	if err := r.Answer(1, nil); err == nil {
		t.Error("it answered before it was asked")
	}
	r.Tell(at(1), tuner.Ask{N: 2})
	r.Tell(at(2), tuner.Reached{Trial: 1, Step: 3, Metric: 1})
	r.Tell(at(3), tuner.Exited{Trial: 1, Step: 3})
	if !r.Asked() || !r.Status().Waiting {
		t.Error("it is to be asked again")
	}
	for _, n := range []uint64{0, 2, 3, 4} {
		if err := r.Answer(n, nil); err == nil {
			t.Errorf("answer %d came first", n)
		}
	}
	if err := r.Answer(1, &outbidv1.TunerStatus{Exhausted: true}); err != nil {
		t.Error(err)
	}
	if err := r.Answer(1, nil); err == nil {
		t.Error("it answered twice")
	}
	if q, open := r.Reached(1); !open || !q.At.Equal(at(2)) || !r.Exited(1) || r.Exited(0) {
		t.Errorf("open are %+v", r.Open())
	}
	if r.Status() != (tuner.Status{}) || !r.Said().Exhausted || r.Outlook().Trials != 3 {
		t.Errorf("with open questions it is %+v, %+v", r.Status(), r.Outlook())
	}
	for n := range uint64(2) {
		if err := r.Answer(n+2, &outbidv1.TunerStatus{Exhausted: true, Waiting: true, Outlook: &outbidv1.Outlook{Trials: 5}}); err != nil {
			t.Error(err)
		}
	}
	if r.Status() != (tuner.Status{Waiting: true, Exhausted: true}) || r.Outlook().Trials != 5 || r.Answered() != 3 {
		t.Errorf("it is %+v, %+v", r.Status(), r.Outlook())
	}
}

// A new process continues from the snapshot, and is configured with the spec of that time.
func TestAProcessGoesOnFromItsSnapshot(t *testing.T) {
	t.Parallel()
	r := remote.New(spec("first"), &outbidv1.TunerStatus{})
	r.Tell(at(1), tuner.Ask{N: 1})
	r.Tell(at(2), tuner.Extended{Settings: tuner.Settings{Spec: spec("second")}})
	r.Tell(at(3), tuner.Ask{N: 2})
	r.Tell(at(4), tuner.Ask{N: 3})
	for n := range uint64(3) {
		if err := r.Answer(n+1, nil); err != nil {
			t.Fatal(err)
		}
	}
	start := r.Start()
	if start.Settings.Spec.GetName() != "first" || len(start.Told) != 3 || start.Answered != 3 || start.Snapshot != nil {
		t.Errorf("it starts from %+v", start)
	}
	r.Save(4, []byte("not answered"))
	r.Save(1, []byte("one"))
	start = r.Start()
	if start.Settings.Spec.GetName() != "first" || len(start.Told) != 2 || string(start.Snapshot) != "one" {
		t.Errorf("it starts from %+v", start)
	}
	r.Save(2, nil)
	r.Save(2, []byte("two"))
	start = r.Start()
	if start.Settings.Spec.GetName() != "second" || len(start.Told) != 1 || start.Told[0].Number != 3 || string(start.Snapshot) != "two" {
		t.Errorf("it starts from %+v", start)
	}
	if open := r.Open(); len(open) != 1 || open[0].Number != 4 {
		t.Errorf("open are %+v", open)
	}
}

// A restored tuner equals the one of the snapshot.
func TestASnapshotIsTheTuner(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := remote.New(spec("s"), &outbidv1.TunerStatus{})
		for i := range rapid.IntRange(0, 20).Draw(rt, "events") {
			n := tuner.Trial(rapid.IntRange(0, 3).Draw(rt, "trial"))
			v := rapid.Float64().Draw(rt, "value")
			switch rapid.IntRange(0, 6).Draw(rt, "kind") {
			case 0:
				r.Tell(at(i), tuner.Ask{N: int(n)})
			case 1:
				r.Tell(at(i), tuner.Reported{Trial: n, Step: 2, Metric: v, Metrics: map[string]float64{"a": v, "b": 2}})
			case 2:
				r.Tell(at(i), tuner.Reached{Trial: n, Step: 2, Metric: v})
			case 3:
				r.Tell(at(i), tuner.Exited{Trial: n, Failed: v > 0, Metric: v})
			case 4:
				r.Tell(at(i), tuner.Extended{Settings: tuner.Settings{Spec: spec("wider")}})
			case 5:
				if q, open := r.Next(); open {
					if err := r.Answer(q.Number, &outbidv1.TunerStatus{Waiting: v > 0, Outlook: &outbidv1.Outlook{Steps: int64(i)}}); err != nil {
						rt.Fatal(err)
					}
				}
			case 6:
				r.Save(uint64(rapid.IntRange(0, i).Draw(rt, "saved")), []byte("state"))
			}
		}
		data, err := r.Snapshot()
		if err != nil {
			rt.Fatal(err)
		}
		again, err := remote.Restore(data)
		if err != nil {
			rt.Fatal(err)
		}
		second, err := again.Snapshot()
		if err != nil || !bytes.Equal(data, second) {
			rt.Fatal("it is another after it was restored", err)
		}
		if diff := cmp.Diff(r.Open(), again.Open(), protocmp.Transform(), cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); diff != "" {
			rt.Fatal(diff)
		}
		if r.Status() != again.Status() || r.Answered() != again.Answered() {
			rt.Fatalf("%+v is %+v", r.Status(), again.Status())
		}
	})
}

func TestWhatIsNoSnapshot(t *testing.T) {
	t.Parallel()
	for _, data := range [][]byte{nil, []byte("x"), {0x18, 5}} {
		if _, err := remote.Restore(data); !errors.Is(err, tuner.ErrBadSnapshot) {
			t.Errorf("%q: %v", data, err)
		}
	}
}
