package endtoend

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/outbid-dev/outbid/orchestrator/bus"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// dialMany opens separate connections, so that watchers do not share one.
func (s *server) dialMany(n int) []outbidv1.OutbidServiceClient {
	s.t.Helper()
	var clients []outbidv1.OutbidServiceClient
	for range n {
		conn, err := grpc.NewClient(strings.TrimPrefix(s.Info.API, "http://"),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = conn.Close() })
		clients = append(clients, outbidv1.NewOutbidServiceClient(conn))
	}
	return clients
}

// admin returns a NATS user with all permissions, made with the server's keys.
func (s *server) admin() *identity.Credentials {
	s.t.Helper()
	keys, err := identity.OpenKeys(s.Info.Keys)
	if err != nil {
		s.t.Fatal(err)
	}
	who, err := keys.Orchestrator()
	if err != nil {
		s.t.Fatal(err)
	}
	return who
}

// streams returns JetStream of a server with embedded NATS.
func (s *server) streams() jetstream.JetStream {
	s.t.Helper()
	nc, err := bus.Connect(context.Background(), bus.ConnConfig{URL: s.Info.NATS, User: s.admin()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		s.t.Fatal(err)
	}
	return js
}

// consumers counts the consumers of all streams.
func consumers(t *testing.T, js jetstream.JetStream) int {
	t.Helper()
	n := 0
	list := js.ListStreams(t.Context())
	for info := range list.Info() {
		n += info.State.Consumers
	}
	if err := list.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// crowd is watchers of one sweep.
type crowd struct {
	t       *testing.T
	sweep   string
	stop    context.CancelFunc
	all     sync.WaitGroup
	updates atomic.Int64
	// told counts the reports that each watcher has received.
	told []atomic.Int64
}

// watch starts to watch a sweep with all of its reports, which must arrive in order.
func (s *server) watch(t *testing.T, sweep string, watchers int) *crowd {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	c := &crowd{t: t, sweep: sweep, stop: stop, told: make([]atomic.Int64, watchers)}
	clients := s.dialMany(min(watchers, 20))
	for i := range watchers {
		c.all.Go(func() { c.follow(ctx, clients[i%len(clients)], &c.told[i]) })
	}
	return c
}

func (c *crowd) follow(ctx context.Context, client outbidv1.OutbidServiceClient, told *atomic.Int64) {
	stream, err := client.WatchSweep(ctx, &outbidv1.WatchSweepRequest{Sweep: c.sweep, Reports: true})
	for err == nil {
		var m *outbidv1.WatchSweepResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		c.updates.Add(1)
		for _, r := range m.GetReports() {
			if n := told.Add(1); n != r.GetReport().GetStep() {
				c.t.Errorf("report %d is of step %d", n, r.GetReport().GetStep())
				return
			}
		}
	}
	if ctx.Err() == nil {
		c.t.Errorf("a watcher was cut off: %v", err)
	}
}

// least returns the number of reports of the slowest watcher.
func (c *crowd) least() int64 {
	least := c.told[0].Load()
	for i := range c.told {
		least = min(least, c.told[i].Load())
	}
	return least
}

// TestManyWatchersLeaveTheServerAlone is also a soak test:
//
//	OUTBID_WATCHERS=1000 OUTBID_WATCH_SECONDS=600 go test ./orchestrator/endtoend -v -timeout 30m \
//	    -run TestManyWatchersLeaveTheServerAlone
func TestManyWatchersLeaveTheServerAlone(t *testing.T) {
	t.Parallel()
	watchers, seconds := number(t, "OUTBID_WATCHERS", 300), number(t, "OUTBID_WATCH_SECONDS", 3)
	dir := t.TempDir()
	args := []string{"serve", "--nats-listen", "127.0.0.1:0", "--store", filepath.Join(dir, "store")}
	s := serve(t, dir, args...)
	js := s.streams()
	busy := s.external("busy", 1)
	crowd := s.watch(t, busy.sweep, watchers)
	said := make(chan int64, 1)
	talk, hush := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
	defer hush()
	go func() { said <- busy.talk(talk, t) }()
	var worst time.Duration
	for talk.Err() == nil {
		if n := consumers(t, js); n > 4 { // pending reads
			t.Errorf("there are %d consumers", n)
		}
		began := time.Now()
		if _, err := s.ListRounds(t.Context(), &outbidv1.ListRoundsRequest{}); err != nil {
			t.Error(err)
		}
		if _, err := s.ListSweeps(t.Context(), &outbidv1.ListSweepsRequest{}); err != nil {
			t.Error(err)
		}
		worst = max(worst, time.Since(began))
		pause, done := context.WithTimeout(talk, 100*time.Millisecond)
		<-pause.Done()
		done()
	}
	reports := <-said
	poll(t, "every watcher to hear of every report", func() bool { return crowd.least() == reports })
	t.Logf("%d watchers for %d s: %d reports, %d updates; rounds and sweeps listed in %s at worst; %d MiB", watchers, seconds,
		reports, crowd.updates.Load(), worst.Round(time.Millisecond), s.memory())
	crowd.stop()
	crowd.all.Wait()
	s.kill()
	if text, _ := s.out.text(); strings.Contains(text, "lost the lead") {
		t.Errorf("the leader lost its lease:\n%s", text)
	}
	began := time.Now()
	s = serve(t, dir, args...)
	took := time.Since(began)
	t.Logf("ready %s after kill -9", took.Round(time.Millisecond))
	if seconds >= 60 && took > 3*time.Second {
		t.Errorf("it was back after %s only", took)
	}
	if n := consumers(t, s.streams()); n > 2 { // the server follows secrets and API tokens
		t.Errorf("%d consumers are left", n)
	}
	if steps := s.sweep(busy.sweep).GetSteps(); steps != reports {
		t.Errorf("%d reports after the restart, want %d", steps, reports)
	}
}

// talk reports a hundred steps per second of one trial until ctx ends, and returns how many.
func (c client) talk(ctx context.Context, t *testing.T) int64 {
	asked, err := c.AskTrial(t.Context(), &outbidv1.AskTrialRequest{Sweep: c.sweep, Client: "talk"})
	if err != nil {
		t.Error(err)
		return 0
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for step := int64(0); ; step++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return step
		}
		_, err := c.TellTrial(t.Context(), &outbidv1.TellTrialRequest{
			Sweep: c.sweep, Trial: asked.GetTrial().GetNumber(), LeaseId: asked.GetLeaseId(),
			Reports: []*outbidv1.Report{{Step: step + 1, Metrics: map[string]float64{"loss": 1 / float64(step+1)}}},
		})
		if err != nil {
			t.Error(err)
			return step
		}
	}
}
