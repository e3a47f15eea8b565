package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
	"github.com/outbid-dev/outbid/orchestrator/checksum"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// consolidate brings what the worker averages in line with orders: beside its forks, it averages what forks of a trial
// saved, here or on other nodes.
func (a *agent) consolidate(orders []*outbidv1.Consolidation) {
	wanted := map[string]bool{}
	for _, o := range orders {
		name := averageName(o)
		wanted[name] = true
		if a.averages[name] != nil || a.draining {
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		a.averages[name] = cancel
		a.run.Go(func() {
			if done := a.average(ctx, o); ctx.Err() == nil {
				a.sayAverage(o, done)
			}
		})
	}
	for name, cancel := range a.averages {
		if !wanted[name] {
			cancel()
			delete(a.averages, name)
		}
	}
}

// sayAverage says what became of an average.
func (a *agent) sayAverage(o *outbidv1.Consolidation, done *outbidv1.Consolidated) {
	err := a.out.add(nil, &outbidv1.UplinkMessage{Fork: o.GetFork(), Kind: &outbidv1.UplinkMessage_Consolidated{Consolidated: done}})
	if err == nil {
		return
	}
	a.cfg.Logger.Warn("what became of an average cannot be sent", "sweep", o.GetFork().GetSweep(), "error", err)
	failed := &outbidv1.Consolidated{Attempt: o.GetAttempt(), Failure: "what became of the average " + err.Error()}
	_ = a.out.add(nil, &outbidv1.UplinkMessage{Fork: o.GetFork(), Kind: &outbidv1.UplinkMessage_Consolidated{Consolidated: failed}})
}

// stopAverages ends all of that; another node will be told.
func (a *agent) stopAverages() {
	for name, cancel := range a.averages {
		cancel()
		delete(a.averages, name)
	}
}

// averageName is unique among all that a worker is told to average.
func averageName(o *outbidv1.Consolidation) string {
	return "average-" + strconv.FormatUint(o.GetFork().GetLeaseId(), 10) + "-" + strconv.Itoa(int(o.GetAttempt()))
}

// average makes one average and says what became of it.
func (a *agent) average(ctx context.Context, o *outbidv1.Consolidation) *outbidv1.Consolidated {
	done := &outbidv1.Consolidated{Attempt: o.GetAttempt()}
	store := a.cfg.Store(o.GetFork())
	var ck *outbidv1.Checkpoint
	err := untilAvailable(ctx, func() (err error) {
		ck, err = Consolidate(ctx, Averaging{Behind: a.behind, Rate: a.cfg.AverageRate}, store, o)
		return err
	})
	if err == nil {
		done.Checkpoint = ck
		return done
	}
	for _, hopeless := range []error{checkpoint.ErrMismatch, checkpoint.ErrNotFinite, safetensors.ErrFormat} {
		done.Mismatch = done.Mismatch || errors.Is(err, hopeless)
	}
	if done.GetMismatch() {
		// What cannot be averaged may be so because it is not what was stored: then it may be read well elsewhere.
		_, sources := openOuter(ctx, store, o)
		sources = append(sources, openSources(ctx, store, o)...)
		defer closeSources(sources)
		if damage := checkpoint.Verify(ctx, sources); damage != nil {
			err, done.Mismatch = damage, false
		}
	}
	done.Failure = sanitize.Line("the checkpoints of its forks could not be averaged: "+err.Error(), limits.Detail)
	return done
}

// turns are the averages that this process makes at once. Each keeps a core or two busy and takes some hundred MiB, and what
// else runs here, such as the server under `outbid up`, is to notice nothing of them.
var turns = newTurns(max(runtime.NumCPU()/4, 1)) //nolint:gochecknoglobals // workers of one process share its cores

// Averaging says how averages are made so that other work of the machine goes before them.
type Averaging struct {
	// Behind is the control group of what steps back, as confine.Confiner makes it; "" for none.
	Behind string
	// Rate is how many bytes a second one average may read; 0 means no limit, else it is at least LeastAverageRate.
	Rate int64
}

// Consolidate averages what forks saved once its turn comes, and stores the average, whole or not at all.
func Consolidate(ctx context.Context, how Averaging, store objects.Access, o *outbidv1.Consolidation) (_ *outbidv1.Checkpoint, err error) {
	p, err := turns.take(ctx, how.Behind)
	if err != nil {
		return nil, err
	}
	defer func() { turns.give(p) }()
	order, ok := inSubprocess(store)
	if !ok {
		return averageOnce(ctx, limit(store, how.Rate), o)
	}
	if order.Order, err = proto.Marshal(o); err != nil {
		return nil, fmt.Errorf("average in a process of its own: %w", err)
	}
	order.Behind, order.Rate = how.Behind, how.Rate
	if p == nil {
		if p, err = startSubprocess(how.Behind); err != nil {
			return nil, err
		}
	}
	ck, over, err := p.run(ctx, &order, store)
	if over {
		p = nil
	}
	return ck, err
}

// averageOnce reads what forks saved where it is, and stores the average as it is computed: nothing is kept on disk, and memory
// is bounded whatever their size and number. The store has the whole average or nothing.
func averageOnce(ctx context.Context, store objects.Access, o *outbidv1.Consolidation) (*outbidv1.Checkpoint, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	steps := map[string]int64{}
	for _, s := range o.GetSources() {
		steps[s.GetCheckpoint().GetKey()] = s.GetSteps()
	}
	note, err := json.Marshal(steps)
	if err != nil {
		return nil, err
	}
	sources := openSources(ctx, store, o)
	defer closeSources(sources)
	mean, err := checkpoint.New(sources, map[string]string{"outbid.average": string(note)})
	if err != nil {
		return nil, err
	}
	ck := &outbidv1.Checkpoint{Key: o.GetKey(), Step: o.GetStep(), Time: timestamppb.New(time.Now())}
	if outer, opened := openOuter(ctx, store, o); outer != nil {
		defer closeSources(opened)
		weights, velocity, err := mean.WithOuter(*outer)
		if err != nil {
			return nil, err
		}
		mean, ck.Outer = weights, &outbidv1.OuterState{}
		// Before the weights, so that who has these has that too.
		left, err := storeAverage(ctx, store, objects.OuterKey(o.GetKey()), velocity)
		if err != nil {
			return nil, err
		}
		ck.Outer.Bytes, ck.Outer.Sha256, ck.Outer.Crc64Nvme = velocity.Size(), left.SHA256, left.CRC64
	}
	sums, err := storeAverage(ctx, store, o.GetKey(), mean)
	ck.Bytes, ck.Sha256, ck.Crc64Nvme = mean.Size(), sums.SHA256, sums.CRC64
	return ck, err
}

// openOuter opens what an outer optimizer's step needs; nil if the order has none. Close it.
func openOuter(ctx context.Context, store objects.Access, o *outbidv1.Consolidation) (*checkpoint.Outer, []checkpoint.Source) {
	step := o.GetOuter()
	if step == nil {
		return nil, nil
	}
	start := step.GetStart()
	outer := &checkpoint.Outer{Rate: step.GetRate(), Momentum: step.GetMomentum(), Start: openSource(ctx, store, start)}
	opened := []checkpoint.Source{outer.Start}
	if left := start.GetOuter(); left != nil {
		velocity := openSource(ctx, store, &outbidv1.Checkpoint{
			Key: objects.OuterKey(start.GetKey()), Bytes: left.GetBytes(), Sha256: left.GetSha256(), Crc64Nvme: left.GetCrc64Nvme(),
		})
		outer.Velocity, opened = &velocity, append(opened, velocity)
	}
	return outer, opened
}

// storeAverage stores an average as it is computed, and says what its sums are.
func storeAverage(ctx context.Context, store objects.Access, key string, mean *checkpoint.Average) (checksum.Sums, error) {
	stream := mean.Stream(ctx)
	err := store.Put(ctx, key, stream, mean.Size())
	if closeErr := stream.Close(); closeErr != nil {
		return checksum.Sums{}, closeErr
	}
	if failed := stream.Err(); failed != nil { // of which the store only says that it was given too little
		err = failed
	}
	return stream.Sums(), err
}

// openSources opens what forks saved, to be read in place. Close it.
func openSources(ctx context.Context, store objects.Access, o *outbidv1.Consolidation) []checkpoint.Source {
	var sources []checkpoint.Source
	for _, s := range o.GetSources() {
		source := openSource(ctx, store, s.GetCheckpoint())
		if source.Weight = float64(s.GetSteps()); o.GetUniform() {
			source.Weight = 1
		}
		sources = append(sources, source)
	}
	return sources
}

// openSource opens a checkpoint, to be read in place until ctx ends.
func openSource(ctx context.Context, store objects.Access, ck *outbidv1.Checkpoint) checkpoint.Source {
	return checkpoint.Source{
		Name: ck.GetKey(), Sums: checksum.Sums{SHA256: ck.GetSha256(), CRC64: ck.GetCrc64Nvme()}, Size: ck.GetBytes(),
		File: objects.NewRanged(ctx, store, ck.GetKey(), ck.GetBytes()),
	}
}

func closeSources(sources []checkpoint.Source) {
	for _, s := range sources {
		if c, ok := s.File.(io.Closer); ok {
			_ = c.Close() // it was only read
		}
	}
}

// untilAvailable tries until the store answers, or ctx ends.
func untilAvailable(ctx context.Context, try func() error) error {
	var retry backoff
	for {
		err := try()
		if !errors.Is(err, objects.ErrUnavailable) && !errors.Is(err, objects.ErrFull) {
			return err
		}
		select {
		case <-time.After(retry.pause()):
		case <-ctx.Done():
			return err
		}
	}
}
