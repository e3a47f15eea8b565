package cli

import (
	"context"
	"time"
)

// secretsEvery is how often the files of tokens and certificate are looked at.
const secretsEvery = 2 * time.Second

// certWarning is how long before its end a certificate is warned of.
const certWarning = 14 * 24 * time.Hour

// watchSecrets takes over new tokens and a renewed certificate while the server runs, so that a new colleague or a
// certificate about to end wants no restart. What cannot be read changes nothing and is said once.
func (s *server) watchSecrets(ctx context.Context) error {
	tick := time.NewTicker(secretsEvery)
	defer tick.Stop()
	var tokens, cert reloaded
	warned := false
	for {
		if s.cert != nil && !warned && s.cert.Expires().Sub(s.app.now()) < certWarning {
			warned = true
			s.log.Warn("the certificate ends soon", "end", s.cert.Expires(), "fix", "outbid tls new")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if s.tokens != nil {
			tokens.try(s, "tokens", s.tokens.Reload)
		}
		if s.cert != nil && cert.try(s, "certificate", s.cert.Reload) {
			warned = false
		}
	}
}

// reloaded remembers what went wrong with a file.
type reloaded struct{ problem string }

func (r *reloaded) try(s *server, what string, reload func() (bool, error)) (changed bool) {
	changed, err := reload()
	switch {
	case err != nil && err.Error() != r.problem:
		r.problem = err.Error()
		s.log.Warn("what was read before stays in use", "what", what, "err", err)
	case err == nil:
		r.problem = ""
	}
	if changed {
		s.log.Info("read anew", "what", what)
	}
	return changed
}
