package endtoend

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/outbid-dev/outbid/orchestrator/traceparent"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// clientSpan is the span of the program that submits a sweep.
const clientSpan = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// withEnv returns a test whose commands are run by the binary with further environment variables.
func withEnv(t testing.TB, variables ...string) testing.TB {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "outbid")
	text := fmt.Sprintf("#!/bin/sh\nexec env '%s' %s \"$@\"\n", strings.Join(variables, "' '"), path)
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	return withBinary{t, script}
}

// exported is a span that a collector received.
type exported struct {
	Trace   string `json:"traceId"`
	ID      string `json:"spanId"`
	Parent  string `json:"parentSpanId"`
	Name    string `json:"name"`
	Begin   int64  `json:"startTimeUnixNano,string"`
	End     int64  `json:"endTimeUnixNano,string"`
	Service string `json:"-"`
	Status  struct {
		Message string `json:"message"`
	} `json:"status"`
}

// collector is an OpenTelemetry Collector, whose spans are read from its exporter.
type collector struct {
	http, grpc string
	mu         sync.Mutex
	spans      []exported
}

// newCollector starts the collector that .ci/otelcol builds.
func newCollector(t *testing.T) *collector {
	t.Helper()
	path := os.Getenv("OUTBID_TEST_OTELCOL")
	if path == "" {
		t.Skip("no collector: OUTBID_TEST_OTELCOL does not name one")
	}
	c := &collector{http: freeAddress(t), grpc: freeAddress(t)}
	backend := httptest.NewServer(c)
	t.Cleanup(backend.Close)
	config := filepath.Join(t.TempDir(), "collector.yaml")
	text := fmt.Sprintf(`
receivers: {otlp: {protocols: {grpc: {endpoint: %q}, http: {endpoint: %q}}}}
exporters: {otlp_http: {endpoint: %q, encoding: json, compression: none}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [otlp_http]}}
`, c.grpc, c.http, backend.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	startCommand(t, t.TempDir(), path, "--config", config).until("Everything is ready")
	return c
}

// ServeHTTP implements the collector's backend.
func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var sent struct {
		ResourceSpans []struct {
			Resource struct {
				Attributes []struct {
					Key   string `json:"key"`
					Value struct {
						Text string `json:"stringValue"`
					} `json:"value"`
				} `json:"attributes"`
			} `json:"resource"`
			ScopeSpans []struct {
				Spans []exported `json:"spans"`
			} `json:"scopeSpans"`
		} `json:"resourceSpans"`
	}
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range sent.ResourceSpans {
		service := ""
		for _, a := range from.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.Text
			}
		}
		for _, scope := range from.ScopeSpans {
			for _, span := range scope.Spans {
				span.Service = service
				c.spans = append(c.spans, span)
			}
		}
	}
	_, _ = w.Write([]byte("{}"))
}

// received returns the spans of a trace, by name.
func (c *collector) received(trace string) map[string][]exported {
	c.mu.Lock()
	defer c.mu.Unlock()
	byName := map[string][]exported{}
	for _, span := range c.spans {
		if span.Trace == trace {
			byName[span.Name] = append(byName[span.Name], span)
		}
	}
	return byName
}

// TestTracesReachACollector follows a sweep from the client's span to the processes of its trials. These fail once and
// continue from their checkpoints, and the server is killed meanwhile.
func TestTracesReachACollector(t *testing.T) {
	t.Parallel()
	col := newCollector(t)
	c := newCluster(withEnv(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+col.http, "OTEL_BSP_SCHEDULE_DELAY=50"))
	serverEnv := c.t
	c.t = withEnv(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+col.grpc, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc")
	c.worker("w", "cpu:1", "")
	spec := job{name: "traced", mode: "crash", tuner: random(5), trials: 2}.spec(t, c.locks)
	program := spec.GetProgram()
	program.Command = append([]string{"sh", "-c", `echo "$TRACEPARENT" >> "$MARKS/spans"; exec "$0"`}, program.GetCommand()...)
	ctx := metadata.AppendToOutgoingContext(t.Context(), traceparent.Header, clientSpan)
	got, err := c.SubmitSweep(ctx, &outbidv1.SubmitSweepRequest{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	id := got.GetSweep().GetId()
	client, err := traceparent.Parse(clientSpan)
	if err != nil {
		t.Fatal(err)
	}
	poll(t, "the first spans", func() bool {
		spans := col.received(client.TraceID())
		return len(spans["SubmitSweep"]) == 1 && len(spans["decide"]) == 1
	})
	c.kill()
	c.t = serverEnv
	c.restart()
	c.mustDone(id)
	c.workers["w"].stop()
	c.stop()

	least := map[string]int{"SubmitSweep": 1, "sweep": 1, "trial": 2, "queue": 2, "decide": 4, "lease": 4, "process": 4, "start": 4, "restore": 2, "save": 4}
	poll(t, "all spans", func() bool {
		for name, n := range least {
			if len(col.received(client.TraceID())[name]) < n {
				return false
			}
		}
		return true
	})
	spans := col.received(client.TraceID())
	mustBeTree(t, spans, fmt.Sprintf("%x", client.ID))
	known, err := os.ReadFile(filepath.Join(c.locks, "spans"))
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, p := range spans["process"] {
		if line := fmt.Sprintf("00-%s-%s-01\n", p.Trace, p.ID); !strings.Contains(string(known), line) {
			t.Errorf("no trial has TRACEPARENT=%s; they have\n%s", line, known)
		}
		if strings.Contains(p.Status.Message, "out of luck") {
			failed++
		}
	}
	if failed != 2 {
		t.Errorf("%d processes failed: %+v", failed, spans["process"])
	}
}

// mustBeTree checks that each span has the right parent and service, and begins before it ends.
func mustBeTree(t *testing.T, spans map[string][]exported, root string) {
	t.Helper()
	parents := map[string]string{
		"SubmitSweep": "", "sweep": "SubmitSweep", "trial": "sweep", "queue": "trial", "decide": "trial", "lease": "trial",
		"process": "lease", "start": "process", "restore": "process", "save": "process",
	}
	worker := regexp.MustCompile("process|start|restore|save")
	ids := map[string]string{root: ""}
	for name, all := range spans {
		for _, s := range all {
			if _, twice := ids[s.ID]; twice {
				t.Errorf("two spans have the ID %s: %s and %s", s.ID, ids[s.ID], name)
			}
			ids[s.ID] = name
		}
	}
	for name, all := range spans {
		want, known := parents[name]
		for _, s := range all {
			if got, is := ids[s.Parent]; !known || !is || got != want {
				t.Errorf("the parent of %s is %q (%s), want %s", name, got, s.Parent, want)
			}
			if s.Begin > s.End {
				t.Errorf("%s begins %d ns after its end", name, s.Begin-s.End)
			}
			if service := map[bool]string{false: "outbid-server", true: "outbid-worker"}[worker.MatchString(name)]; s.Service != service {
				t.Errorf("%s is from %s, want %s", name, s.Service, service)
			}
		}
	}
}

// TestADeadCollectorDelaysNothing lets a server and a worker export more spans than their queues hold to an address that
// accepts connections and never answers.
func TestADeadCollectorDelaysNothing(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c := newCluster(withEnv(t, "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+l.Addr().String(), "OTEL_BSP_MAX_QUEUE_SIZE=4", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=2"))
	c.worker("w", "cpu:2", "")
	c.mustDone(c.submit(job{name: "dead", mode: "well", tuner: random(1), trials: 20, env: map[string]string{"PACE": "1ms"}}.spec(t, c.locks)))
	c.workers["w"].stop()
	c.stop()
}

// TestSweepsJoinTheTraceOfTheirCaller submits sweeps by each way with a traceparent, to a server without a collector.
func TestSweepsJoinTheTraceOfTheirCaller(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	spec := job{name: "joins", mode: "well", tuner: random(1), trials: 1}.spec(t, c.locks)
	spec.Traceparent = strings.Replace(clientSpan, "0af7", "ffff", 1) // of a sweep that this one was copied from
	body, err := protojson.Marshal(&outbidv1.SubmitSweepRequest{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]string{clientSpan: clientSpan, "": "", "00-xyz": ""} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.Info.API+"/v1/sweeps", strings.NewReader(string(body)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Traceparent", header)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := c.newest().GetSpec().GetTraceparent(); resp.StatusCode != http.StatusOK || got != want {
			t.Errorf("with the header %q the sweep has %q, want %q (%s)", header, got, want, resp.Status)
		}
	}
	file := writeFile(t, "name: file\nmetric: loss\nmode: min\nprogram: {command: [\"true\"]}\nspace: {lr: {float: {low: 1, high: 2}}}\nlimits: {trials: 1}\n")
	if out, code := tool(withEnv(t, "TRACEPARENT="+clientSpan), t.TempDir(), "submit", "--server", c.Info.API, file); code != 0 {
		t.Fatal(out)
	}
	if got := c.newest().GetSpec().GetTraceparent(); got != clientSpan {
		t.Errorf("the sweep of the command has %q", got)
	}
}

// newest returns the sweep that was submitted last.
func (s *server) newest() *outbidv1.Sweep {
	s.t.Helper()
	all, err := s.ListSweeps(s.t.Context(), &outbidv1.ListSweepsRequest{})
	if err != nil || len(all.GetSweeps()) == 0 {
		s.t.Fatal(err)
	}
	return s.sweep(all.GetSweeps()[0].GetId())
}
