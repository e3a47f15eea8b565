package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outbid-dev/outbid/orchestrator/objects"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestListTrialsPages(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	const n = 12_345
	h.control.add("digits-1", "", n)
	client := h.dial(t, "")
	for _, tc := range []struct {
		order string
		size  int32
		pages int
	}{{"", 0, 13}, {"number", 10_000, 2}, {"best", 5000, 3}} {
		req := &outbidv1.ListTrialsRequest{Sweep: "digits-1", Order: tc.order, PageSize: tc.size}
		seen, pages := map[int32]bool{}, 0
		last := 1e18
		for {
			resp, err := client.ListTrials(t.Context(), req)
			if err != nil {
				t.Fatalf("order %q: %v", tc.order, err)
			}
			pages++
			for _, trial := range resp.GetTrials() {
				if seen[trial.GetNumber()] {
					t.Fatalf("order %q: trial %d came twice", tc.order, trial.GetNumber())
				}
				if tc.order == "best" && trial.GetBest() > last {
					t.Fatalf("trial %d with %v came after %v", trial.GetNumber(), trial.GetBest(), last)
				}
				seen[trial.GetNumber()], last = true, trial.GetBest()
			}
			if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
				break
			}
		}
		if len(seen) != n || pages != tc.pages {
			t.Errorf("order %q: %d trials on %d pages, want %d on %d", tc.order, len(seen), pages, n, tc.pages)
		}
	}
}

func TestListTrialsCutsLargePages(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 100)
	h.control.change("digits-1", func(s *fakeSweep) {
		for _, trial := range s.trials {
			trial.ConfigJson = strings.Repeat("x", 100_000)
		}
	})
	client := h.dial(t, "") // clients accept messages of 4 MiB by default
	total := 0
	req := &outbidv1.ListTrialsRequest{Sweep: "digits-1"}
	for {
		resp, err := client.ListTrials(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		total += len(resp.GetTrials())
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if total != 100 {
		t.Errorf("%d trials, want 100", total)
	}
}

func TestListSweepsPages(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	for i := range 25 {
		h.control.add(fmt.Sprintf("s-%d", i+1), []string{"vision", "speech"}[i%2], 0)
	}
	client := h.dial(t, "")
	var ids []string
	req := &outbidv1.ListSweepsRequest{PageSize: 5, Tenant: "vision"}
	for {
		resp, err := client.ListSweeps(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range resp.GetSweeps() {
			ids = append(ids, s.GetId())
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			break
		}
		h.control.add(fmt.Sprintf("new-%d", len(ids)), "vision", 0) // newer sweeps must not shift the pages
	}
	var want []string
	for i := 24; i >= 0; i -= 2 {
		want = append(want, fmt.Sprintf("s-%d", i+1))
	}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("sweeps of vision (-want +got):\n%s", diff)
	}
}

func TestBlobRoundTrip(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	client := h.dial(t, "")
	blob := bytes.Repeat([]byte("cloudpickle "), 300_000) // 3.6 MB
	put := func(blob []byte) (*outbidv1.PutBlobResponse, error) {
		stream, err := client.PutBlob(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for piece := range bytes.SplitSeq(blob, []byte("never")) {
			for len(piece) > 0 {
				n := min(len(piece), 1<<20)
				if err := stream.Send(&outbidv1.PutBlobRequest{Data: piece[:n]}); err != nil {
					break // CloseAndRecv returns the error
				}
				piece = piece[n:]
			}
		}
		return stream.CloseAndRecv()
	}
	sum := sha256.Sum256(blob)
	want := hex.EncodeToString(sum[:])
	for range 2 { // the second time the store has it
		resp, err := put(blob)
		if err != nil {
			t.Fatal(err)
		}
		if resp.GetSha256() != want {
			t.Errorf("sha256 %s, want %s", resp.GetSha256(), want)
		}
	}
	if !bytes.Equal(h.store.data["blobs/"+want], blob) || h.store.puts != 1 {
		t.Errorf("the store holds %d bytes after %d puts", len(h.store.data["blobs/"+want]), h.store.puts)
	}
	if _, err := put(nil); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an empty blob: %v", err)
	}
	h.store.fail = fmt.Errorf("put: %w", objects.ErrFull)
	if _, err := put([]byte("x")); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a full store: %v", err)
	}
}

func TestGetCheckpoint(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 1)
	old, fresh := []byte("old"), bytes.Repeat([]byte("weights "), 100_000)
	h.store.data["c/1.safetensors"], h.store.data["c/3.safetensors"] = old, fresh
	sum := sha256.Sum256(fresh)
	h.control.change("digits-1", func(s *fakeSweep) {
		s.trials[0].Checkpoints = []*outbidv1.Checkpoint{
			{Key: "c/1.safetensors", Step: 1},
			{Key: "c/2.safetensors", Step: 2},
			{Key: "c/3.safetensors", Step: 3, Sha256: hex.EncodeToString(sum[:]), Bytes: int64(len(fresh))},
			{Key: "c/1.safetensors", Step: 0, Sha256: "00"},
		}
	}, 0)
	client := h.dial(t, "")
	get := func(step *int64) ([]byte, int64, error) {
		stream, err := client.GetCheckpoint(t.Context(), &outbidv1.GetCheckpointRequest{Sweep: "digits-1", Step: step})
		if err != nil {
			t.Fatal(err)
		}
		var b []byte
		at := int64(-1)
		for {
			piece, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return b, at, nil
			}
			if err != nil {
				return b, at, err
			}
			if cp := piece.GetCheckpoint(); cp != nil {
				at = cp.GetStep()
			}
			b = append(b, piece.GetData()...)
		}
	}
	if b, step, err := get(nil); err != nil || step != 3 || !bytes.Equal(b, fresh) {
		t.Errorf("newest: %d bytes of step %d, %v", len(b), step, err)
	}
	if b, step, err := get(proto.Int64(1)); err != nil || step != 1 || !bytes.Equal(b, old) {
		t.Errorf("step 1: %q of step %d, %v", b, step, err)
	}
	for step, want := range map[int64]codes.Code{2: codes.NotFound, 7: codes.NotFound, 0: codes.DataLoss} {
		if _, _, err := get(&step); status.Code(err) != want {
			t.Errorf("step %d: %v, want %v", step, err, want)
		}
	}
}

func TestWatchSweep(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	const n = 3000
	h.control.add("digits-1", "", n)
	h.control.change("digits-1", func(s *fakeSweep) {
		for _, trial := range s.trials {
			trial.ConfigJson = strings.Repeat("x", 1000) // 3 MB in total: several messages
		}
	})
	h.control.report(t, "digits-1", 7, 1)
	h.control.report(t, "other-2", 7, 1)
	stream, err := h.dial(t, "").WatchSweep(t.Context(), &outbidv1.WatchSweepRequest{Sweep: "digits-1", Reports: true})
	if err != nil {
		t.Fatal(err)
	}
	seen, reports := map[int32]int{}, []int64{}
	recv := func() *outbidv1.WatchSweepResponse {
		m, err := stream.Recv()
		if err != nil {
			t.Fatalf("after %d trials: %v", len(seen), err)
		}
		for _, trial := range m.GetTrials() {
			seen[trial.GetNumber()]++
		}
		for _, r := range m.GetReports() {
			reports = append(reports, r.GetReport().GetStep())
		}
		return m
	}
	for len(seen) < n || len(reports) < 1 {
		if m := recv(); proto.Size(m) > 2<<20 {
			t.Errorf("a message of %d bytes", proto.Size(m))
		}
	}
	h.control.report(t, "digits-1", 7, 2)
	h.control.change("digits-1", func(s *fakeSweep) { s.trials[7].Step = 2 }, 7)
	m := recv()
	if len(m.GetTrials()) != 1 || m.GetTrials()[0].GetStep() != 2 || len(m.GetReports()) != 1 {
		t.Errorf("after one change: %d trials, %d reports", len(m.GetTrials()), len(m.GetReports()))
	}
	h.control.end("digits-1")
	if m := recv(); m.GetSweep().GetState() != outbidv1.SweepState_SWEEP_STATE_DONE {
		t.Errorf("the last update says %v", m.GetSweep().GetState())
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v, want EOF", err)
	}
	if diff := cmp.Diff([]int64{1, 2}, reports); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
}

func TestStreamLogs(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 3)
	h.logs.print(0, "a\nb\r\n")
	h.logs.print(1, "c\n")
	h.logs.print(0, "d\ne")
	client := h.dial(t, "")
	for _, tc := range []struct {
		req  *outbidv1.StreamLogsRequest
		want string
	}{
		{&outbidv1.StreamLogsRequest{}, "0a 0b 1c 0d 0e"},
		{&outbidv1.StreamLogsRequest{Trial: proto.Int32(0)}, "0a 0b 0d 0e"},
		{&outbidv1.StreamLogsRequest{Trial: proto.Int32(2)}, ""},
		{&outbidv1.StreamLogsRequest{Tail: 2}, "0d 0e"},
		{&outbidv1.StreamLogsRequest{Tail: 3, Trial: proto.Int32(0)}, "0b 0d 0e"},
		{&outbidv1.StreamLogsRequest{Tail: 100}, "0a 0b 1c 0d 0e"},
	} {
		tc.req.Sweep = "digits-1"
		stream, err := client.StreamLogs(t.Context(), tc.req)
		if err != nil {
			t.Fatal(err)
		}
		if got := lines(t, stream, -1); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.req, got, tc.want)
		}
	}
}

func TestALogSeparatesAttempts(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 2)
	h.logs.printUnder(0, 3, "a\n")
	h.logs.printUnder(1, 4, "b\n")
	h.logs.printUnder(0, 3, "c\n")
	h.logs.printUnder(0, 5, "d\n")
	h.logs.printUnder(0, 5, "e\n")
	h.logs.printUnder(0, 3, "late\n") // of the first attempt
	const mark = "--- started on n1 at 1970-01-01T00:00:00Z ---"
	client := h.dial(t, "")
	for tail, want := range map[int32][]string{
		0: {"a", "b", "c", mark, "d", "e", "late"}, 4: {mark, "d", "e", "late"}, 2: {"e", "late"},
	} {
		stream, err := client.StreamLogs(t.Context(), &outbidv1.StreamLogsRequest{Sweep: "digits-1", Tail: tail})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for line, err := stream.Recv(); err == nil; line, err = stream.Recv() {
			got = append(got, line.GetLine())
			if marked := line.GetStream() == "outbid"; marked != (line.GetLine() == mark) {
				t.Errorf("%q is of stream %s", line.GetLine(), line.GetStream())
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("tail %d (-want +got):\n%s", tail, diff)
		}
	}
}

func TestFollowLogs(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 1)
	h.logs.print(0, "a\nb\n")
	h.logs.print(0, "c\n")
	client := h.dial(t, "")
	for _, tc := range []struct {
		tail int32
		want string
	}{{0, "0a 0b 0c"}, {2, "0b 0c"}} {
		stream, err := client.StreamLogs(t.Context(), &outbidv1.StreamLogsRequest{
			Sweep: "digits-1", Follow: true, Tail: tc.tail,
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := lines(t, stream, len(strings.Fields(tc.want))); got != tc.want {
			t.Errorf("tail %d: %q, want %q", tc.tail, got, tc.want)
		}
		if tc.tail == 0 {
			continue // the test's context ends it
		}
		h.logs.print(0, "late\n")
		if got := lines(t, stream, 1); got != "0late" {
			t.Errorf("a line that came later: %q", got)
		}
		h.control.change("digits-1", func(s *fakeSweep) {
			s.trials[0].State = outbidv1.TrialState_TRIAL_STATE_COMPLETED
		}, 0)
		h.control.end("digits-1")
		h.logs.print(0, "last\n") // still on its way when the sweep ended
		if got := lines(t, stream, -1); got != "0last" {
			t.Errorf("after the end: %q", got)
		}
	}
}

// TestLogsOfWhatHasJustEnded checks that a log requested right after the end includes lines that were still on their
// way.
func TestLogsOfWhatHasJustEnded(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 1)
	h.control.change("digits-1", func(s *fakeSweep) {
		s.trials[0].State = outbidv1.TrialState_TRIAL_STATE_FAILED
		s.trials[0].Ended = timestamppb.Now()
	}, 0)
	stream, err := h.dial(t, "").StreamLogs(t.Context(), &outbidv1.StreamLogsRequest{
		Sweep: "digits-1", Trial: proto.Int32(0),
	})
	if err != nil {
		t.Fatal(err)
	}
	h.logs.print(0, "ValueError\n")
	if got := lines(t, stream, -1); got != "0ValueError" {
		t.Errorf("the log is %q", got)
	}
}

// lines reads n lines, or all if n is negative.
func lines(t *testing.T, stream grpc.ServerStreamingClient[outbidv1.StreamLogsResponse], n int) string {
	t.Helper()
	var got []string
	for len(got) != n {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%d%s", m.GetTrial(), m.GetLine()))
	}
	return strings.Join(got, " ")
}

func TestListReports(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 2)
	const n = 60_000 // more than one message
	for i := range n {
		s := h.control.sweeps["digits-1"]
		s.reports = append(s.reports, &outbidv1.TrialReport{Trial: int32(i % 2), Report: &outbidv1.Report{
			Step: int64(i), Metrics: map[string]float64{"accuracy": 0.5, "loss": 0.25},
		}})
	}
	for trial, want := range map[*int32]int{nil: n, proto.Int32(1): n / 2} {
		stream, err := h.dial(t, "").ListReports(t.Context(), &outbidv1.ListReportsRequest{Sweep: "digits-1", Trial: trial})
		if err != nil {
			t.Fatal(err)
		}
		got, messages := 0, 0
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got, messages = got+len(m.GetReports()), messages+1
		}
		if got != want || messages < 2 {
			t.Errorf("%d reports in %d messages, want %d", got, messages, want)
		}
	}
}

func TestStopEndsStreams(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 1)
	client := h.dial(t, "")
	watch, err := client.WatchSweep(t.Context(), &outbidv1.WatchSweepRequest{Sweep: "digits-1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	logs, err := client.StreamLogs(t.Context(), &outbidv1.StreamLogsRequest{Sweep: "digits-1", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	h.stop()
	for name, recv := range map[string]func() error{
		"watch": func() error { _, err := watch.Recv(); return err },
		"logs":  func() error { _, err := logs.Recv(); return err },
	} {
		if err := recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v, want Unavailable", name, err)
		}
	}
	if err := <-h.done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := client.ListNodes(t.Context(), &outbidv1.ListNodesRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a call after the stop: %v", err)
	}
}

func TestPanicIsAnError(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.sweeps["broken"] = nil // makes the fake's Sweeps panic
	h.control.order = append(h.control.order, "broken")
	_, err := h.dial(t, "").ListSweeps(t.Context(), &outbidv1.ListSweepsRequest{})
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "nil pointer") {
		t.Errorf("a panic: %v", err)
	}
}

func TestCancelledCall(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 1)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := h.dial(t, "").WatchSweep(ctx, &outbidv1.WatchSweepRequest{Sweep: "digits-1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("after cancel: %v", err)
	}
}
