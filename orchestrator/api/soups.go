package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// maxSoupParts limits the number of trials in a soup's list.
	maxSoupParts = 1000
	// soupMargin is how much larger a soup may be than its largest checkpoint, because of its metadata.
	soupMargin = 1 << 20
)

// PutSoup implements the service. The store writes the soup atomically, and the ledger names it afterwards. If the
// server crashes in between, the garbage collector deletes the file, just like a lost checkpoint.
func (s *storeService) PutSoup(stream grpc.ClientStreamingServer[outbidv1.PutSoupRequest, outbidv1.PutSoupResponse]) error {
	ctx := stream.Context()
	first, err := stream.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	sweep, err := s.sweep(first.GetSweep())
	if err != nil {
		return err
	}
	if err := s.checkSoup(sweep, first.GetSoup()); err != nil {
		return err
	}
	given := first.GetSoup()
	soup := &outbidv1.Soup{
		Key:   objects.SoupKey(sweep.GetId(), strings.ToLower(rand.Text())),
		Bytes: given.GetBytes(), Sha256: given.GetSha256(), Metric: given.Metric, Parts: given.GetParts(), Actor: caller(ctx).Name,
	}
	file := &soupFile{recv: stream.Recv, data: first.GetData(), left: soup.GetBytes(), want: soup.GetSha256(), hash: sha256.New()}
	if err := s.store.Put(ctx, soup.GetKey(), file, soup.GetBytes()); file.err != nil {
		return file.err
	} else if err != nil {
		return fmt.Errorf("store a soup: %w", err)
	}
	kept, err := s.control.PublishSoup(ctx, sweep.GetId(), soup)
	if errors.Is(err, state.ErrNotFound) || errors.Is(err, state.ErrInvalid) { // after other errors the ledger may name it
		return errors.Join(err, s.store.Delete(context.WithoutCancel(ctx), soup.GetKey()))
	}
	if err != nil {
		return err
	}
	return stream.SendAndClose(&outbidv1.PutSoupResponse{Soup: kept})
}

// checkSoup rejects an invalid soup. A soup is an average of checkpoints that the sweep keeps, so it cannot be larger
// than they are.
func (s *storeService) checkSoup(sweep *outbidv1.Sweep, soup *outbidv1.Soup) error {
	sum, err := hex.DecodeString(soup.GetSha256())
	switch {
	case err != nil || len(sum) != sha256.Size || soup.GetSha256() != hex.EncodeToString(sum):
		return fieldError("soup.sha256", "%q: want the file's SHA-256 in lower-case hex", soup.GetSha256())
	case soup.Metric != nil && !state.Finite(soup.GetMetric()):
		return fieldError("soup.metric", "%g: must be a finite number, or left out if the soup was not evaluated", soup.GetMetric())
	case len(soup.GetParts()) > maxSoupParts:
		return fieldError("soup.parts", "%d trials; at most %d may join", len(soup.GetParts()), maxSoupParts)
	}
	largest, seen := int64(-1), map[int32]bool{}
	for _, p := range soup.GetParts() {
		t, err := s.trial(sweep.GetId(), p.GetTrial())
		if err != nil {
			return err
		}
		if seen[p.GetTrial()] {
			return fieldError("soup.parts", "trial %d is listed twice", p.GetTrial())
		}
		seen[p.GetTrial()] = true
		for _, c := range t.GetCheckpoints() {
			if p.GetKept() {
				largest = max(largest, c.GetBytes())
			}
		}
	}
	switch {
	case largest < 0:
		return fieldError("soup.parts", "none of the trials marked as kept has a checkpoint; mark the trials that were averaged")
	case soup.GetBytes() <= 0 || soup.GetBytes() > largest+soupMargin:
		return fieldError("soup.bytes", "%d is too large; an average is about as large as the checkpoints, of which the largest has %d",
			soup.GetBytes(), largest)
	}
	return nil
}

// soupFile is a soup that is being received. It returns the last bytes only if the whole file matches the announcement,
// so a store, which writes whole objects, never contains a wrong one.
type soupFile struct {
	recv func() (*outbidv1.PutSoupRequest, error)
	data []byte
	left int64
	want string
	hash hash.Hash
	// taken is set when data was counted. err is what was wrong with the received data.
	taken bool
	err   error
}

// Read implements io.Reader.
func (f *soupFile) Read(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	for !f.taken || len(f.data) == 0 {
		if f.taken && f.left == 0 { // all bytes were read
			return 0, io.EOF
		}
		if f.err = f.nextPiece(); f.err != nil {
			return 0, f.err
		}
	}
	n := copy(p, f.data)
	f.data = f.data[n:]
	return n, nil
}

// nextPiece counts the newest piece, and receives the next one after that was read.
func (f *soupFile) nextPiece() error {
	if f.taken {
		piece, err := f.recv()
		if errors.Is(err, io.EOF) {
			return fieldError("data", "ends %d bytes before soup.bytes", f.left)
		}
		if err != nil {
			return err
		}
		f.data = piece.GetData()
	}
	f.taken = true
	_, _ = f.hash.Write(f.data)
	if f.left -= int64(len(f.data)); f.left < 0 {
		return fieldError("data", "is longer than soup.bytes")
	}
	if f.left > 0 {
		return nil
	}
	if sum := hex.EncodeToString(f.hash.Sum(nil)); sum != f.want {
		return status.Errorf(codes.DataLoss, "the soup arrived damaged: its SHA-256 is %s instead of %s; try again", sum, f.want)
	}
	for {
		piece, err := f.recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(piece.GetData()) > 0:
			return fieldError("data", "is longer than soup.bytes")
		}
	}
}

// GetSoup implements the service.
func (s *storeService) GetSoup(req *outbidv1.GetSoupRequest, stream grpc.ServerStreamingServer[outbidv1.GetSoupResponse]) error {
	sweep, err := s.sweep(req.GetSweep())
	if err != nil {
		return err
	}
	var soup *outbidv1.Soup
	for _, o := range sweep.GetSoups() {
		if req.GetNumber() == 0 || o.GetNumber() == req.GetNumber() {
			soup = o
		}
	}
	switch {
	case soup == nil && len(sweep.GetSoups()) == 0:
		return status.Errorf(codes.NotFound, "sweep %s does not have a soup; 'outbid soup' makes one", sweep.GetId())
	case soup == nil:
		return status.Errorf(codes.NotFound, "sweep %s does not have a soup %d; GetSweep lists its soups", sweep.GetId(), req.GetNumber())
	}
	r, err := s.store.Get(stream.Context(), soup.GetKey())
	if errors.Is(err, objects.ErrNotFound) {
		return status.Errorf(codes.NotFound, "soup %d of %s is no longer in the store", soup.GetNumber(), sweep.GetId())
	}
	if err != nil {
		return fmt.Errorf("open a soup: %w", err)
	}
	defer r.Close()
	return sendPieces(r, "soup "+soup.GetKey(), soup.GetSha256(), func(first bool, data []byte) error {
		piece := &outbidv1.GetSoupResponse{Data: data}
		if first {
			piece.Soup = soup
		}
		return stream.Send(piece)
	})
}
