package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/api"
	"github.com/outbid-dev/outbid/orchestrator/identity"
	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/usage"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// operatorFiles are the files of the operator that a server reads again when they change. Each is nil if it is not
// configured.
type operatorFiles struct {
	log *slog.Logger
	now func() time.Time
	// reload is Config.Reload.
	reload <-chan struct{}

	cert *api.Certificate
	// certs is the configuration for cert.
	certs  *tls.Config
	tokens *api.Tokens
	limits *api.Limits
	// reloaded is called with the kind of a file whose new content is used; it may be nil.
	reloaded func(kind string)
	// bindings are those of signIn, which lets people of an OpenID provider in.
	bindings *api.FileBindings
	signIn   *api.SignIn
	prices   *usage.PriceFile
}

// read loads the certificate and the tokens, and rejects an address that requires them if they are missing,
// before anything listens there.
func (c *operatorFiles) read(o *Config, keys *identity.Keys, log *slog.Logger) error {
	var err error
	if o.TLSCert != "" {
		if c.cert, err = api.LoadCertificate(o.TLSCert, o.TLSKey, c.now); err != nil {
			return badField("TLSCert", "%w", err)
		}
		c.certs = c.cert.Config()
	}
	if o.Tokens != "" {
		if c.tokens, err = api.LoadTokens(o.Tokens); err != nil {
			return badField("Tokens", "%w", err)
		}
	}
	if err := c.openSignIn(o.OIDC, keys); err != nil {
		return err
	}
	if o.Limits != "" {
		if c.limits, err = api.LoadLimits(o.Limits); err != nil {
			return badField("Limits", "%w", err)
		}
	}
	if o.Prices != "" {
		if c.prices, err = usage.OpenPrices(o.Prices); err != nil {
			return badField("Prices", "%w", err)
		}
	}
	for _, file := range openSecrets(o.NATS.Keys, o.Tokens, o.TLSKey) {
		log.Warn("every user of this machine can read or replace a secret; make it readable only by its owner", "file", file,
			"fix", "chmod go= "+file)
	}
	if err := api.CheckAddr(o.API, c.tokens != nil, c.certs != nil); err != nil {
		return badField("API", "%w", err)
	}
	return nil
}

// hasTokens reports whether users other than the one that runs the server submit sweeps: then tokens are required.
func (c *operatorFiles) hasTokens() bool { return c.tokens != nil }

// openSecrets returns the secrets, files and directories of files, that every user of this machine can read or replace. Who may
// list a directory does not matter: volumes of Kubernetes let everyone, and only their files are restricted.
func openSecrets(paths ...string) []string {
	var open []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		others, sticky := info.Mode().Perm()&0o007, info.Mode()&os.ModeSticky != 0
		switch {
		case !info.IsDir() && others != 0, info.IsDir() && others&0o002 != 0 && !sticky:
			open = append(open, path)
		case info.IsDir() && others&0o001 != 0:
			open = append(open, openSeeds(path)...)
		}
	}
	return open
}

// openSeeds returns the keys in a directory that every user can read or write.
func openSeeds(dir string) []string {
	seeds, err := filepath.Glob(filepath.Join(dir, "*.nk"))
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(seeds, func(seed string) bool {
		info, err := os.Stat(seed)
		return err != nil || info.Mode().Perm()&0o007 == 0
	})
}

// limitsOf returns a tenant's limits: its own settings, and the limits file for the others.
func (c *operatorFiles) limitsOf(tenant string, set *outbidv1.Tenant) limits.Tenant {
	limit, err := limits.Over(c.limits.Of(tenant), set.GetLimits())
	if err != nil {
		return c.limits.Of(tenant)
	}
	return limit
}

// secretsEvery is how often the files of tokens and certificate are checked.
const secretsEvery = 2 * time.Second

// certWarning is how long before its expiry a certificate is warned about.
const certWarning = 14 * 24 * time.Hour

// watch loads new tokens, limits, prices and a renewed certificate while the server runs, so that changes do not require
// a restart. It calls newLimits after new limits. A file that cannot be read changes nothing and is logged once.
func (c *operatorFiles) watch(ctx context.Context, newLimits func()) error {
	tick := time.NewTicker(secretsEvery)
	defer tick.Stop()
	var tokens, bindings, cert, limits, prices reloaded
	var said certTime
	for {
		if c.cert != nil {
			said = c.logCertState(said)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-c.reload:
			c.log.Info("reading the files of tokens, limits, prices and the certificate again")
		}
		if c.tokens != nil {
			tokens.try(c.log, "tokens", c.tokens.Reload)
		}
		if c.bindings != nil {
			bindings.try(c.log, "bindings", c.bindings.Reload)
		}
		if c.limits != nil {
			if limits.try(c.log, "limits", c.limits.Reload) {
				c.report("limits")
				newLimits()
			}
		}
		if c.prices != nil {
			prices.try(c.log, "prices", c.prices.Reload)
		}
		if c.cert != nil && cert.try(c.log, "certificate", c.cert.Reload) {
			c.report("certificates")
			said = certGood
		}
	}
}

// watchDuring reads changed files too while wait runs: a standby answers with the certificate and checks tokens.
func (c *operatorFiles) watchDuring(ctx context.Context, wait func(context.Context) error) error {
	waiting, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { _ = c.watch(waiting, func() {}) })
	defer watching.Wait()
	defer cancel()
	return wait(ctx)
}

func (c *operatorFiles) report(kind string) {
	if c.reloaded != nil {
		c.reloaded(kind)
	}
}

// certTime is the state of the certificate.
type certTime int

const (
	certGood certTime = iota
	certEnding
	certEnded
)

// logCertState logs once that the certificate expires soon, and once that it has expired.
func (c *operatorFiles) logCertState(said certTime) certTime {
	left, now := c.cert.Expires().Sub(c.now()), certGood
	switch {
	case left <= 0:
		now = certEnded
	case left < certWarning:
		now = certEnding
	}
	if now <= said {
		return said
	}
	if now == certEnded {
		c.log.Error("the certificate has expired: clients reject this server", "end", c.cert.Expires(), "fix", "outbid tls new")
	} else {
		c.log.Warn("the certificate expires soon", "end", c.cert.Expires(), "fix", "outbid tls new")
	}
	return now
}

// checkCertificate returns the doctor's check of the certificate, or nil without one.
func (c *operatorFiles) checkCertificate() *outbidv1.Check {
	if c.cert == nil {
		return nil
	}
	end := c.cert.Expires()
	check := &outbidv1.Check{
		Name: "certificate", Ok: end.Sub(c.now()) >= certWarning, Detail: "the server's certificate ends on " + end.Local().Format(time.DateTime),
	}
	if !check.GetOk() {
		check.Fix = "outbid tls new, with the directory of the certificate; a running server reads the new one"
	}
	return check
}

// reloaded remembers a file's last error.
type reloaded struct{ problem string }

func (r *reloaded) try(log *slog.Logger, what string, reload func() (bool, error)) (changed bool) {
	changed, err := reload()
	switch {
	case err != nil && err.Error() != r.problem:
		r.problem = err.Error()
		log.Error("reload failed; the previous content stays in use", "what", what, "err", err)
	case err == nil:
		r.problem = ""
	}
	if changed {
		log.Info("read anew", "what", what)
	}
	return changed
}
