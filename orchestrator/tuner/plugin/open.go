package plugin

import (
	"context"
	"log/slog"

	"github.com/outbid-dev/outbid/orchestrator/tuner"
	"github.com/outbid-dev/outbid/orchestrator/tuner/registry"
)

// Open starts the tuner of a sweep, built in or plugin, as new or from a snapshot if that is not empty. The returned
// function stops the tuner; it is not nil unless there is an error.
func Open(
	ctx context.Context, s tuner.Settings, snapshot []byte, logger *slog.Logger,
) (tuner.Tuner, func(), error) {
	outside := s.Spec.GetTuner().GetPlugin()
	if outside.GetRule() != nil {
		r, err := LaunchRuled(ctx, s, snapshot, logger)
		if err != nil {
			return nil, nil, err
		}
		return r, r.Close, nil
	}
	if outside != nil {
		c, err := Launch(ctx, outside.GetCommand(), s, snapshot, logger)
		if err != nil {
			return nil, nil, err
		}
		return c, c.Close, nil
	}
	var t tuner.Tuner
	var err error
	if len(snapshot) > 0 {
		t, err = registry.Restore(s, snapshot)
	} else {
		t, err = registry.New(s)
	}
	if err != nil {
		return nil, nil, err
	}
	return t, func() {}, nil
}
