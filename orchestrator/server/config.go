package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	bidders "github.com/outbid-dev/outbid/orchestrator/bidder/plugin"
	"github.com/outbid-dev/outbid/orchestrator/pods"
	"github.com/outbid-dev/outbid/orchestrator/policy/registry"
)

const (
	// DefaultLease is the default lease of a worker.
	DefaultLease = 15 * time.Second
	// MinLease is the shortest valid lease.
	MinLease = 3 * time.Second
	// DefaultLeadWait is several times longer than a dead leader's lease.
	DefaultLeadWait = 10 * time.Second
	// DefaultSamplers is the default number of sampler processes. Each uses about 60 MB, and is idle most of the time.
	DefaultSamplers = 32
)

// Config configures a server. Empty fields have the defaults documented here.
type Config struct {
	// Data is the directory for all data, created if missing. It is required.
	Data string
	// Store locates checkpoints and functions: a directory or s3://bucket/prefix?endpoint=URL; by default Data/store.
	Store string
	// API is the HOST:PORT of gRPC, REST, /healthz and /metrics; port 0 chooses a free port. It is required.
	API string
	// AnyPort chooses a free port if that of API is taken.
	AnyPort bool
	// Tokens is the file with the tokens of users and tools. Without it no token is required.
	Tokens string
	// OIDC lets people sign in with an OpenID provider, besides tokens.
	OIDC OIDCConfig
	// Limits is the YAML file with each tenant's limits. Without it the defaults of package limits apply.
	Limits string
	// Prices is the YAML file with the prices of devices. Without it the cost of usage is not known.
	Prices string
	// Samplers is the maximum number of tuners that run as separate processes; by default DefaultSamplers.
	Samplers int
	// TLSCert and TLSKey are PEM files with the certificate for API and NATS. Without them both are unencrypted.
	TLSCert, TLSKey string
	// NATS locates NATS; without a URL it runs in this process.
	NATS NATSConfig
	// Name is the server's unique name among standbys; by default the machine's name.
	Name string
	// Standby waits while another server leads. Without it Open fails after LeadWait.
	Standby bool
	// LeadWait is how long a server without Standby waits for the lease of a killed leader to expire; by default
	// DefaultLeadWait.
	LeadWait time.Duration
	// AcceptLedgerLoss starts the server although the ledger has lost acknowledged batches, and gives them up for good.
	// Without it Open fails with a *ledger.DamageError.
	AcceptLedgerLoss bool
	// Policy is the name of the policy, by default registry.Default. PolicyOptions are its options by name.
	Policy        string
	PolicyOptions map[string]string
	// Policies are the policies that there are; by default registry.Product. A program that embeds a server can add its
	// own.
	Policies registry.Registry
	// WhatIf simulates a ledger under other policies, for explanations. If nil, nothing is simulated.
	WhatIf WhatIf
	// Bidders maps each bidder's name to the command of its program.
	Bidders map[string][]string
	// BidderTimeout is how long a program may take to bid in a round; by default half a second.
	BidderTimeout time.Duration
	// LedgerKeep is how long the ledger stays in NATS before it moves to the store; by default DefaultLedgerKeep, at
	// least MinLedgerKeep, or KeepLedger.
	LedgerKeep time.Duration
	// Lease is how long a worker continues without contact to this server; by default DefaultLease, at least MinLease.
	Lease time.Duration
	// ReadyFile, if set, is a file to write once the server is ready, with the same content as Data/server.json.
	ReadyFile string
	// WhileClients records in those files that the server stops with its last client. The caller must use WhileClients.
	WhileClients bool
	// AuditLog, if not nil, receives each record of the audit as a line of JSON.
	AuditLog io.Writer
	// Workers run in this process.
	Workers []WorkerConfig
	// ServiceAccounts says which Kubernetes pods may join as workers; without Accounts none.
	ServiceAccounts pods.Source
	// LeaderLabel is a label, as NAME=VALUE, that the Kubernetes pod of this process has while this server leads.
	LeaderLabel string
	// Alone states that no other workers will join, so that a sweep that does not fit Workers is rejected.
	Alone bool

	// Reload makes the server read the files of Tokens, Limits, Prices and TLSCert again at once; nil for never. It also
	// reads them when they change.
	Reload <-chan struct{}

	// Version is the version of this build.
	Version string
	// Logger receives log messages; by default they are discarded.
	Logger *slog.Logger
	// Now reads the wall clock; by default time.Now.
	Now func() time.Time
	// Note receives messages for the user who starts the server, such as that another port was chosen. By default they
	// are logged.
	Note func(string)
}

// minBidderTimeout is less than a program needs to wake up on a busy machine.
const minBidderTimeout = 10 * time.Millisecond

// filled returns the configuration with its defaults, or a *FieldError.
func (c Config) filled() (Config, error) {
	if c.Data == "" {
		return c, badField("Data", "missing: name the directory for all data")
	}
	c.setDefaults()
	switch {
	case c.Lease < MinLease:
		return c, badValue("Lease", c.Lease.String(), "must be at least %s, or short interruptions would end trials", MinLease)
	case c.LedgerKeep != KeepLedger && c.LedgerKeep < MinLedgerKeep:
		return c, badValue("LedgerKeep", c.LedgerKeep.String(), "must be at least %s", MinLedgerKeep)
	case c.Samplers < 1:
		return c, badValue("Samplers", strconv.Itoa(c.Samplers), "want 1 or more")
	case c.Standby && c.NATS.URL == "":
		return c, badField("Standby", "requires NATS.URL: the NATS in this process does not serve another orchestrator")
	case c.TLSCert != "" && c.TLSKey == "":
		return c, badField("TLSKey", "missing: certificate and key belong together; give both, or create them with 'outbid tls new'")
	case c.TLSCert == "" && c.TLSKey != "":
		return c, badField("TLSCert", "missing: certificate and key belong together; give both, or create them with 'outbid tls new'")
	}
	if _, _, err := c.newPolicy(); err != nil {
		return c, err
	}
	if err := c.checkBidders(); err != nil {
		return c, err
	}
	if _, err := c.openPods(); err != nil {
		return c, err
	}
	if c.NATS.URL == "" {
		if err := c.NATS.checkListen(c.TLSCert != ""); err != nil {
			return c, err
		}
	}
	return c, c.fillWorkers()
}

// Check returns a *FieldError if the configuration is invalid. It reads the files that the configuration names, and
// connects to nothing.
func (c Config) Check() error {
	c, err := c.filled()
	if err != nil {
		return err
	}
	files := operatorFiles{log: c.Logger, now: c.Now}
	return files.read(&c, nil, c.Logger)
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
	if c.LedgerKeep == 0 {
		c.LedgerKeep = DefaultLedgerKeep
	}
	if c.Samplers == 0 {
		c.Samplers = DefaultSamplers
	}
	if c.Policies.Empty() {
		c.Policies = registry.Product()
	}
	if c.Policy == "" {
		c.Policy = registry.Default
	}
	if c.BidderTimeout == 0 {
		c.BidderTimeout = bidders.Usual().Deadline
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

func (c *Config) checkBidders() error {
	if c.BidderTimeout < minBidderTimeout {
		return badValue("BidderTimeout", c.BidderTimeout.String(), "want %s or more", minBidderTimeout)
	}
	for name, command := range c.Bidders {
		switch {
		case !regexp.MustCompile(`^[a-z]([a-z0-9-]{0,40}[a-z0-9])?$`).MatchString(name):
			return badValue("Bidders", name, "want a name of lower-case letters, digits and dashes")
		case len(command) == 0:
			return badValue("Bidders", name, "has no command")
		}
	}
	return nil
}

// fillWorkers checks the workers of this process and derives settings from their server.
func (c *Config) fillWorkers() error {
	c.Workers = slices.Clone(c.Workers)
	for i := range c.Workers {
		w := &c.Workers[i]
		if w.Name == "" {
			return badField("Workers.Name", "missing: each worker needs a unique name")
		}
		if slices.ContainsFunc(c.Workers[:i], func(o WorkerConfig) bool { return o.Name == w.Name }) {
			return badValue("Workers.Name", w.Name, "two workers have this name")
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

// nodeName converts a machine's name to a name that is valid in NATS and the ledger.
func nodeName(hostname string) string {
	name := regexp.MustCompile(`[^A-Za-z0-9_-]+`).ReplaceAllString(hostname, "-")
	if name = strings.Trim(name, "-"); name == "" {
		return "node"
	}
	return name
}

// NodeName returns the machine's name in a form that is valid in NATS and the ledger.
func NodeName() string {
	name, err := os.Hostname()
	if err != nil {
		return "node"
	}
	return nodeName(name)
}

// note sends a message to the user who starts the server.
func (c *Config) note(format string, args ...any) { c.Note(fmt.Sprintf(format, args...)) }
