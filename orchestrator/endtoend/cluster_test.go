package endtoend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// natsServer returns the binary of a NATS server, or skips the test.
func natsServer(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("OUTBID_TEST_NATS_SERVER"); path != "" {
		return path
	}
	path, err := exec.LookPath("nats-server")
	if err != nil {
		t.Skip("no nats-server: OUTBID_TEST_NATS_SERVER does not name one, as make test does, and there is none in PATH")
	}
	return path
}

// natsCluster is three NATS servers in separate processes.
type natsCluster struct {
	t     testing.TB
	dir   string
	keys  string
	names []string
	ports []int
	procs map[string]*proc
	who   *identity.Credentials
	nc    *nats.Conn
	js    jetstream.JetStream
}

// freePorts returns loopback ports that are free now.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port) //nolint:forcetypeassert // it is TCP
	}
	return ports
}

// portIsFree reports whether a loopback port is free now.
func portIsFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	return err == nil && l.Close() == nil
}

// startCluster starts three NATS servers that admit users signed by new keys.
func startCluster(t testing.TB) *natsCluster {
	t.Helper()
	dir := t.TempDir()
	c := &natsCluster{t: t, dir: dir, keys: filepath.Join(dir, "keys"), names: []string{"n1", "n2", "n3"}, procs: map[string]*proc{}}
	keys, err := identity.MakeKeys(c.keys)
	if err != nil {
		t.Fatal(err)
	}
	auth, err := keys.NATSConfig()
	if err != nil {
		t.Fatal(err)
	}
	c.ports = freePorts(t, 6)
	var routes []string
	for _, port := range c.ports[3:] {
		routes = append(routes, fmt.Sprintf("nats-route://127.0.0.1:%d", port))
	}
	for i, name := range c.names {
		conf := fmt.Sprintf(`server_name: %s
listen: 127.0.0.1:%d
jetstream { store_dir: %q, sync_interval: always }
max_payload: 8MB
max_pending: 256MB
ping_interval: "3s"
ping_max: 2
write_deadline: "10s"
cluster { name: outbid, listen: 127.0.0.1:%d, routes: [%s] }
%s`, name, c.ports[i], filepath.Join(dir, name), c.ports[3+i], strings.Join(routes, ", "), auth)
		if err := os.WriteFile(c.conf(name), []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		c.start(name)
	}
	who, err := keys.Orchestrator()
	if err != nil {
		t.Fatal(err)
	}
	c.who = who
	poll(t, "the cluster", func() bool {
		if c.nc != nil {
			c.nc.Close()
		}
		c.nc, err = bus.Connect(t.Context(), bus.ConnConfig{URL: c.urls(), User: who})
		if err != nil {
			return false
		}
		if c.js, err = jetstream.New(c.nc); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := c.js.AccountInfo(ctx)
		return err == nil
	})
	t.Cleanup(c.nc.Close)
	return c
}

func (c *natsCluster) conf(name string) string { return filepath.Join(c.dir, name+".conf") }

func (c *natsCluster) start(name string) {
	c.t.Helper()
	c.procs[name] = startCommand(c.t, c.dir, natsServer(c.t), "--config", c.conf(name))
}

// urls returns the URLs of all servers.
func (c *natsCluster) urls() string {
	var all []string
	for _, port := range c.ports[:3] {
		all = append(all, fmt.Sprintf("nats://127.0.0.1:%d", port))
	}
	return strings.Join(all, ",")
}

// leader returns the server that leads a stream, once all replicas are complete.
func (c *natsCluster) leader(stream string) string {
	c.t.Helper()
	leader := ""
	poll(c.t, "all replicas of "+stream, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s, err := c.js.Stream(ctx, stream)
		if err != nil || s.CachedInfo().Cluster == nil {
			return false
		}
		info := s.CachedInfo().Cluster
		leader = info.Leader
		return leader != "" && len(info.Replicas) == 2 &&
			!slices.ContainsFunc(info.Replicas, func(r *jetstream.PeerInfo) bool { return !r.Current || r.Offline })
	})
	return leader
}

// elected returns how long after a time a live server became the leader of a stream, by its log.
func (c *natsCluster) elected(stream string, after time.Time) time.Duration {
	for _, p := range c.procs {
		text, _ := p.out.text()
		for line := range strings.Lines(text) {
			if !strings.Contains(line, "new stream leader for") || !strings.Contains(line, "> "+stream+"'") {
				continue
			}
			_, stamp, _ := strings.Cut(line, "] ")
			if len(stamp) < len(natsTime) {
				continue
			}
			at, err := time.ParseInLocation(natsTime, stamp[:len(natsTime)], time.Local)
			if err == nil && at.After(after) {
				return at.Sub(after)
			}
		}
	}
	return 0
}

// natsTime is the time format of NATS's log.
const natsTime = "2006/01/02 15:04:05.000000"

// tells makes clients report without pauses, and records the times of the acknowledgements.
type tells struct {
	mu    sync.Mutex
	at    []time.Time
	group sync.WaitGroup
	stop  context.CancelFunc
	sweep string
	acked int
}

func (s *server) tellAll(clients int) *tells {
	s.t.Helper()
	c := s.external("stalls", clients)
	ctx, stop := context.WithCancel(context.Background())
	t := &tells{stop: stop, sweep: c.sweep}
	for i := range clients {
		asked, err := s.AskTrial(ctx, &outbidv1.AskTrialRequest{Sweep: c.sweep, Client: fmt.Sprint(i)})
		if err != nil {
			s.t.Fatal(err)
		}
		t.group.Go(func() {
			for step := int64(1); ctx.Err() == nil; {
				_, err := s.TellTrial(ctx, &outbidv1.TellTrialRequest{
					Sweep: c.sweep, Trial: asked.GetTrial().GetNumber(), LeaseId: asked.GetLeaseId(),
					Reports: []*outbidv1.Report{{Step: step, Metrics: map[string]float64{"loss": 1}}},
				})
				if err != nil {
					continue
				}
				t.mu.Lock()
				t.at, t.acked = append(t.at, time.Now()), t.acked+1
				t.mu.Unlock()
				step++
			}
		})
	}
	return t
}

// gap returns the longest time without acknowledgements around a time, and its end, once they have resumed.
func (t *tells) gap(tb testing.TB, around time.Time) (longest time.Duration, end time.Time) {
	tb.Helper()
	poll(tb, "acknowledgements", func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		return len(t.at) > 0 && t.at[len(t.at)-1].Sub(around) > 2*time.Second && t.since(around.Add(2*time.Second)) > 50
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	last := around
	for _, at := range t.at {
		if at.After(around) {
			if took := at.Sub(last); took > longest {
				longest, end = took, at
			}
			last = at
		}
	}
	t.at = nil
	return longest, end
}

// steady returns since when there were answers without a longer pause before a time: another leader may have been elected
// meanwhile.
func (t *tells) steady(before time.Time) (since time.Time) {
	const pause = 300 * time.Millisecond
	t.mu.Lock()
	defer t.mu.Unlock()
	last := time.Time{}
	for _, at := range t.at {
		if at.After(before) {
			break
		}
		if at.Sub(last) > pause {
			since = at
		}
		last = at
	}
	if before.Sub(last) > pause {
		since = before
	}
	t.at = nil
	return since
}

// since counts the acknowledgements after a time. mu must be held.
func (t *tells) since(after time.Time) int {
	i, _ := slices.BinarySearchFunc(t.at, after, time.Time.Compare)
	return len(t.at) - i
}

// bare makes a client without Outbid ask the leader of a stream all the time, and records the times of the answers. It
// publishes what the leader refuses, because it names a sequence number that the stream has not reached.
func (c *natsCluster) bare(stream, subject string) *tells {
	c.t.Helper()
	nc, err := nats.Connect(c.urls(), append(c.who.Options(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond),
		nats.ReconnectJitter(0, 0), nats.PingInterval(time.Second))...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	t := &tells{stop: stop}
	t.group.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			short, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
			_, err := js.Publish(short, subject, nil, jetstream.WithExpectStream(stream), jetstream.WithExpectLastSequence(1<<40), jetstream.WithRetryAttempts(0))
			cancel()
			if _, answered := errors.AsType[*jetstream.APIError](err); answered {
				t.mu.Lock()
				t.at = append(t.at, time.Now())
				t.mu.Unlock()
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	return t
}

// stalled is a cluster in which clients report, and a bare client of NATS asks the leader of the ledger's stream.
type stalled struct {
	*natsCluster
	server        *server
	clients, bare *tells
	stalls, ours  []time.Duration
}

func newStalled(t *testing.T) *stalled {
	t.Helper()
	c := startCluster(t)
	dir := t.TempDir()
	s := serveData(t, dir, "one", "serve", "--nats", c.urls(), "--nats-replicas", "3", "--keys", c.keys, "--data", filepath.Join(dir, "one"))
	return &stalled{natsCluster: c, server: s, clients: s.tellAll(4), bare: c.bare("OUTBID_LEDGER", "outbid.v1.ledger")}
}

// measure records how long nothing was acknowledged since a time, and the share of it in which NATS answered steadily.
func (s *stalled) measure(what string, since time.Time) {
	s.t.Helper()
	stall, end := s.clients.gap(s.t, since)
	nats := s.bare.steady(end)
	s.t.Logf("%s: nothing was acknowledged for %s; NATS answered steadily after %s; it first elected after %s", what, stall.Round(time.Millisecond),
		nats.Sub(since).Round(time.Millisecond), s.elected("OUTBID_LEDGER", since).Round(time.Millisecond))
	s.stalls, s.ours = append(s.stalls, stall), append(s.ours, end.Sub(nats))
}

// end checks that the server still runs and kept everything that it acknowledged.
func (s *stalled) end() {
	s.t.Helper()
	for _, t := range []*tells{s.clients, s.bare} {
		t.stop()
		t.group.Wait()
	}
	kept := 0
	for _, steps := range s.server.reported(s.clients.sweep) {
		kept += len(steps)
	}
	if kept < s.clients.acked {
		s.t.Errorf("%d reports are kept of %d that were acknowledged", kept, s.clients.acked)
	}
	for what, list := range map[string][]time.Duration{"stall": s.stalls, "Outbid's share": s.ours} {
		slices.Sort(list)
		s.t.Logf("%s: median %s, worst %s of %d", what, list[len(list)/2].Round(time.Millisecond), list[len(list)-1].Round(time.Millisecond), len(list))
	}
	s.server.stop()
}

// TestTheLedgersLeaderIsKilled checks that the other NATS servers continue when the leader of the ledger's stream is
// killed. Appends wait for NATS's election and little more. OUTBID_NATS_KILLS is the number of repetitions, for
// measurements.
func TestTheLedgersLeaderIsKilled(t *testing.T) {
	t.Parallel()
	s := newStalled(t)
	for range number(t, "OUTBID_NATS_KILLS", 1) {
		name := s.leader("OUTBID_LEDGER")
		s.leader("KV_OUTBID_LEADER")
		killed := time.Now()
		s.procs[name].kill()
		s.measure(name+" was killed", killed)
		s.start(name)
	}
	s.end()
}

// TestTwoNATSServersAreGone checks that the server waits while two of three NATS servers are gone, and continues by itself.
// OUTBID_NATS_GONE is for how many seconds, and OUTBID_NATS_KILLS how often.
func TestTwoNATSServersAreGone(t *testing.T) {
	t.Parallel()
	s := newStalled(t)
	gone := time.Duration(number(t, "OUTBID_NATS_GONE", 5)) * time.Second
	for range number(t, "OUTBID_NATS_KILLS", 1) {
		first := s.leader("OUTBID_LEDGER")
		s.leader("KV_OUTBID_LEADER")
		names := []string{first, s.names[(slices.Index(s.names, first)+1)%3]}
		killed := time.Now()
		for _, name := range names {
			s.procs[name].kill()
		}
		<-time.After(gone)
		for _, name := range names {
			s.start(name)
		}
		s.measure(fmt.Sprintf("%v were gone for %s", names, gone), killed)
	}
	s.end()
}
