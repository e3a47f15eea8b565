// Package suggest lets another program ask a built-in sampler for configurations and tell it their costs, in lines of
// JSON and without a server. Comparisons with other samplers use it.
package suggest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/outbid-dev/outbid/orchestrator/tuner/sample"
	"github.com/outbid-dev/outbid/orchestrator/tuner/space"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A request is a line of input. Exactly one field is set.
type request struct {
	Start *start `json:"start"`
	// Ask requests the configuration of the next trial.
	Ask  bool  `json:"ask"`
	Tell *tell `json:"tell"`
}

// A start makes a new sampler, which forgets all earlier trials.
type start struct {
	// Sampler is random, sobol or bayes.
	Sampler string `json:"sampler"`
	Seed    uint64 `json:"seed"`
	// Spec is a sweep's spec. Only its space and constraints matter.
	Spec json.RawMessage `json:"spec"`
	// Past are the trials of earlier sweeps, from which bayes starts.
	Past [][]past `json:"past"`
}

// A past is a trial of an earlier sweep.
type past struct {
	Config space.Config `json:"config"`
	Cost   float64      `json:"cost"`
}

// A tell is the cost of a trial that ended, or its costs with several objectives. Lower is better; a missing cost means
// that the trial failed.
type tell struct {
	Trial int       `json:"trial"`
	Cost  *float64  `json:"cost"`
	Costs []float64 `json:"costs"`
}

// A reply answers an ask.
type reply struct {
	Config space.Config `json:"config"`
	// CPU is the processor time of the choice in seconds.
	CPU float64 `json:"cpu"`
}

// errExhausted is returned if a sampler has no configuration left.
var errExhausted = errors.New("ask: no configuration is left")

// Serve answers requests until the input ends.
func Serve(in io.Reader, out io.Writer) error {
	var s session
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<24)
	answers := json.NewEncoder(out)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("request: %w", err)
		}
		if err := s.handle(r, answers); err != nil {
			return err
		}
	}
	return lines.Err()
}

// A session is a sampler in use.
type session struct {
	sampler sample.Sampler
}

func (s *session) handle(r request, answers *json.Encoder) error {
	if r.Start != nil {
		return s.start(r.Start)
	}
	if s.sampler == nil {
		return errors.New("request: must be start before ask and tell")
	}
	learner, learns := s.sampler.(sample.Learner)
	if r.Tell != nil {
		several, can := s.sampler.(sample.SeveralLearner)
		switch {
		case can && len(r.Tell.Costs) > 0:
			several.ToldAll(r.Tell.Trial, r.Tell.Costs)
		case learns:
			learner.Told(r.Tell.Trial, r.Tell.cost())
		}
		return nil
	}
	began := processorTime()
	config, ok, err := s.sampler.Next()
	if err != nil {
		return err
	}
	if !ok {
		return errExhausted
	}
	if learns {
		learner.Took(config)
	}
	return answers.Encode(reply{Config: config, CPU: (processorTime() - began).Seconds()})
}

func (t *tell) cost() float64 {
	if t.Cost == nil {
		return math.NaN()
	}
	return *t.Cost
}

func (s *session) start(from *start) error {
	var spec outbidv1.SweepSpec
	if err := protojson.Unmarshal(from.Spec, &spec); err != nil {
		return fmt.Errorf("start.spec: %w", err)
	}
	compiled, err := space.Compile(spec.GetSpace(), spec.GetConstraints())
	if err != nil {
		return fmt.Errorf("start.%w", err)
	}
	if from.Sampler == "bayes" {
		b := sample.NewBayes(compiled, from.Seed)
		b.Remember(pastOf(compiled, from.Past))
		s.sampler = b
		return nil
	}
	s.sampler, err = sample.New(from.Sampler, compiled, from.Seed)
	return err
}

func pastOf(s *space.Space, sweeps [][]past) (all []sample.Past) {
	for _, trials := range sweeps {
		var p sample.Past
		for _, t := range trials {
			p.Points, p.Costs = append(p.Points, s.Beyond(t.Config)), append(p.Costs, t.Cost)
		}
		all = append(all, p)
	}
	return all
}

// processorTime returns the processor time that this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
