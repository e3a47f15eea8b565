package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	"github.com/outbid-dev/outbid/orchestrator/state"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func (c *fakeControl) PublishSoup(_ context.Context, sweep string, soup *outbidv1.Soup) (*outbidv1.Soup, error) {
	c.mu.Lock()
	s, err := c.find(sweep)
	err = errors.Join(err, c.fail)
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c.change(sweep, func(s *fakeSweep) {
		soup.Number = int32(len(s.view.GetSoups()) + 1)
		s.view.Soups = append(s.view.Soups, soup)
	})
	return s.view.GetSoups()[soup.GetNumber()-1], nil
}

// soupOf announces a file with these bytes.
func soupOf(file []byte) *outbidv1.Soup {
	sum := sha256.Sum256(file)
	return &outbidv1.Soup{
		Bytes: int64(len(file)), Sha256: hex.EncodeToString(sum[:]), Metric: proto.Float64(.9),
		Parts: []*outbidv1.SoupPart{{Trial: 1, Metric: .8, Soup: proto.Float64(.9), Kept: true}, {Trial: 0, Note: "it differs"}},
		Key:   "checkpoints/other-2/soups/stolen.safetensors", Number: 70, Actor: "somebody else", // the server sets these
	}
}

func putSoup(ctx context.Context, c outbidv1.OutbidServiceClient, sweep string, soup *outbidv1.Soup, file []byte) (*outbidv1.Soup, error) {
	stream, err := c.PutSoup(ctx)
	if err != nil {
		return nil, err
	}
	piece := &outbidv1.PutSoupRequest{Sweep: sweep, Soup: soup}
	for ; ; piece = new(outbidv1.PutSoupRequest) {
		n := min(len(file), 100_000)
		piece.Data, file = file[:n], file[n:]
		if stream.Send(piece) != nil || len(file) == 0 {
			break // CloseAndRecv returns the error
		}
	}
	resp, err := stream.CloseAndRecv()
	return resp.GetSoup(), err
}

func getSoup(ctx context.Context, c outbidv1.OutbidServiceClient, sweep string, number int32) (*outbidv1.Soup, []byte, error) {
	stream, err := c.GetSoup(ctx, &outbidv1.GetSoupRequest{Sweep: sweep, Number: number})
	if err != nil {
		return nil, nil, err
	}
	var soup *outbidv1.Soup
	var file []byte
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return soup, file, nil
		}
		if err != nil {
			return soup, file, err
		}
		if piece.GetSoup() != nil {
			soup = piece.GetSoup()
		}
		file = append(file, piece.GetData()...)
	}
}

// serveSoups is a house with a sweep of two trials; number 1 has a checkpoint.
func serveSoups(t *testing.T, bytes int64) *testServer {
	t.Helper()
	h := serve(t, nil)
	h.control.add("digits-1", "", 2)
	h.control.change("digits-1", func(s *fakeSweep) {
		s.trials[1].Checkpoints = []*outbidv1.Checkpoint{{Key: "c", Bytes: bytes}}
	}, 1)
	return h
}

func TestASoupIsKeptAndFetched(t *testing.T) {
	t.Parallel()
	files := [][]byte{bytes.Repeat([]byte("weights "), 100_000), bytes.Repeat([]byte("others "), 50_000)}
	h := serveSoups(t, int64(len(files[0])))
	c := h.dial(t, "")
	if _, _, err := getSoup(t.Context(), c, "digits-1", 0); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "outbid soup") {
		t.Errorf("without a soup: %v", err)
	}
	for i, file := range files {
		soup, err := putSoup(t.Context(), c, "digits-1", soupOf(file), file)
		if err != nil {
			t.Fatal(err)
		}
		of, ok := objects.SoupAt(soup.GetKey())
		if soup.GetNumber() != int32(i+1) || of != "digits-1" || !ok || soup.GetActor() != "local" || !bytes.Equal(h.store.data[soup.GetKey()], file) {
			t.Errorf("soup %d is kept as %v, with %d bytes", i+1, soup, len(h.store.data[soup.GetKey()]))
		}
	}
	for number, want := range map[int32][]byte{1: files[0], 2: files[1], 0: files[1]} {
		soup, got, err := getSoup(t.Context(), c, "digits-1", number)
		if err != nil || !bytes.Equal(got, want) || soup.GetMetric() != .9 || len(soup.GetParts()) != 2 {
			t.Errorf("soup %d: %v, %d bytes, %v", number, soup, len(got), err)
		}
	}
	if _, _, err := getSoup(t.Context(), c, "digits-1", 3); status.Code(err) != codes.NotFound {
		t.Errorf("soup 3: %v", err)
	}
	for key := range h.store.data { // simulates a disk that loses data
		h.store.data[key][7]++
	}
	if _, _, err := getSoup(t.Context(), c, "digits-1", 0); status.Code(err) != codes.DataLoss {
		t.Errorf("a damaged soup: %v", err)
	}
	clear(h.store.data)
	if _, _, err := getSoup(t.Context(), c, "digits-1", 0); status.Code(err) != codes.NotFound {
		t.Errorf("a lost soup: %v", err)
	}
}

// TestABadSoupIsNotKept checks that a soup that is incomplete or differs from its announcement is rejected and leaves
// nothing in the store.
func TestABadSoupIsNotKept(t *testing.T) {
	t.Parallel()
	file := bytes.Repeat([]byte("weights "), 100_000)
	for name, tc := range map[string]struct {
		sweep  string
		change func(*outbidv1.Soup)
		file   []byte
		code   codes.Code
		say    string
	}{
		"no sweep":      {"", nil, file, codes.InvalidArgument, "sweep"},
		"other sweep":   {"digits-2", nil, file, codes.NotFound, "digits-2"},
		"cut off":       {"digits-1", nil, file[:len(file)-1], codes.InvalidArgument, "ends 1 bytes before soup.bytes"},
		"too long":      {"digits-1", nil, append(bytes.Clone(file), 'x'), codes.InvalidArgument, "is longer than soup.bytes"},
		"damaged":       {"digits-1", nil, append(bytes.Clone(file[1:]), 'x'), codes.DataLoss, "try again"},
		"no hash":       {"digits-1", func(s *outbidv1.Soup) { s.Sha256 = "AB" }, file, codes.InvalidArgument, "soup.sha256"},
		"NaN":           {"digits-1", func(s *outbidv1.Soup) { s.Metric = proto.Float64(math.NaN()) }, file, codes.InvalidArgument, "soup.metric"},
		"huge":          {"digits-1", func(s *outbidv1.Soup) { s.Bytes = int64(len(file)) + soupMargin + 1 }, file, codes.InvalidArgument, "soup.bytes"},
		"empty":         {"digits-1", func(s *outbidv1.Soup) { s.Bytes = 0 }, nil, codes.InvalidArgument, "soup.bytes"},
		"of nothing":    {"digits-1", func(s *outbidv1.Soup) { s.Parts = s.GetParts()[1:] }, file, codes.InvalidArgument, "soup.parts"},
		"a trial twice": {"digits-1", func(s *outbidv1.Soup) { s.Parts[0].Trial = 0 }, file, codes.InvalidArgument, "twice"},
		"no such trial": {"digits-1", func(s *outbidv1.Soup) { s.Parts[0].Trial = 9 }, file, codes.NotFound, "9"},
		"many trials":   {"digits-1", func(s *outbidv1.Soup) { s.Parts = make([]*outbidv1.SoupPart, maxSoupParts+1) }, file, codes.InvalidArgument, "soup.parts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := serveSoups(t, int64(len(file)))
			soup := soupOf(file)
			if tc.change != nil {
				tc.change(soup)
			}
			_, err := putSoup(t.Context(), h.dial(t, ""), tc.sweep, soup, tc.file)
			if status.Code(err) != tc.code || !strings.Contains(err.Error(), tc.say) {
				t.Errorf("%v; want %v, %q", err, tc.code, tc.say)
			}
			if len(h.store.data) > 0 {
				t.Errorf("the store holds %d objects", len(h.store.data))
			}
		})
	}
}

// TestASoupOfASweepThatGoesIsDeleted checks that a soup is deleted if its sweep is deleted in the meantime. After an
// error that may have reached the ledger it stays.
func TestASoupOfASweepThatGoesIsDeleted(t *testing.T) {
	t.Parallel()
	file := []byte("weights")
	for fail, left := range map[error]int{state.ErrNotFound: 0, context.Canceled: 1} {
		h := serveSoups(t, 7)
		h.control.fail = fmt.Errorf("just now: %w", fail)
		if _, err := putSoup(t.Context(), h.dial(t, ""), "digits-1", soupOf(file), file); err == nil || len(h.store.data) != left {
			t.Errorf("%v: %v, and the store holds %d objects", fail, err, len(h.store.data))
		}
	}
}

func TestWhoMaySeeSoups(t *testing.T) {
	t.Parallel()
	h := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	h.control.add("digits-1", "vision", 2)
	file := []byte("weights")
	for who, want := range map[string][2]codes.Code{
		"ann": {codes.InvalidArgument, codes.NotFound}, // its trials do not have checkpoints, and it does not have soups
		"bob": {codes.NotFound, codes.NotFound},
		"eve": {codes.PermissionDenied, codes.NotFound},
	} {
		c := h.dial(t, token(who))
		_, put := putSoup(t.Context(), c, "digits-1", soupOf(file), file)
		_, _, get := getSoup(t.Context(), c, "digits-1", 0)
		if status.Code(put) != want[0] || status.Code(get) != want[1] || strings.Contains(get.Error(), "no sweep") != (who == "bob") {
			t.Errorf("%s: %v, %v", who, put, get)
		}
	}
}
