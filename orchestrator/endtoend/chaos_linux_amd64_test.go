package endtoend

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/identity"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// chaos is a cluster of three NATS servers, two servers, one of them a standby, and three workers, each in a separate
// process. Faults of the network, the processes, the clocks and the disks happen while trials train, a client reports,
// and users submit and end sweeps.
type chaos struct {
	*torment
	network *network
	users   *callHistory
	// nats are the names of the NATS servers, others those of the servers and workers.
	nats, others []string
	// ahead is how far the clock of a server is ahead when it starts again.
	ahead map[string]time.Duration
	// disk is the directory of the NATS server with a small disk.
	disk string
}

// TestChaos lasts for OUTBID_CHAOS; OUTBID_CHAOS_SEED determines the faults.
func TestChaos(t *testing.T) {
	text := os.Getenv("OUTBID_CHAOS")
	if text == "" {
		t.Skip("OUTBID_CHAOS is not set to a duration, as make test-chaos does")
	}
	lasts, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	seed := fromEnvironment(t, "OUTBID_CHAOS_SEED", rand.Uint64())
	t.Logf("OUTBID_CHAOS_SEED=%d", seed)
	c := newChaos(t, seed)
	healthy := c.healthy(lasts)
	told := c.tells("good")
	ctx, stop := context.WithCancel(context.Background())
	var users sync.WaitGroup
	for user := range 3 {
		rng := rand.New(rand.NewPCG(seed, uint64(user)))
		users.Go(func() { c.users.use(ctx, user, rng, c.clients) })
	}
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		c.disturb()
		<-time.After(time.Duration(c.rng.IntN(4000)) * time.Millisecond)
		c.raiseAll()
	}
	stop()
	users.Wait()
	t.Logf("what happened: %v; %d messages were lost and %d repeated", c.did, c.network.lost, c.network.twice)
	told.end()
	c.users.check(t)
	c.check(healthy, told)
}

func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	expectErrors(t, "") // what they say about faults is not the question here; panics are found by check
	m := &torment{
		t: t, rng: rand.New(rand.NewPCG(seed, 37)), dir: t.TempDir(), procs: map[string]*proc{}, starts: map[string]func() *proc{},
		locks: openDir(t), trainer: trojan(t, openDir(t)), did: map[string]int{}, lockTrials: true,
	}
	m.keys = filepath.Join(m.dir, "keys")
	c := &chaos{
		torment: m, network: newNetwork(t, seed), nats: []string{"n1", "n2", "n3"}, ahead: map[string]time.Duration{},
		users: &callHistory{began: time.Now(), ids: map[string]string{}, odd: map[string]int{}},
	}
	ports := freePorts(t, 8)
	c.startNATS(ports[:3], ports[3:6])
	for i, port := range ports[6:] {
		c.addServer(fmt.Sprintf("server-%d", i+1), port, ports[:3])
	}
	for _, name := range []string{"worker-a", "worker-b", "worker-c"} {
		c.addWorker(name, ports[:3])
	}
	m.must("all nodes", func(ctx context.Context, client outbidv1.OutbidServiceClient) error {
		r, err := client.ListNodes(ctx, &outbidv1.ListNodesRequest{})
		if err == nil && len(r.GetNodes()) < 3 {
			err = fmt.Errorf("%d nodes", len(r.GetNodes()))
		}
		return err
	})
	return c
}

// startNATS starts the NATS servers, which reach each other only through links. One has a small disk.
func (c *chaos) startNATS(clients, routes []int) {
	keys, err := identity.MakeKeys(c.keys)
	if err != nil {
		c.t.Fatal(err)
	}
	auth, err := keys.NATSConfig()
	if err != nil {
		c.t.Fatal(err)
	}
	for i, name := range c.nats {
		var others []string
		for j, other := range c.nats {
			if i != j {
				others = append(others, "nats-route://"+c.network.link(name, other, routes[j], false))
			}
		}
		conf := fmt.Sprintf(`server_name: %s
listen: 127.0.0.1:%d
jetstream { store_dir: %q, sync_interval: always, max_file_store: 4GB }
max_payload: 1MB
max_pending: 256MB
ping_interval: "2s"
ping_max: 2
write_deadline: "10s"
cluster { name: outbid, listen: 127.0.0.1:%d, advertise: "127.0.0.1:1", no_advertise: true, routes: [%s] }
%s`, name, clients[i], filepath.Join(c.dir, name), routes[i], strings.Join(others, ", "), auth)
		path := filepath.Join(c.dir, name+".conf")
		if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
			c.t.Fatal(err)
		}
		command := []string{natsServer(c.t), "--config", path}
		if name == "n3" {
			c.disk = filepath.Join(c.dir, name)
			c.mount(c.disk, 192<<20)
		}
		c.starts[name] = func() *proc { return startCommand(c.t, c.dir, command[0], command[1:]...) }
		c.rise(name)
	}
}

// mount mounts a small disk, which outlives the processes that use it.
func (c *chaos) mount(dir string, size int) {
	c.t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		c.t.Fatal(err)
	}
	if err := syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprint("size=", size)); err != nil {
		c.t.Skipf("this machine does not let a test mount a disk: %v", err)
	}
	c.t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

// urls returns the NATS URLs of a client, through its links.
func (c *chaos) urls(client string, ports []int) string {
	var all []string
	for i, name := range c.nats {
		all = append(all, "nats://"+c.network.link(client, name, ports[i], true))
	}
	c.others = append(c.others, client)
	return strings.Join(all, ",")
}

func (c *chaos) addServer(name string, port int, ports []int) {
	address, urls := fmt.Sprintf("127.0.0.1:%d", port), c.urls(name, ports)
	args := []string{
		"serve", "--nats", urls, "--nats-replicas", "3", "--standby", "--name", name, "--lease", "4s", "--keys", c.keys, "--policy", "drf",
		"--store", filepath.Join(c.dir, "store"), "--data", filepath.Join(c.dir, name), "--api", address,
	}
	c.starts[name] = func() *proc {
		if ahead := c.ahead[name]; ahead != 0 {
			return startWithClock(c.t, c.dir, ahead, args...)
		}
		return start(c.t, c.dir, args...)
	}
	c.rise(name)
	c.clients = append(c.clients, c.procs[name].dial(address))
}

func (c *chaos) addWorker(name string, ports []int) {
	urls := c.urls(name, ports)
	c.starts[name] = func() *proc {
		return start(c.t, c.dir, "worker", "--nats", urls, "--keys", c.keys, "--name", name, "--devices", "cpu:2",
			"--dir", filepath.Join(c.dir, "work-"+name), "--store", filepath.Join(c.dir, "store"))
	}
	c.rise(name)
}

// fault is something that is wrong for a while.
type fault struct {
	name    string
	longest time.Duration
	happen  func(c *chaos) (mend func())
}

// disturb makes one or two things go wrong at the same time, and mends them.
func (c *chaos) disturb() {
	all := faults()
	var mends []func()
	longest := time.Duration(0)
	for range 1 + c.rng.IntN(3)/2 {
		f := all[c.rng.IntN(len(all))]
		c.did[f.name]++
		c.t.Logf("%s: %s", time.Now().Format("15:04:05.000"), f.name)
		mends = append(mends, f.happen(c))
		longest = max(longest, f.longest)
	}
	<-time.After(time.Duration(c.rng.Int64N(int64(longest))))
	for _, mend := range slices.Backward(mends) {
		mend()
	}
	c.t.Logf("%s: mended", time.Now().Format("15:04:05.000"))
}

func faults() []fault {
	return []fault{
		{"a NATS server is cut off", 15 * time.Second, func(c *chaos) func() { return c.cut(c.any(c.nats), c.nats, true, true) }},
		{"a NATS server is not heard", 15 * time.Second, func(c *chaos) func() { return c.cut(c.any(c.nats), c.nats, true, false) }},
		{"a NATS server does not hear", 15 * time.Second, func(c *chaos) func() { return c.cut(c.any(c.nats), c.nats, false, true) }},
		{"two NATS servers do not reach each other", 15 * time.Second, func(c *chaos) func() {
			a := c.any(c.nats)
			return c.cut(a, []string{c.any(slices.DeleteFunc(slices.Clone(c.nats), func(n string) bool { return n == a }))}, true, true)
		}},
		{"a client is cut off", 12 * time.Second, func(c *chaos) func() { return c.cut(c.any(c.others), c.nats, true, true) }},
		{"a client is not heard", 12 * time.Second, func(c *chaos) func() { return c.cut(c.any(c.others), c.nats, true, false) }},
		{"a client does not hear", 12 * time.Second, func(c *chaos) func() { return c.cut(c.any(c.others), c.nats, false, true) }},
		{"a partition", 15 * time.Second, (*chaos).split},
		{"a connection flaps", 12 * time.Second, (*chaos).flap},
		{"messages are lost and repeated", 8 * time.Second, (*chaos).corrupt},
		{"a process pauses", 12 * time.Second, func(c *chaos) func() { return c.stop(c.any(append(slices.Clone(c.nats), c.others...))) }},
		{"a NATS server is slow", 12 * time.Second, (*chaos).slow},
		{"a process is killed", 5 * time.Second, func(c *chaos) func() { return c.killed(c.any(append(slices.Clone(c.nats), c.others...))) }},
		{"two NATS servers are killed", 8 * time.Second, func(c *chaos) func() {
			first := c.rng.IntN(3)
			a, b := c.killed(c.nats[first]), c.killed(c.nats[(first+1)%3])
			return func() { a(); b() }
		}},
		{"a clock jumps", 3 * time.Second, (*chaos).jump},
		{"a disk is full", 8 * time.Second, (*chaos).fill},
	}
}

func (c *chaos) any(of []string) string { return of[c.rng.IntN(len(of))] }

func (c *chaos) cut(party string, others []string, sends, receives bool) func() {
	c.t.Logf("%s, from %v: sends %t, receives %t", party, others, sends, receives)
	c.network.isolate(party, others, sends, receives, true)
	return func() { c.network.isolate(party, others, sends, receives, false) }
}

// split separates a NATS server with a server and a worker from the rest. Only one side has a majority of NATS servers.
func (c *chaos) split() func() {
	inside := []string{c.any(c.nats), c.any([]string{"server-1", "server-2"}), c.any([]string{"worker-a", "worker-b", "worker-c"})}
	outside := slices.DeleteFunc(append(slices.Clone(c.nats), c.others...), func(n string) bool { return slices.Contains(inside, n) })
	c.t.Logf("%v are separate", inside)
	set := func(stop bool) {
		for _, a := range inside {
			c.network.isolate(a, outside, true, true, stop)
		}
	}
	set(true)
	return func() { set(false) }
}

// repeatedly does something concurrently with the test, until the returned function is called.
func repeatedly(every time.Duration, do func(odd bool)) (stop func()) {
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for odd := true; ; odd = !odd {
			do(odd)
			select {
			case <-tick.C:
			case <-ending:
				do(false)
				return
			}
		}
	}()
	return func() { close(ending); <-ended }
}

func (c *chaos) flap() func() {
	party := c.any(append(slices.Clone(c.nats), c.others...))
	return repeatedly(time.Duration(100+c.rng.IntN(1500))*time.Millisecond, func(odd bool) {
		c.network.isolate(party, c.nats, true, true, odd)
	})
}

func (c *chaos) corrupt() func() {
	lose, repeat := 5+c.rng.IntN(60), 5+c.rng.IntN(60)
	c.network.set(func() { c.network.lose, c.network.repeat = lose, repeat })
	return func() { c.network.set(func() { c.network.lose, c.network.repeat = 0, 0 }) }
}

// signal sends a signal to a process if it still runs.
func (c *chaos) signal(name string, s syscall.Signal) {
	p := c.procs[name]
	select {
	case <-p.ended:
	default:
		_ = p.cmd.Process.Signal(s)
	}
}

func (c *chaos) stop(name string) func() {
	c.t.Logf("%s pauses", name)
	c.signal(name, syscall.SIGSTOP)
	return func() { c.signal(name, syscall.SIGCONT) }
}

// slow lets a NATS server run for a part of the time, as with a slow disk, for which it waits.
func (c *chaos) slow() func() {
	p := c.procs[c.any(c.nats)]
	return repeatedly(time.Duration(20+c.rng.IntN(200))*time.Millisecond, func(odd bool) {
		s := syscall.SIGCONT
		if odd {
			s = syscall.SIGSTOP
		}
		select {
		case <-p.ended:
		default:
			_ = p.cmd.Process.Signal(s)
		}
	})
}

func (c *chaos) killed(name string) func() {
	c.t.Logf("%s is killed", name)
	c.procs[name].kill()
	return func() {
		select {
		case <-c.procs[name].ended: // another fault may have started it again
			c.rise(name)
		default:
		}
	}
}

// jump starts a server again with another clock.
func (c *chaos) jump() func() {
	name := c.any([]string{"server-1", "server-2"})
	c.ahead[name] = []time.Duration{-time.Hour, 0, time.Hour}[c.rng.IntN(3)]
	return c.killed(name)
}

// fill fills the disk of a NATS server. It writes again only after a restart.
func (c *chaos) fill() func() {
	filler := filepath.Join(c.disk, "filler")
	_ = os.WriteFile(filler, make([]byte, 256<<20), 0o600) // it fills the disk
	return func() {
		_ = os.Remove(filler)
		c.killed("n3")()
	}
}
