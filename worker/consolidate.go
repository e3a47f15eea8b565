package worker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/checkpoint"
	"github.com/outbid-dev/outbid/orchestrator/checkpoint/safetensors"
	"github.com/outbid-dev/outbid/orchestrator/objects"
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
				a.out.add(nil, &outbidv1.UplinkMessage{Fork: o.GetFork(), Kind: &outbidv1.UplinkMessage_Consolidated{Consolidated: done}})
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
		ck, err = averageOnce(ctx, store, o)
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
		sources := openSources(ctx, store, o)
		defer closeSources(sources)
		if damage := checkpoint.Verify(ctx, sources); damage != nil {
			err, done.Mismatch = damage, false
		}
	}
	done.Failure = "the checkpoints of its forks could not be averaged: " + oneLine(err)
	return done
}

// averageOnce reads what forks saved where it is, and stores the average as it is computed: nothing is kept on disk, and memory
// is bounded whatever their size and number. The store has the whole average or nothing.
func averageOnce(ctx context.Context, store objects.Access, o *outbidv1.Consolidation) (_ *outbidv1.Checkpoint, err error) {
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
	stream := mean.Stream(ctx)
	err = store.Put(ctx, o.GetKey(), stream, mean.Size())
	if err != nil {
		cancel()
	}
	if closeErr := stream.Close(); closeErr != nil {
		return nil, closeErr
	}
	if failed := stream.Err(); failed != nil { // of which the store only says that it was given too little
		err = failed
	}
	if err != nil {
		return nil, err
	}
	return &outbidv1.Checkpoint{
		Key: o.GetKey(), Step: o.GetStep(), Bytes: mean.Size(), Sha256: stream.Sum(), Time: timestamppb.New(time.Now()),
	}, nil
}

// openSources opens what forks saved, to be read in place. Close it.
func openSources(ctx context.Context, store objects.Access, o *outbidv1.Consolidation) []checkpoint.Source {
	var sources []checkpoint.Source
	for _, s := range o.GetSources() {
		ck := s.GetCheckpoint()
		sources = append(sources, checkpoint.Source{
			Name: ck.GetKey(), Weight: float64(s.GetSteps()), SHA256: ck.GetSha256(), Size: ck.GetBytes(),
			File: objects.NewRanged(ctx, store, ck.GetKey(), ck.GetBytes()),
		})
	}
	return sources
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
