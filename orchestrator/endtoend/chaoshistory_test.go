package endtoend

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// The calls of a history. A pause tells whether a sweep has ended: then it is refused.
const (
	callSubmit = iota
	callEnd
	callPause
)

// asked is a call about the sweep of an idempotency key.
type asked struct {
	key  string
	call int
	id   string
}

// answered is its outcome. The outcome of a call that got no answer is unknown: it may take effect at any later time.
type answered struct {
	unknown, refused, missing bool
	id                        string
}

// register is the state of one key.
type register struct {
	id    string
	known bool
	ended bool
}

// registers is what submits, ends and pauses of sweeps must look like: as if each happened at one moment.
func registers() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, op := range history {
				key := op.Input.(asked).key //nolint:forcetypeassert // all are
				byKey[key] = append(byKey[key], op)
			}
			var all [][]porcupine.Operation
			for _, ops := range byKey {
				all = append(all, ops)
			}
			return all
		},
		Init: func() any { return register{} },
		Step: func(before, input, output any) (bool, any) {
			return step(before.(register), input.(asked), output.(answered)) //nolint:forcetypeassert // all are
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
	}
}

func step(s register, in asked, out answered) (bool, any) {
	switch in.call {
	case callSubmit:
		if s.known {
			return out.unknown || s.id == "" || out.id == s.id, register{id: max(s.id, out.id), known: true, ended: s.ended}
		}
		return out.unknown || !out.missing && !out.refused, register{id: out.id, known: true}
	case callEnd:
		if out.unknown {
			return true, register{id: s.id, known: s.known, ended: s.ended || s.known}
		}
		if out.missing {
			return !s.known, s
		}
		return s.known && !out.refused, register{id: s.id, known: true, ended: true}
	default:
		switch {
		case out.unknown:
			return true, s
		case out.missing:
			return !s.known, s
		case out.refused:
			return s.known && s.ended, s
		}
		return s.known && !s.ended, s
	}
}

// notDone are answers of servers that do not lead, and of a port without a server: they say that a call had no effect.
var notDone = []string{"starting or a standby", "waits for NATS", "connection refused"}

// callHistory records the calls of several users.
type callHistory struct {
	began time.Time

	mu  sync.Mutex
	all []porcupine.Operation
	// ids are the sweeps of keys whose submit was acknowledged.
	ids  map[string]string
	keys int
	// fresh is set until a submit of the newest key may have had an effect.
	fresh bool
	odd   map[string]int // unexpected answers
}

// record adds a call to the history. It returns false if the call had no effect.
func (h *callHistory) record(user int, in asked, from time.Time, err error, id string) bool {
	to := int64(time.Since(h.began))
	out := answered{id: id}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch status.Code(err) {
	case codes.OK:
		if in.call == callSubmit {
			h.ids[in.key] = id
		}
	case codes.FailedPrecondition:
		out.refused = true
	case codes.NotFound:
		out.missing = true
	case codes.ResourceExhausted:
		return false
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		if slices.ContainsFunc(notDone, func(text string) bool { return strings.Contains(err.Error(), text) }) {
			return false
		}
		out.unknown, to = true, math.MaxInt64
	default:
		h.odd[err.Error()]++
		out.unknown, to = true, math.MaxInt64
	}
	if in.key == fmt.Sprint("key", h.keys) {
		h.fresh = false
	}
	h.all = append(h.all, porcupine.Operation{ClientId: user, Input: in, Call: int64(from.Sub(h.began)), Output: out, Return: to})
	return true
}

// lastKeys is how many keys are called about.
const lastKeys = 4

// retired returns the end of an old sweep after the submit of a new key. Users call about the last keys only.
func (h *callHistory) retired(in asked) asked {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, _ := strconv.Atoi(strings.TrimPrefix(in.key, "key"))
	if in.call != callSubmit {
		return asked{}
	}
	key := fmt.Sprint("key", n-lastKeys)
	return asked{key: key, call: callEnd, id: h.ids[key]}
}

// pick returns the next call of a user: about a new key, or about one of the last.
func (h *callHistory) pick(rng *rand.Rand) asked {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keys == 0 || !h.fresh && rng.IntN(6) == 0 {
		h.keys++
		h.fresh = true
		return asked{key: fmt.Sprint("key", h.keys), call: callSubmit}
	}
	key := fmt.Sprint("key", max(1, h.keys-rng.IntN(lastKeys)))
	call := []int{callSubmit, callPause, callPause, callEnd}[rng.IntN(4)]
	if h.ids[key] == "" {
		call = callSubmit
	}
	return asked{key: key, call: call, id: h.ids[key]}
}

// use makes calls until ctx ends.
func (h *callHistory) use(ctx context.Context, user int, rng *rand.Rand, clients []outbidv1.OutbidServiceClient) {
	for ctx.Err() == nil {
		in := h.pick(rng)
		h.call(user, rng, in, clients)
		if old := h.retired(in); old.id != "" { // a tenant may have 1,000 sweeps that have not ended
			h.call(user, rng, old, clients)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(20+rng.IntN(80)) * time.Millisecond):
		}
	}
}

// call makes a call of one server after another until it may have had an effect.
func (h *callHistory) call(user int, rng *rand.Rand, in asked, clients []outbidv1.OutbidServiceClient) {
	for _, i := range rng.Perm(len(clients)) {
		from := time.Now()
		id, err := in.send(clients[i])
		if h.record(user, in, from, err, id) {
			return
		}
	}
}

// answerPatience is how long a user waits for an answer. Then its outcome is unknown.
const answerPatience = 3 * time.Second

func (in asked) send(c outbidv1.OutbidServiceClient) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerPatience)
	defer cancel()
	if in.call == callSubmit {
		spec := job{name: in.key, tuner: random(1), trials: 1}.bare()
		spec.Workload = &outbidv1.SweepSpec_External{External: &outbidv1.External{}}
		r, err := c.SubmitSweep(ctx, &outbidv1.SubmitSweepRequest{Spec: spec, IdempotencyKey: in.key})
		return r.GetSweep().GetId(), err
	}
	command := outbidv1.SweepCommand_SWEEP_COMMAND_PAUSE
	if in.call == callEnd {
		command = outbidv1.SweepCommand_SWEEP_COMMAND_STOP
	}
	_, err := c.ControlSweep(ctx, &outbidv1.ControlSweepRequest{Sweep: in.id, Command: command})
	return in.id, err
}

// check fails unless the history is linearizable.
func (h *callHistory) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	known := 0
	for _, op := range h.all {
		if !op.Output.(answered).unknown { //nolint:forcetypeassert // all are
			known++
		}
	}
	t.Logf("%d calls about %d sweeps, of which %d were answered", len(h.all), h.keys, known)
	for text, n := range h.odd {
		t.Errorf("%d calls were answered as if the server were wrong: %s", n, text)
	}
	if result := porcupine.CheckOperationsTimeout(registers(), h.all, time.Minute); result != porcupine.Ok {
		t.Errorf("submits and ends are not linearizable: %s", result)
	}
	for _, part := range registers().Partition(h.all) {
		if porcupine.CheckOperations(registers(), part) {
			continue
		}
		for _, op := range part {
			t.Logf("%d to %d: user %d: %+v: %+v", op.Call/1e6, op.Return/1e6, op.ClientId, op.Input, op.Output)
		}
	}
}

// TestTheModelOfHistories checks that the checker finds what must not happen.
func TestTheModelOfHistories(t *testing.T) {
	t.Parallel()
	type op struct {
		call     int
		out      answered
		from, to int64
	}
	lost := int64(math.MaxInt64)
	for name, c := range map[string]struct {
		ops []op
		ok  bool
	}{
		"in order":                       {[]op{{callSubmit, answered{id: "a"}, 0, 1}, {callPause, answered{}, 2, 3}, {callEnd, answered{}, 4, 5}, {callPause, answered{refused: true}, 6, 7}}, true},
		"the same submit twice":          {[]op{{callSubmit, answered{id: "a"}, 0, 1}, {callSubmit, answered{id: "a"}, 2, 3}}, true},
		"two sweeps of one key":          {[]op{{callSubmit, answered{id: "a"}, 0, 1}, {callSubmit, answered{id: "b"}, 2, 3}}, false},
		"a submit is forgotten":          {[]op{{callSubmit, answered{id: "a"}, 0, 1}, {callEnd, answered{missing: true}, 2, 3}}, false},
		"an end is forgotten":            {[]op{{callSubmit, answered{id: "a"}, 0, 1}, {callEnd, answered{}, 2, 3}, {callPause, answered{}, 4, 5}}, false},
		"an end that got no answer":      {[]op{{callSubmit, answered{id: "a"}, 0, 1}, {callEnd, answered{unknown: true}, 2, lost}, {callPause, answered{}, 4, 5}, {callPause, answered{refused: true}, 6, 7}}, true},
		"an end that comes and goes":     {[]op{{callSubmit, answered{id: "a"}, 0, 1}, {callEnd, answered{unknown: true}, 2, lost}, {callPause, answered{refused: true}, 4, 5}, {callPause, answered{}, 6, 7}}, false},
		"a submit that got no answer":    {[]op{{callSubmit, answered{unknown: true}, 0, lost}, {callSubmit, answered{id: "a"}, 2, 3}, {callPause, answered{}, 4, 5}}, true},
		"ended although nobody ended it": {[]op{{callSubmit, answered{id: "a"}, 0, 1}, {callPause, answered{refused: true}, 2, 3}}, false},
	} {
		var history []porcupine.Operation
		for i, o := range c.ops {
			history = append(history, porcupine.Operation{ClientId: i, Input: asked{key: "k", call: o.call}, Output: o.out, Call: o.from, Return: o.to})
		}
		if got := porcupine.CheckOperations(registers(), history); got != c.ok {
			t.Errorf("%s: linearizable is %t, want %t", name, got, c.ok)
		}
	}
}
