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
	// maxSoupParts bounds how many trials a soup may say that it tried.
	maxSoupParts = 1000
	// soupMargin is how much larger a soup may be than the largest of the checkpoints that it is of: by its metadata.
	soupMargin = 1 << 20
)

// PutSoup implements the service. The store takes the soup whole or not at all, and the ledger names it once it is there: what a crash
// between the two leaves is tidied away as checkpoints are.
func (s *service) PutSoup(stream grpc.ClientStreamingServer[outbidv1.PutSoupRequest, outbidv1.PutSoupResponse]) error {
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

// checkSoup says what is wrong with a soup that is to be kept: it is an average of checkpoints that the sweep keeps, and so no
// larger than they are.
func (s *service) checkSoup(sweep *outbidv1.Sweep, soup *outbidv1.Soup) error {
	sum, err := hex.DecodeString(soup.GetSha256())
	switch {
	case err != nil || len(sum) != sha256.Size || soup.GetSha256() != hex.EncodeToString(sum):
		return fieldError("soup.sha256", "%q: want the file's SHA-256 in lower-case hex", soup.GetSha256())
	case soup.Metric != nil && !state.Finite(soup.GetMetric()):
		return fieldError("soup.metric", "%g: want a number, or none where nobody asked what it is worth", soup.GetMetric())
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
			return fieldError("soup.parts", "trial %d is there twice", p.GetTrial())
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
		return fieldError("soup.parts", "none of the trials that it is of keeps a checkpoint; name those that were averaged as kept")
	case soup.GetBytes() <= 0 || soup.GetBytes() > largest+soupMargin:
		return fieldError("soup.bytes", "%d; an average is about as large as what it is of, and the largest of these checkpoints has %d",
			soup.GetBytes(), largest)
	}
	return nil
}

// soupFile is a soup as it comes. It gives its last bytes only if all of it is what was announced: so a store, which takes whole
// objects, never has another.
type soupFile struct {
	recv func() (*outbidv1.PutSoupRequest, error)
	data []byte
	left int64
	want string
	hash hash.Hash
	// taken says that data was counted; err is what was wrong with what came.
	taken bool
	err   error
}

// Read implements io.Reader.
func (f *soupFile) Read(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	for !f.taken || len(f.data) == 0 {
		if f.taken && f.left == 0 { // nothing is left to give
			return 0, io.EOF
		}
		if f.err = f.take(); f.err != nil {
			return 0, f.err
		}
	}
	n := copy(p, f.data)
	f.data = f.data[n:]
	return n, nil
}

// take counts the newest piece, and waits for the next if that was given out.
func (f *soupFile) take() error {
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
		return fieldError("data", "goes on beyond soup.bytes")
	}
	if f.left > 0 {
		return nil
	}
	if sum := hex.EncodeToString(f.hash.Sum(nil)); sum != f.want {
		return status.Errorf(codes.DataLoss, "the soup arrived damaged: its SHA-256 is %s, announced was %s; try again", sum, f.want)
	}
	for {
		piece, err := f.recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(piece.GetData()) > 0:
			return fieldError("data", "goes on beyond soup.bytes")
		}
	}
}

// GetSoup implements the service.
func (s *service) GetSoup(req *outbidv1.GetSoupRequest, stream grpc.ServerStreamingServer[outbidv1.GetSoupResponse]) error {
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
		return status.Errorf(codes.NotFound, "sweep %s keeps no soup; 'outbid soup' makes one", sweep.GetId())
	case soup == nil:
		return status.Errorf(codes.NotFound, "sweep %s keeps no soup %d; GetSweep lists those it keeps", sweep.GetId(), req.GetNumber())
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
