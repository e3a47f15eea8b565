package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// call makes a REST request. headers alternates names and values.
func (h *testServer) call(t *testing.T, method, path, body string, headers ...string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, h.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, b
}

func decodeError(t *testing.T, b []byte) jsonError {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var e jsonError
	if err := d.Decode(&e); err != nil {
		t.Fatalf("%s is no error: %v", b, err)
	}
	return e
}

func TestRESTAnswers(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "vision", 2)
	resp, b := h.call(t, "GET", "/v1/sweeps/digits-1", "")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("status %d, %v: %s", resp.StatusCode, resp.Header, b)
	}
	var got struct {
		Sweep struct {
			ID     string         `json:"id"`
			State  string         `json:"state"`
			Spec   map[string]any `json:"spec"`
			Counts map[string]any `json:"counts"`
			Device *float64       `json:"device_seconds"`
		} `json:"sweep"`
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	s := got.Sweep
	if s.ID != "digits-1" || s.State != "SWEEP_STATE_RUNNING" || s.Counts["total"] != 2.0 || s.Counts["failed"] != 0.0 ||
		s.Spec["hang_timeout"] != "" || s.Device == nil {
		t.Errorf("got %s", b)
	}
	_, b = h.call(t, "POST", "/v1/sweeps/digits-1:control", `{"command":"SWEEP_COMMAND_PAUSE"}`)
	if !bytes.Contains(b, []byte(`"digits-1"`)) || h.control.actors[0] != "local" {
		t.Errorf("control: %s by %v", b, h.control.actors)
	}
	if _, b = h.call(t, "POST", "/v1/sweeps/digits-1:ask", `{"client":"me"}`); !bytes.Contains(b, []byte(`"lease_id":"1"`)) {
		t.Errorf("ask: %s", b)
	}
	_, b = h.call(t, "POST", "/v1/sweeps/digits-1/trials/1:tell", `{"lease_id":"1","reports":[{"step":"3","metrics":{"a":1}}]}`)
	if !bytes.Contains(b, []byte(`"go_on":true`)) {
		t.Errorf("tell: %s", b)
	}
	_, b = h.call(t, "GET", "/v1/sweeps/digits-1/trials?order=best&page_size=1", "")
	var page struct {
		Trials []struct{ Number int }
		Next   string `json:"next_page_token"`
	}
	if err := json.Unmarshal(b, &page); err != nil || len(page.Trials) != 1 || page.Trials[0].Number != 1 || page.Next == "" {
		t.Errorf("trials: %s (%v)", b, err)
	}
}

func TestRESTStream(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 3)
	req, err := http.NewRequestWithContext(t.Context(), "GET", h.URL()+"/v1/sweeps/digits-1/watch?reports=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	type update struct {
		Result struct {
			Sweep  struct{ State string }
			Trials []struct{ Number, Restarts int }
		}
	}
	var states []string
	trials := 0
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		var u update
		if err := json.Unmarshal(lines.Bytes(), &u); err != nil {
			t.Fatalf("%s: %v", lines.Bytes(), err)
		}
		states, trials = append(states, u.Result.Sweep.State), trials+len(u.Result.Trials)
		if len(states) == 1 { // it changes while the stream is open
			h.control.change("digits-1", func(s *fakeSweep) {
				s.view.State = outbidv1.SweepState_SWEEP_STATE_FAILED
				s.trials[2].Restarts = 4
			}, 2)
		}
	}
	if diff := cmp.Diff([]string{"SWEEP_STATE_RUNNING", "SWEEP_STATE_FAILED"}, states); diff != "" || trials != 4 {
		t.Errorf("%d trials, states (-want +got):\n%s", trials, diff)
	}
}

func TestRESTCheckpointFile(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 1)
	want := bytes.Repeat([]byte("weights "), 100_000)
	h.store.data["c/3.safetensors"] = want
	h.control.change("digits-1", func(s *fakeSweep) {
		s.trials[0].Checkpoints = []*outbidv1.Checkpoint{
			{Key: "c/3.safetensors", Step: 3, Bytes: int64(len(want))}, {Key: "c/gone.safetensors", Step: 2},
		}
	}, 0)
	const path = "/v1/sweeps/digits-1/trials/0/checkpoint"
	resp, b := h.call(t, "GET", path+"?step=3", "", "Accept", "application/octet-stream")
	if !bytes.Equal(b, want) || resp.Header.Get("Content-Disposition") != "attachment; filename=digits-1-0-3.safetensors" {
		t.Errorf("%d bytes, %v", len(b), resp.Header)
	}
	for _, accept := range []string{"application/octet-stream", "application/json"} {
		resp, b = h.call(t, "GET", path+"?step=2", "", "Accept", accept)
		if e := decodeError(t, b); resp.StatusCode != http.StatusNotFound || e.Code != "NOT_FOUND" {
			t.Errorf("%s: status %d, %+v", accept, resp.StatusCode, e)
		}
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 2)
	h.control.add("other-2", "", 2000)
	_, b := h.call(t, "GET", "/v1/sweeps/other-2/trials", "")
	var other struct {
		Next string `json:"next_page_token"`
	}
	if err := json.Unmarshal(b, &other); err != nil || other.Next == "" {
		t.Fatalf("no token in %.100s", b)
	}
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		code, field, says  string
	}{
		"no such path":       {"GET", "/v1/nothing", "", 404, "NOT_FOUND", "", "there is no path /v1/nothing"},
		"wrong method":       {"DELETE", "/v1/sweeps", "", 405, "UNIMPLEMENTED", "", "DELETE is not allowed for /v1/sweeps"},
		"no such sweep":      {"GET", "/v1/sweeps/nope-1", "", 404, "NOT_FOUND", "", `there is no sweep "nope-1"`},
		"no such trial":      {"GET", "/v1/sweeps/digits-1/trials/9", "", 404, "NOT_FOUND", "", `there is no trial "digits-1/9"`},
		"trial no number":    {"GET", "/v1/sweeps/digits-1/trials/x", "", 400, "INVALID_ARGUMENT", "trial", "not a whole number"},
		"trial below 0":      {"GET", "/v1/sweeps/digits-1/trials/-1", "", 400, "INVALID_ARGUMENT", "trial", "-1 is below 0"},
		"no checkpoint":      {"GET", "/v1/sweeps/digits-1/trials/1/checkpoint", "", 404, "NOT_FOUND", "", "does not have a checkpoint"},
		"unknown parameter":  {"GET", "/v1/sweeps/digits-1/trials?sort=best", "", 400, "INVALID_ARGUMENT", "sort", "page_size"},
		"order":              {"GET", "/v1/sweeps/digits-1/trials?order=x", "", 400, "INVALID_ARGUMENT", "order", `"best"`},
		"page size":          {"GET", "/v1/sweeps?page_size=-1", "", 400, "INVALID_ARGUMENT", "page_size", "below 0"},
		"large page":         {"GET", "/v1/sweeps?page_size=10001", "", 400, "INVALID_ARGUMENT", "page_size", "10000"},
		"page size no int":   {"GET", "/v1/sweeps?page_size=x", "", 400, "INVALID_ARGUMENT", "", "page_size"},
		"page token":         {"GET", "/v1/sweeps?page_token=x", "", 400, "INVALID_ARGUMENT", "page_token", "next_page_token"},
		"other's page token": {"GET", "/v1/sweeps/digits-1/trials?page_token=" + other.Next, "", 400, "INVALID_ARGUMENT", "page_token", "listing"},
		"tail":               {"GET", "/v1/sweeps/digits-1/logs?tail=-2", "", 400, "INVALID_ARGUMENT", "tail", "-2"},
		"logs of no sweep":   {"GET", "/v1/sweeps/nope-1/logs", "", 404, "NOT_FOUND", "", "nope-1"},
		"logs of no trial":   {"GET", "/v1/sweeps/digits-1/logs?trial=7", "", 404, "NOT_FOUND", "", "digits-1/7"},
		"reports, no sweep":  {"GET", "/v1/sweeps/nope-1/reports", "", 404, "NOT_FOUND", "", "nope-1"},
		"reports, no trial":  {"GET", "/v1/sweeps/digits-1/reports?trial=7", "", 404, "NOT_FOUND", "", "digits-1/7"},
		"watch no sweep":     {"GET", "/v1/sweeps/nope-1/watch", "", 404, "NOT_FOUND", "", "nope-1"},
		"no JSON":            {"POST", "/v1/sweeps/digits-1:control", "{", 400, "INVALID_ARGUMENT", "", "EOF"},
		"unknown field":      {"POST", "/v1/sweeps/digits-1:control", `{"comand":1}`, 400, "INVALID_ARGUMENT", "", "body: line 1, column 2: unknown field \"comand\""},
		"text for a number":  {"POST", "/v1/sweeps", `{"spec":{"max_restarts":"x"}}`, 400, "INVALID_ARGUMENT", "", "invalid value for int32 field maxRestarts"},
		"no JSON at all":     {"POST", "/v1/sweeps", `lr=3`, 400, "INVALID_ARGUMENT", "", "body: is not JSON"},
		"no command":         {"POST", "/v1/sweeps/digits-1:control", `{}`, 400, "INVALID_ARGUMENT", "command", "PAUSE"},
		"unknown command":    {"POST", "/v1/sweeps/digits-1:control", `{"command":9}`, 400, "INVALID_ARGUMENT", "command", "PAUSE"},
		"control no sweep":   {"POST", "/v1/sweeps/nope-1:control", `{"command":1}`, 404, "NOT_FOUND", "", "nope-1"},
		"ask no sweep":       {"POST", "/v1/sweeps/nope-1:ask", `{}`, 404, "NOT_FOUND", "", "nope-1"},
		"tell no trial":      {"POST", "/v1/sweeps/digits-1/trials/9:tell", `{}`, 404, "NOT_FOUND", "", "digits-1/9"},
		"tell step below 0":  {"POST", "/v1/sweeps/digits-1/trials/1:tell", `{"reports":[{"step":-1}]}`, 400, "INVALID_ARGUMENT", "reports", "-1"},
		"too large":          {"POST", "/v1/sweeps", `{"x":"` + strings.Repeat("x", 5<<20) + `"}`, 400, "INVALID_ARGUMENT", "", "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp, b := h.call(t, tc.method, tc.path, tc.body)
			e := decodeError(t, b)
			if resp.StatusCode != tc.status || e.Code != tc.code || e.Field != tc.field || !strings.Contains(e.Message, tc.says) {
				t.Errorf("status %d, %+v; want %d, %s, field %q, saying %q", resp.StatusCode, e, tc.status, tc.code,
					tc.field, tc.says)
			}
		})
	}
}

func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	open := serve(t, nil)
	tokens := serve(t, func(c *Config) { c.Tokens = testTokens(t) })
	const body = `{"command":"SWEEP_COMMAND_PAUSE"}`
	for name, tc := range map[string]struct {
		h       *testServer
		method  string
		headers []string
		want    int
	}{
		"no browser":               {open, "POST", nil, 200},
		"own page":                 {open, "POST", []string{"Origin", open.URL(), "Sec-Fetch-Site", "same-origin"}, 200},
		"foreign page":             {open, "POST", []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, 403},
		"foreign page, old":        {open, "POST", []string{"Origin", "https://evil.example"}, 403},
		"foreign page as text":     {open, "POST", []string{"Origin", "https://evil.example", "Content-Type", "text/plain"}, 403},
		"another port":             {open, "POST", []string{"Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site"}, 403},
		"rebound name":             {open, "POST", []string{"Host", "evil.example", "Origin", "http://evil.example"}, 403},
		"rebound name reads":       {open, "GET", []string{"Host", "evil.example:7700"}, 403},
		"localhost":                {open, "GET", []string{"Host", "localhost:7700"}, 200},
		"IPv6":                     {open, "GET", []string{"Host", "[::1]:7700"}, 200},
		"tokens, any name":         {tokens, "GET", []string{"Host", "outbid.example", "Authorization", "Bearer " + token("root")}, 200},
		"tokens, foreign page":     {tokens, "POST", []string{"Origin", "https://evil.example", "Authorization", "Bearer " + token("root")}, 403},
		"tokens, rebound, without": {tokens, "GET", []string{"Host", "evil.example"}, 401},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.h.control.sweeps["digits-1"] == nil {
				tc.h.control.add("digits-1", "vision", 1)
			}
			path, send := "/v1/sweeps/digits-1", ""
			if tc.method == "POST" {
				path, send = path+":control", body
			}
			resp, b := tc.h.call(t, tc.method, path, send, tc.headers...)
			if resp.StatusCode != tc.want {
				t.Errorf("status %d, want %d: %s", resp.StatusCode, tc.want, b)
			}
			if tc.want != 200 {
				decodeError(t, b)
			}
		})
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 5)
	h.control.nodes = []*outbidv1.Node{{
		Info: &outbidv1.NodeInfo{Name: "n1", Devices: []*outbidv1.Device{
			{Index: 0, Type: "v100"}, {Index: 1, Type: "v100"}, {Index: 2, Type: "cpu"},
		}},
		State: outbidv1.NodeState_NODE_STATE_UP,
		Uses:  []*outbidv1.DeviceUse{{Device: 1, Fork: &outbidv1.ForkRef{Sweep: "digits-1"}}},
	}}
	for path, says := range map[string]string{
		"/": `"/v1/sweeps"`, "/healthz": `"ok"`, "/readyz": `"ready"`,
		"/metrics": `outbid_devices{type="v100",use="held"} 1`, "/v1/nodes": `"NODE_STATE_UP"`, "/v1/server": `"v0"`,
	} {
		resp, b := h.call(t, "GET", path, "")
		if resp.StatusCode != http.StatusOK || !bytes.Contains(b, []byte(says)) {
			t.Errorf("%s: status %d: %s", path, resp.StatusCode, b)
		}
	}
	_, b := h.call(t, "GET", "/metrics", "")
	for _, line := range []string{
		`outbid_sweeps{state="running"} 1`, `outbid_devices{type="cpu",use="free"} 1`,
		`outbid_api_calls_total{code="OK",method="ListNodes"} 1`,
	} {
		if !bytes.Contains(b, []byte(line+"\n")) {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	h.control.standby = true
	if resp, b := h.call(t, "GET", "/readyz", ""); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/readyz of a standby: status %d: %s", resp.StatusCode, b)
	}
}
