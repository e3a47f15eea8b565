package cli

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/outbid-dev/outbid/orchestrator/ledger"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// ledgerReader is the part of the API that reads the ledger.
type ledgerReader interface {
	GetServerInfo(context.Context, *outbidv1.GetServerInfoRequest, ...grpc.CallOption) (*outbidv1.GetServerInfoResponse, error)
	ReadLedger(context.Context, *outbidv1.ReadLedgerRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[outbidv1.ReadLedgerResponse], error)
}

// maxLedgerBatches is the length up to which a server's ledger is read for an explanation.
const maxLedgerBatches = 20_000

var errLongLedger = errors.New("the ledger is too long to be simulated now")

// batchLedger is a ledger in memory that can only be read.
type batchLedger struct {
	ledger.Ledger // nil: nothing else is called
	batches       []*outbidv1.Batch
}

// Read implements ledger.Ledger.
func (l *batchLedger) Read(ctx context.Context, from uint64, f func(*outbidv1.Batch) error) error {
	for _, b := range l.batches {
		if err := ctx.Err(); err != nil {
			return err
		}
		if b.GetSeq() < from {
			continue
		}
		if err := f(b); err != nil {
			return err
		}
	}
	return nil
}

// readLedger reads a server's whole ledger.
func readLedger(ctx context.Context, api ledgerReader) (*batchLedger, error) {
	info, err := api.GetServerInfo(ctx, &outbidv1.GetServerInfoRequest{})
	if err != nil {
		return nil, err
	}
	if info.GetLedgerSeq() > maxLedgerBatches {
		return nil, errLongLedger
	}
	stream, err := api.ReadLedger(ctx, &outbidv1.ReadLedgerRequest{})
	if err != nil {
		return nil, err
	}
	l := &batchLedger{}
	for {
		got, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return l, nil
		}
		if err != nil {
			return nil, err
		}
		l.batches = append(l.batches, got.GetBatch())
	}
}
