package cli

import (
	"errors"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// previewHere works out a preview without a server.
func previewHere(*outbidv1.SweepSpec, float64) (*outbidv1.PreviewSweepResponse, error) {
	return nil, errors.New("no server answers: start one with 'outbid up'")
}
