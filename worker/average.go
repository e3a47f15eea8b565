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

// updateAverages starts and ends averages according to the orders: a worker also averages what forks of a trial saved,
// on this node or on others.
func (l *workerLoop) updateAverages(orders []*outbidv1.Consolidation) {
	wanted := map[string]bool{}
	for _, o := range orders {
		name := averageName(o)
		wanted[name] = true
		if l.averages[name] != nil || l.draining {
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		l.averages[name] = cancel
		l.run.Go(func() {
			if done := l.average(ctx, o); ctx.Err() == nil {
				l.queueAverage(o, done)
			}
		})
	}
	for name, cancel := range l.averages {
		if !wanted[name] {
			cancel()
			delete(l.averages, name)
		}
	}
}

// queueAverage queues the result of an average.
func (l *workerLoop) queueAverage(o *outbidv1.Consolidation, done *outbidv1.Consolidated) {
	err := l.out.add(nil, &outbidv1.UplinkMessage{Fork: o.GetFork(), Kind: &outbidv1.UplinkMessage_Consolidated{Consolidated: done}})
	if err == nil {
		return
	}
	l.cfg.Logger.Warn("cannot send the result of an average", "sweep", o.GetFork().GetSweep(), "error", err)
	failed := &outbidv1.Consolidated{Attempt: o.GetAttempt(), Failure: "the result of the average " + err.Error()}
	_ = l.out.add(nil, &outbidv1.UplinkMessage{Fork: o.GetFork(), Kind: &outbidv1.UplinkMessage_Consolidated{Consolidated: failed}})
}

// stopAverages ends all averages. The orchestrator assigns them to another node.
func (l *workerLoop) stopAverages() {
	for name, cancel := range l.averages {
		cancel()
		delete(l.averages, name)
	}
}

// averageName returns a name that is unique among the averages of a worker.
func averageName(o *outbidv1.Consolidation) string {
	return "average-" + strconv.FormatUint(o.GetFork().GetLeaseId(), 10) + "-" + strconv.Itoa(int(o.GetAttempt()))
}

// average computes one average and returns its result.
func (l *workerLoop) average(ctx context.Context, o *outbidv1.Consolidation) *outbidv1.Consolidated {
	done := &outbidv1.Consolidated{Attempt: o.GetAttempt()}
	store := l.cfg.Store(o.GetFork())
	var ck *outbidv1.Checkpoint
	err := untilAvailable(ctx, func() (err error) {
		ck, err = Average(ctx, Averaging{Behind: l.idleGroup, Rate: l.cfg.AverageRate}, store, o)
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
		// If the averaging failed because an object is not the one that was stored, another node may read it
		// correctly.
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

// averagers limits the averages that this process computes at once. Each keeps a core or two busy and needs a few
// hundred MiB, and must not slow down other work here, such as the server under `outbid up`.
var averagers = newAveragerPool(max(runtime.NumCPU()/4, 1)) //nolint:gochecknoglobals // workers of one process share its cores

// Averaging configures averages so that other work on the machine has priority.
type Averaging struct {
	// Behind is the idle control group, as confine.Confiner creates it, or "" if it does not exist.
	Behind string
	// Rate limits the bytes a second that one average may read. 0 means no limit; otherwise it is at least
	// LeastAverageRate.
	Rate int64
}

// Average waits for its turn, averages what forks saved, and stores the average completely or not at all.
func Average(ctx context.Context, how Averaging, store objects.Access, o *outbidv1.Consolidation) (_ *outbidv1.Checkpoint, err error) {
	p, err := averagers.acquire(ctx, how.Behind)
	if err != nil {
		return nil, err
	}
	defer func() { averagers.release(p) }()
	order, ok := subprocessOrderFor(store)
	if !ok {
		return averageOnce(ctx, limit(store, how.Rate), o)
	}
	if order.Order, err = proto.Marshal(o); err != nil {
		return nil, fmt.Errorf("encode the order for the averaging process: %w", err)
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

// averageOnce reads the forks' checkpoints in place and stores the average as it is computed: it keeps nothing on
// disk, and its memory does not grow with their size and number. The store has the whole average or nothing.
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
		// Stored before the weights, so that the velocity is there if the weights are.
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

// openOuter opens what an outer optimizer's step needs, or returns nil if the order has no such step. The caller
// closes the sources.
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

// storeAverage stores an average as it is computed, and returns its checksums.
func storeAverage(ctx context.Context, store objects.Access, key string, mean *checkpoint.Average) (checksum.Sums, error) {
	stream := mean.Stream(ctx)
	err := store.Put(ctx, key, stream, mean.Size())
	if closeErr := stream.Close(); closeErr != nil {
		return checksum.Sums{}, closeErr
	}
	if failed := stream.Err(); failed != nil { // the store's own error says only that the stream was too short
		err = failed
	}
	return stream.Sums(), err
}

// openSources opens what forks saved, to be read in place. The caller closes the sources.
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
			_ = c.Close() // errors do not matter after reading
		}
	}
}

// untilAvailable calls try until the store is available or ctx ends.
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
