package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	dir := filepath.Join(a.cfg.Dir, "scratch", averageName(o))
	defer os.RemoveAll(dir) //nolint:errcheck // the next start clears what is left
	done := &outbidv1.Consolidated{Attempt: o.GetAttempt()}
	ck, err := a.averageIn(ctx, dir, o)
	if err == nil {
		done.Checkpoint = ck
		return done
	}
	done.Failure = "the checkpoints of its forks could not be averaged: " + oneLine(err)
	for _, hopeless := range []error{checkpoint.ErrMismatch, checkpoint.ErrNotFinite, safetensors.ErrFormat} {
		done.Mismatch = done.Mismatch || errors.Is(err, hopeless)
	}
	return done
}

func (a *agent) averageIn(ctx context.Context, dir string, o *outbidv1.Consolidation) (*outbidv1.Checkpoint, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	store := a.cfg.Store(o.GetFork())
	sources := make([]checkpoint.Source, 0, len(o.GetSources()))
	steps := map[string]int64{}
	defer func() {
		for _, s := range sources {
			if f, ok := s.File.(*os.File); ok {
				_ = f.Close()
			}
		}
	}()
	for i, s := range o.GetSources() {
		source, err := fetchSource(ctx, store, filepath.Join(dir, strconv.Itoa(i)), s)
		if err != nil {
			return nil, err
		}
		sources = append(sources, source)
		steps[source.Name] = s.GetSteps()
	}
	note, err := json.Marshal(steps)
	if err != nil {
		return nil, err
	}
	mean, err := checkpoint.New(sources, map[string]string{"outbid.average": string(note)})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "mean")
	if err := writeMean(ctx, mean, path); err != nil {
		return nil, err
	}
	var size int64
	var sum string
	err = untilAvailable(ctx, func() (err error) {
		size, sum, err = objects.PutFile(ctx, store, o.GetKey(), path)
		return err
	})
	return &outbidv1.Checkpoint{Key: o.GetKey(), Step: o.GetStep(), Bytes: size, Sha256: sum, Time: timestamppb.New(time.Now())}, err
}

// fetchSource brings one checkpoint and opens it.
func fetchSource(ctx context.Context, store objects.Access, path string, s *outbidv1.ConsolidationSource) (checkpoint.Source, error) {
	ck := s.GetCheckpoint()
	source := checkpoint.Source{Name: ck.GetKey(), Weight: float64(s.GetSteps())}
	var sum string
	err := untilAvailable(ctx, func() (err error) {
		source.Size, sum, err = objects.GetFile(ctx, store, ck.GetKey(), path)
		return err
	})
	switch {
	case err != nil:
		return source, err
	case ck.GetSha256() != "" && sum != ck.GetSha256():
		return source, fmt.Errorf("%s is damaged: its SHA-256 is %.12s, not %.12s", ck.GetKey(), sum, ck.GetSha256())
	}
	f, err := os.Open(path)
	source.File = f
	return source, err
}

func writeMean(ctx context.Context, mean *checkpoint.Average, path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(mean.Write(ctx, f), f.Close())
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
