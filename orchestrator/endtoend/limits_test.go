package endtoend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// smallLimits has tenants that each reach one limit.
const smallLimits = `tenants:
  few-sweeps: {sweeps: 1}
  few-submits: {submits_per_minute: 1}
  short-specs: {spec_bytes: 1MiB}
  slow-reports: {report_rate: 1KiB}
  few-reports: {report_bytes: 1MiB}
  few-streams: {streams: 2}
  small-checkpoints: {checkpoint_bytes: 1MiB}
  small-functions: {blob_bytes: 1KiB}
`

// TestLimitsOfTenants (H3) checks that a tenant's use of shared resources is limited. Each limit is reached separately,
// with a clear error, and does not affect other tenants.
func TestLimitsOfTenants(t *testing.T) {
	t.Parallel()
	c := newLimited(t)
	for tenant, reach := range map[string]func(*limited) error{
		"few-sweeps":        (*limited).submitTwice,
		"few-submits":       (*limited).submitTwice,
		"short-specs":       (*limited).submitLong,
		"slow-reports":      (*limited).tellMuch,
		"few-streams":       (*limited).watchMuch,
		"small-functions":   (*limited).putFunction,
		"few-reports":       (*limited).fillReports,
		"small-checkpoints": (*limited).fillCheckpoints,
	} {
		limit, _, _ := strings.Cut(smallLimits[strings.Index(smallLimits, tenant+": {")+len(tenant)+3:], ":")
		err := reach(c.as(tenant))
		if err == nil || !strings.Contains(err.Error(), limit) {
			t.Errorf("%s: the error does not name the limit %s: %v", tenant, limit, err)
		}
		// The tenant sees its limits and its use.
		r, err := c.as(tenant).GetTenant(t.Context(), &outbidv1.GetTenantRequest{Tenant: tenant})
		if err != nil {
			t.Errorf("%s: %v", tenant, err)
		}
		shown := false
		for _, l := range r.GetTenant().GetLimits() {
			shown = shown || l.GetName() == limit && l.GetReached() != ""
		}
		if !shown {
			t.Errorf("%s: %s is not shown: %v", tenant, limit, r.GetTenant().GetLimits())
		}
	}
	c.stillTrains()
	c.stop()
}

// limited is a server with small limits and a token for each tenant.
type limited struct {
	*containment
	tokens map[string]string
	tenant string
}

func newLimited(t *testing.T) *limited {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run each trial as a separate user, as a server with tokens does")
	}
	dir := t.TempDir()
	file, tokens := filepath.Join(dir, "limits.yaml"), filepath.Join(dir, "tokens")
	if err := os.WriteFile(file, []byte(smallLimits), 0o600); err != nil {
		t.Fatal(err)
	}
	l := &limited{tokens: map[string]string{"": token(t, dir, "--name", "root", "--role", "admin")}}
	for line := range strings.Lines(smallLimits) {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), ": {"); ok {
			l.tokens[name] = token(t, dir, "--name", name, "--tenant", name)
		}
	}
	s := serve(t, dir, "up", "--devices", "cpu:3", "--policy", "drf", "--limits", file, "--tokens", tokens)
	s.OutbidServiceClient = l.client(s)
	l.containment = containOn(t, dir, s)
	return l
}

// token adds a token to the file tokens in a directory, and returns it.
func token(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, code := tool(t, dir, append([]string{"token", "new", "--file", filepath.Join(dir, "tokens")}, args...)...)
	for word := range strings.FieldsSeq(out) {
		if strings.HasPrefix(word, "outbid_") {
			return word
		}
	}
	t.Fatalf("no token, and exit code %d: %s", code, out)
	return ""
}

// client returns a client that calls as the tenant; "" means an admin.
func (c *limited) client(s *server) outbidv1.OutbidServiceClient {
	return s.dial(strings.TrimPrefix(s.Info.API, "http://"), grpc.WithPerRPCCredentials(bearer(c.tokens[c.tenant])))
}

// as returns c for calls as a tenant.
func (c *limited) as(tenant string) *limited {
	other, inner, s := *c, *c.containment, *c.server
	other.tenant, other.containment, inner.server = tenant, &inner, &s
	s.OutbidServiceClient = other.client(&s)
	return &other
}

// bearer is the token of calls.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: the connection stays on this machine.
func (bearer) RequireTransportSecurity() bool { return false }

// told returns a small external sweep of the tenant.
func (c *limited) told(name string) *outbidv1.SweepSpec {
	spec := job{name: name, tuner: random(0), trials: 1000}.bare()
	spec.Tenant, spec.Workload = c.tenant, &outbidv1.SweepSpec_External{External: &outbidv1.External{}}
	return spec
}

func (c *limited) submitTwice() error {
	c.submit(c.told("first"))
	_, err := c.SubmitSweep(c.t.Context(), &outbidv1.SubmitSweepRequest{Spec: c.told("second")})
	c.exhausted(err, c.tenant == "few-submits")
	if c.tenant == "few-submits" {
		c.tooMany(c.told("third"))
	}
	return err
}

// exhausted checks that an API error names the limit, and when to retry.
func (c *limited) exhausted(err error, again bool) {
	c.t.Helper()
	s := status.Convert(err)
	if s.Code() != codes.ResourceExhausted {
		c.t.Errorf("%s: %v", c.tenant, err)
	}
	quota, retry := false, false
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.QuotaFailure:
			quota = len(d.GetViolations()) == 1
		case *errdetails.RetryInfo:
			retry = d.GetRetryDelay().AsDuration() > 0
		}
	}
	if !quota || again && !retry {
		c.t.Errorf("%s: details %v", c.tenant, s.Details())
	}
}

// tooMany submits through REST, which answers 429.
func (c *limited) tooMany(spec *outbidv1.SweepSpec) {
	c.t.Helper()
	body, err := protojson.Marshal(&outbidv1.SubmitSweepRequest{Spec: spec})
	if err != nil {
		c.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.Info.API+"/v1/sweeps", strings.NewReader(string(body)))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.tokens[c.tenant])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	after, nan := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || resp.StatusCode != http.StatusTooManyRequests || nan != nil || after < 1 || after > 60 {
		c.t.Errorf("%s, Retry-After %q: %s (%v)", resp.Status, resp.Header.Get("Retry-After"), text, err)
	}
}

func (c *limited) submitLong() error {
	for i := range 30 {
		spec := c.told(fmt.Sprint("long", i))
		spec.Space["text"] = &outbidv1.Parameter{Kind: &outbidv1.Parameter_Constant{Constant: structpb.NewStringValue(strings.Repeat("v", 50_000))}}
		if _, err := c.SubmitSweep(c.t.Context(), &outbidv1.SubmitSweepRequest{Spec: spec}); err != nil {
			c.exhausted(err, false)
			return err
		}
	}
	return nil
}

// running reports whether a sweep is running and not about to end.
func running(sw *outbidv1.Sweep) bool {
	return sw.GetState() == outbidv1.SweepState_SWEEP_STATE_RUNNING
}

// bigReport returns a report of about the given size.
func bigReport(step int64, bytes int) *outbidv1.Report {
	return &outbidv1.Report{Step: step, Metrics: map[string]float64{"loss": 1}, Attributes: map[string]string{"text": strconv.Quote(strings.Repeat("t", bytes))}}
}

// tellUntil sends reports of 50 KB each until one is rejected.
func (c *limited) tellUntil(id string, most int) error {
	asked, err := c.AskTrial(c.t.Context(), &outbidv1.AskTrialRequest{Sweep: id, Client: "test"})
	if err != nil {
		return err
	}
	for step := range most {
		_, err := c.TellTrial(c.t.Context(), &outbidv1.TellTrialRequest{
			Sweep: id, Trial: asked.GetTrial().GetNumber(), LeaseId: asked.GetLeaseId(), Reports: []*outbidv1.Report{bigReport(int64(step)+1, 50_000)},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// tellMuch reports more than the rate and its burst allow.
func (c *limited) tellMuch() error {
	err := c.tellUntil(c.submit(c.told("told")), 100)
	c.exhausted(err, true)
	return err
}

func (c *limited) watchMuch() error {
	id := c.submit(c.told("watched"))
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	for range 3 {
		stream, err := c.WatchSweep(ctx, &outbidv1.WatchSweepRequest{Sweep: id})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			c.exhausted(err, false)
			return err
		}
	}
	return nil
}

// putFunction stores a function that exceeds the tenant's limit.
func (c *limited) putFunction() error {
	data := make([]byte, 5000)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	w, err := c.PutBlob(c.t.Context())
	if err == nil {
		err = w.Send(&outbidv1.PutBlobRequest{Data: data})
	}
	if err == nil || errors.Is(err, io.EOF) {
		_, err = w.CloseAndRecv()
	}
	c.exhausted(err, false)
	return err
}

// fillReports makes one sweep exceed its limit of reports: it is stopped with that reason.
func (c *limited) fillReports() error {
	id := c.submit(c.told("filled"))
	_ = c.tellUntil(id, 100)
	var sw *outbidv1.Sweep
	poll(c.t, "the end of "+id, func() bool { sw = c.sweep(id); return !running(sw) })
	return fmt.Errorf("%s", sw.GetReason())
}

// fillCheckpoints saves more than the tenant's limit: the checkpoint waits until the limit is raised.
func (c *limited) fillCheckpoints() error {
	id := c.run("saves", `for i in 1 2 3 4 5; do head -c 400000 /dev/urandom > ckpt; echo '{"step": '$i', "loss": 1, "checkpoint": "'$PWD/ckpt'"}' >> $OUTBID_REPORT; sleep .3; done`,
		func(sp *outbidv1.SweepSpec) {
			sp.Tenant, sp.Tuner, sp.Checkpoints = c.tenant, random(5), &outbidv1.Checkpoints{All: true}
		})
	var waits string
	poll(c.t, "a checkpoint that waits", func() bool {
		for _, n := range c.sweep(id).GetNotes() {
			if strings.Contains(n.GetText(), "checkpoint_bytes") {
				waits = n.GetText()
			}
		}
		return waits != ""
	})
	if sw := c.sweep(id); !running(sw) {
		c.t.Errorf("%s does not wait: %s", id, sw.GetReason())
	}
	_, err := c.as("").SetTenant(c.t.Context(), &outbidv1.SetTenantRequest{Tenant: &outbidv1.Tenant{
		Name: c.tenant, Limits: &outbidv1.TenantLimits{CheckpointBytes: "1GiB"},
	}})
	if err != nil {
		c.t.Fatal(err)
	}
	began := time.Now()
	sw := c.mustDone(id)
	c.t.Logf("with room %s was done after %s", id, time.Since(began).Round(time.Millisecond))
	if n := len(c.trials(id)[0].GetCheckpoints()); n == 0 || sw.GetCounts().GetFailed() > 0 {
		c.t.Errorf("it has %d checkpoints: %v", n, sw.GetCounts())
	}
	return fmt.Errorf("%s", waits)
}
