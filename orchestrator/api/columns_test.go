package api

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// readTable receives an answer of ReadColumns, and returns the values by trial and column, and the last version.
func readTable(t *testing.T, recv func() (*outbidv1.ReadColumnsResponse, error)) (map[int32]map[string]any, string, int) {
	t.Helper()
	rows, pieces, version := map[int32]map[string]any{}, 0, ""
	for {
		m, err := recv()
		if err == io.EOF { //nolint:errorlint // gRPC returns io.EOF itself
			return rows, version, pieces
		}
		if err != nil {
			t.Fatal(err)
		}
		if (m.GetSweep() != nil) != (pieces == 0) {
			t.Errorf("piece %d: the sweep must be in the first piece alone", pieces)
		}
		pieces++
		version = m.GetVersion()
		for i := range len(m.GetNumbers()) / 4 {
			row := map[string]any{}
			rows[int32(binary.LittleEndian.Uint32(m.GetNumbers()[4*i:]))] = row
			for _, c := range m.GetColumns() {
				key := fmt.Sprintf("%d %s", c.GetKind(), c.GetName())
				if v := valueAt(t, c.GetType(), c.GetValues(), i); !math.IsNaN(v) {
					row[key] = v
				}
				if n := valueAt(t, c.GetTextType(), c.GetText(), i); n > 0 {
					row[key] = c.GetWords()[int(n)-1]
				}
			}
		}
	}
}

func valueAt(t *testing.T, kind string, data []byte, i int) float64 {
	t.Helper()
	switch kind {
	case "":
		return math.NaN()
	case "u8":
		return float64(data[i])
	case "i8":
		return float64(int8(data[i]))
	case "i16":
		return float64(int16(binary.LittleEndian.Uint16(data[2*i:])))
	case "i32":
		return float64(int32(binary.LittleEndian.Uint32(data[4*i:])))
	case "f32":
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
	case "f64":
		return math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
	}
	t.Fatalf("%s is not a type", kind)
	return 0
}

func TestReadColumnsReturnsEveryValueExactly(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 3)
	h.control.change("digits-1", func(s *fakeSweep) {
		s.trials[0].ConfigJson = `{"lr":0.1,"n":-70000,"opt":{"name":"adam","betas":[0.9,1]},"flag":true}`
		s.trials[0].Last = &outbidv1.Report{Metrics: map[string]float64{"accuracy": 1.0 / 3, "half": 0.5}}
		s.trials[1].ConfigJson = `{"lr":"auto","n":3}`
		s.trials[1].Attributes = map[string]string{"seed": "7"}
		s.trials[1].Best = nil
		s.trials[2].Step, s.trials[2].Best = 1<<40, proto.Float64(math.Inf(1))
	}, 0, 1, 2)
	stream, err := h.dial(t, "").ReadColumns(t.Context(), &outbidv1.ReadColumnsRequest{Sweep: "digits-1"})
	if err != nil {
		t.Fatal(err)
	}
	rows, _, _ := readTable(t, stream.Recv)
	wants := map[int32]map[string]any{
		0: {
			"3 lr": 0.1, "3 n": -70000.0, "3 opt.name": "adam", "3 opt.betas": "[0.9,1]", "3 flag": "true", "2 accuracy": 1.0 / 3,
			"2 half": 0.5, "1 state": "TRIAL_STATE_RUNNING", "1 best": 0.0,
		},
		1: {"3 lr": "auto", "3 n": 3.0, "4 seed": "7"},
		2: {"3 lr": 0.1, "1 step": float64(1 << 40), "1 best": math.Inf(1)},
	}
	for row, want := range wants {
		for key, v := range want {
			if rows[row][key] != v {
				t.Errorf("trial %d: %s is %v, want %v", row, key, rows[row][key], v)
			}
		}
	}
	if _, ok := rows[1]["1 best"]; ok {
		t.Error("trial 1 has a best value")
	}
}

func TestReadColumnsReturnsTimesAfterTheSubmission(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 3)
	begin := time.Unix(1_700_000_000, 0)
	h.control.change("digits-1", func(s *fakeSweep) {
		s.view.Submitted = timestamppb.New(begin)
		s.trials[0].Created, s.trials[0].Ended = timestamppb.New(begin), timestamppb.New(begin.Add(90*time.Second))
		s.trials[1].Created, s.trials[1].Ended = timestamppb.New(begin.Add(1500*time.Millisecond)), nil
		s.trials[1].DeviceSeconds, s.trials[1].Rounds, s.trials[1].CopiedFrom = 0.1, 2, proto.Int32(0)
		s.trials[2].Created, s.trials[2].Ended = nil, nil
	}, 0, 1, 2)
	stream, err := h.dial(t, "").ReadColumns(t.Context(), &outbidv1.ReadColumnsRequest{Sweep: "digits-1"})
	if err != nil {
		t.Fatal(err)
	}
	rows, _, _ := readTable(t, stream.Recv)
	for row, want := range map[int32]map[string]any{
		0: {"1 created": 0.0, "1 ended": 90.0, "1 rounds": nil, "1 copied_from": nil},
		1: {"1 created": 1.5, "1 ended": nil, "1 rounds": 2.0, "1 copied_from": 0.0, "1 device_seconds": float64(float32(0.1))},
		2: {"1 created": nil, "1 ended": nil},
	} {
		for key, v := range want {
			if rows[row][key] != v {
				t.Errorf("trial %d: %s is %v, want %v", row, key, rows[row][key], v)
			}
		}
	}
}

func TestReadColumnsSendsWhatChanged(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 40_000)
	client := h.dial(t, "")
	read := func(since string) (map[int32]map[string]any, string, int) {
		stream, err := client.ReadColumns(t.Context(), &outbidv1.ReadColumnsRequest{Sweep: "digits-1", Since: since})
		if err != nil {
			t.Fatal(err)
		}
		return readTable(t, stream.Recv)
	}
	all, version, pieces := read("")
	if len(all) != 40_000 || pieces < 2 {
		t.Fatalf("%d trials in %d pieces", len(all), pieces)
	}
	h.control.change("digits-1", func(s *fakeSweep) {
		s.trials[7].Best, s.trials[7].ConfigJson = nil, `{"width":4}`
	}, 7, 39_999)
	changed, newer, _ := read(version)
	if len(changed) != 2 || changed[7]["3 width"] != 4.0 || changed[7]["3 lr"] != nil || changed[7]["1 best"] != nil {
		t.Errorf("changed: %v", changed)
	}
	if same, _, _ := read(newer); len(same) != 0 {
		t.Errorf("nothing changed, and %d trials came", len(same))
	}
	if whole, _, _ := read("elsewhere.7"); len(whole) != 40_000 {
		t.Errorf("%d trials after a version of another server", len(whole))
	}
}

func TestReadColumnsFollowsUntilTheEnd(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 2)
	stream, err := h.dial(t, "").ReadColumns(t.Context(), &outbidv1.ReadColumnsRequest{Sweep: "digits-1", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	h.control.change("digits-1", func(s *fakeSweep) { s.trials[1].Step = 9 }, 1)
	m, err := stream.Recv()
	if err != nil || len(m.GetNumbers()) != 4 || m.GetWhole() {
		t.Fatalf("a change: %v %v", m, err)
	}
	h.control.change("digits-1", func(s *fakeSweep) { s.view.State = outbidv1.SweepState_SWEEP_STATE_DONE })
	for m, err = stream.Recv(); err == nil; m, err = stream.Recv() {
		if m.GetSweep().GetState() != outbidv1.SweepState_SWEEP_STATE_DONE {
			t.Errorf("the sweep is %v", m.GetSweep().GetState())
		}
	}
	if err != io.EOF { //nolint:errorlint // gRPC returns io.EOF itself
		t.Fatal(err)
	}
}

func TestColumnsAsFrames(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 3)
	for _, packed := range []bool{false, true} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL()+"/v1/sweeps/digits-1/columns", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", "application/octet-stream")
		if packed {
			req.Header.Set("Accept-Encoding", "gzip")
		}
		resp, err := (&http.Transport{DisableCompression: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body := io.Reader(resp.Body)
		if packed {
			if body, err = gzip.NewReader(body); err != nil {
				t.Fatal(err)
			}
		}
		data, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		checkFrame(t, data)
	}
}

func checkFrame(t *testing.T, data []byte) {
	t.Helper()
	size := int(binary.LittleEndian.Uint32(data))
	var head rawPiece
	if err := json.Unmarshal(bytes.TrimRight(data[8:8+size], " "), &head); err != nil {
		t.Fatal(err)
	}
	if size%8 != 0 || len(data) != 8+size+int(binary.LittleEndian.Uint32(data[4:])) {
		t.Errorf("a frame of %d bytes with a head of %d", len(data), size)
	}
	if !head.Whole || head.Rows != 3 || !bytes.Contains(head.Sweep, []byte("digits-1")) || head.Version == "" {
		t.Errorf("head: %+v", head)
	}
}

func TestColumnsHideVariables(t *testing.T) {
	t.Parallel()
	m := &outbidv1.ReadColumnsResponse{Sweep: &outbidv1.Sweep{Spec: &outbidv1.SweepSpec{
		Workload: &outbidv1.SweepSpec_Program{Program: &outbidv1.Program{Env: map[string]string{"KEY": "value"}}},
	}}}
	one, err := encode(m)
	if err != nil {
		t.Fatal(err)
	}
	hidden, err := hideEnvSent(one)
	if err != nil {
		t.Fatal(err)
	}
	if got := hidden.(*outbidv1.ReadColumnsResponse).GetSweep().GetSpec().GetProgram().GetEnv()["KEY"]; got != hiddenValue {
		t.Errorf("the variable is %q", got)
	}
}
