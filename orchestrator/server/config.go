package server

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	agents "github.com/outbid-dev/outbid/orchestrator/agent/plugin"
	"github.com/outbid-dev/outbid/orchestrator/policy"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
)

const (
	// DefaultLease is the usual lease of a worker.
	DefaultLease = 15 * time.Second
	// MinLease is the shortest that is taken.
	MinLease = 3 * time.Second
	// DefaultLeadWait is several times what a leader's lease outlives it.
	DefaultLeadWait = 10 * time.Second
	// DefaultSamplers take about 60 MB each, and are idle most of the time.
	DefaultSamplers = 32
)

// Config says what a server is made of and where it listens. What is left empty takes the default that is said here.
type Config struct {
	// Data is the directory for everything that is kept, made if missing. It must be given.
	Data string
	// Store is where checkpoints and functions are: a directory or s3://bucket/prefix?endpoint=URL; by default Data/store.
	Store string
	// API is the HOST:PORT of gRPC, REST, /healthz and /metrics; port 0 takes a free one. It must be given.
	API string
	// AnyPort takes a free port for the API if the one of API is taken.
	AnyPort bool
	// Tokens is the file of the tokens of people and tools; without one nobody is asked for a token.
	Tokens string
	// Limits is the YAML file of what each tenant may take; without one the defaults of package limits hold.
	Limits string
	// Samplers is how many tuners run in processes of their own on this machine at once; by default DefaultSamplers.
	Samplers int
	// TLSCert and TLSKey are PEM files of the certificate of API and NATS; without them both are in the clear.
	TLSCert, TLSKey string
	// NATS says where NATS is; without a URL it runs in this process.
	NATS NATSConfig
	// Name is the orchestrator's among those that stand by; by default the machine's.
	Name string
	// Standby waits as long as another orchestrator leads. Without it Open fails once LeadWait has passed.
	Standby bool
	// LeadWait is how long one that does not stand by waits for the lease of a leader that was killed; by default
	// DefaultLeadWait.
	LeadWait time.Duration
	// AcceptLedgerLoss starts although the ledger has lost batches that were acknowledged, and gives them up for good. Without it Open
	// fails with a *ledger.DamageError.
	AcceptLedgerLoss bool
	// Policy is the name of the policy, by default the registry's; PolicyOptions are its options by name.
	Policy        string
	PolicyOptions map[string]string
	// Policies makes a policy by its name; by default registry.New. A program that embeds a server has policies of its own by it.
	Policies func(name string, options *policy.Options) (policy.Policy, error)
	// Agents are the programs that bid for sweeps which name them: the words of the command by the agent's name.
	Agents map[string][]string
	// AgentTimeout is how long an agent may take in a round before it loses its bid; by default half a second.
	AgentTimeout time.Duration
	// Lease is how long a worker may go on without word from this server; by default DefaultLease, at least MinLease.
	Lease time.Duration
	// ReadyFile is a file that says, as Data/server.json, where the server is once it is ready; none if empty.
	ReadyFile string
	// WhileClients says in those files that the server ends with its last client. See WhileClients, which sees to it.
	WhileClients bool
	// Workers run in this process.
	Workers []WorkerConfig
	// Alone says that no other workers are meant to join, so that a sweep that fits none of Workers is refused.
	Alone bool

	// Version is what this build calls itself.
	Version string
	// Logger takes what happens; by default nobody hears it.
	Logger *slog.Logger
	// Now reads the wall clock; by default time.Now.
	Now func() time.Time
	// Note hears what people who start a server should read at once, such as that another port was taken; by default it
	// is logged.
	Note func(string)
}

// minAgentTimeout is less than any program needs to be woken up on a busy machine.
const minAgentTimeout = 10 * time.Millisecond

// filled returns the configuration with its defaults, or a *FieldError.
func (c Config) filled() (Config, error) {
	if c.Data == "" {
		return c, badField("Data", "missing: name the directory for everything that is kept")
	}
	c.setDefaults()
	switch {
	case c.Lease < MinLease:
		return c, badValue("Lease", c.Lease.String(), "want %s or more, or every hiccup ends a trial", MinLease)
	case c.Samplers < 1:
		return c, badValue("Samplers", strconv.Itoa(c.Samplers), "want 1 or more")
	case c.Standby && c.NATS.URL == "":
		return c, badField("Standby", "the NATS in this process has no other orchestrator: name one that others use too")
	case c.TLSCert != "" && c.TLSKey == "":
		return c, badField("TLSKey", "missing: certificate and key belong together; give both, or make them with 'outbid tls new'")
	case c.TLSCert == "" && c.TLSKey != "":
		return c, badField("TLSCert", "missing: certificate and key belong together; give both, or make them with 'outbid tls new'")
	}
	if _, _, err := c.newPolicy(); err != nil {
		return c, err
	}
	if err := c.checkAgents(); err != nil {
		return c, err
	}
	if c.NATS.URL == "" {
		if err := c.NATS.checkListen(c.TLSCert != ""); err != nil {
			return c, err
		}
	}
	return c, c.fillWorkers()
}

func (c *Config) setDefaults() {
	if c.NATS.Keys == "" {
		c.NATS.Keys = KeysDir(c.Data)
	}
	if c.NATS.Listen == "" {
		c.NATS.Listen = "127.0.0.1:0"
	}
	if c.Name == "" {
		c.Name = NodeName()
	}
	if c.LeadWait == 0 {
		c.LeadWait = DefaultLeadWait
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.Samplers == 0 {
		c.Samplers = DefaultSamplers
	}
	if c.Policy == "" {
		c.Policy = registry.Default
	}
	if c.AgentTimeout == 0 {
		c.AgentTimeout = agents.Usual().Deadline
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Note == nil {
		log := c.Logger
		c.Note = func(line string) { log.Info(line) }
	}
}

func (c *Config) checkAgents() error {
	if c.AgentTimeout < minAgentTimeout {
		return badValue("AgentTimeout", c.AgentTimeout.String(), "want %s or more", minAgentTimeout)
	}
	for name, command := range c.Agents {
		switch {
		case !regexp.MustCompile(`^[a-z]([a-z0-9-]{0,40}[a-z0-9])?$`).MatchString(name):
			return badValue("Agents", name, "want a name of lower-case letters, digits and dashes")
		case len(command) == 0:
			return badValue("Agents", name, "has no command")
		}
	}
	return nil
}

// fillWorkers checks the workers of this process and fills in what follows from the server they belong to.
func (c *Config) fillWorkers() error {
	c.Workers = slices.Clone(c.Workers)
	for i := range c.Workers {
		w := &c.Workers[i]
		if w.Name == "" {
			return badField("Workers.Name", "missing: each worker has a name of its own")
		}
		if slices.ContainsFunc(c.Workers[:i], func(o WorkerConfig) bool { return o.Name == w.Name }) {
			return badValue("Workers.Name", w.Name, "two workers have it")
		}
		if err := w.checkDevices(c.Workers[:i]); err != nil {
			return err
		}
		if w.Dir == "" {
			w.Dir = filepath.Join(c.Data, "workers", w.Name)
		}
		var err error
		if w.Dir, err = filepath.Abs(w.Dir); err != nil {
			return badField("Workers.Dir", "%w", err)
		}
		if err := errors.Join(w.check(), w.checkLabels(), w.Trials.decide(c.Tokens != "")); err != nil {
			return err
		}
		w.secrets = []string{c.NATS.Keys, c.Tokens, c.TLSKey}
	}
	return nil
}

// nodeName makes a name that NATS and the ledger take from that of the machine.
func nodeName(hostname string) string {
	name := regexp.MustCompile(`[^A-Za-z0-9_-]+`).ReplaceAllString(hostname, "-")
	if name = strings.Trim(name, "-"); name == "" {
		return "node"
	}
	return name
}

// NodeName is this machine's name, as the bus and the ledger take it.
func NodeName() string {
	name, err := os.Hostname()
	if err != nil {
		return "node"
	}
	return nodeName(name)
}

// note tells who started the server.
func (s *Server) note(format string, args ...any) { s.cfg.Note(fmt.Sprintf(format, args...)) }
