package server

import (
	"context"
	"time"
)

// secretsEvery is how often the files of tokens and certificate are checked.
const secretsEvery = 2 * time.Second

// certWarning is how long before its expiry a certificate is warned about.
const certWarning = 14 * 24 * time.Hour

// watchSecrets loads new tokens, limits and a renewed certificate while the server runs, so that changes do not require
// a restart. A file that cannot be read changes nothing and is logged once.
func (s *Server) watchSecrets(ctx context.Context) error {
	tick := time.NewTicker(secretsEvery)
	defer tick.Stop()
	var tokens, cert, limits reloaded
	var said certTime
	for {
		if s.cert != nil {
			said = s.logCertState(said)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if s.tokens != nil {
			tokens.try(s, "tokens", s.tokens.Reload)
		}
		if s.limits != nil {
			if limits.try(s, "limits", s.limits.Reload) {
				s.reserveLogs(ctx)
			}
		}
		if s.cert != nil && cert.try(s, "certificate", s.cert.Reload) {
			said = certGood
		}
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
func (s *Server) logCertState(said certTime) certTime {
	left, now := s.cert.Expires().Sub(s.cfg.Now()), certGood
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
		s.log.Error("the certificate has expired: clients reject this server", "end", s.cert.Expires(), "fix", "outbid tls new")
	} else {
		s.log.Warn("the certificate expires soon", "end", s.cert.Expires(), "fix", "outbid tls new")
	}
	return now
}

// reloaded remembers a file's last error.
type reloaded struct{ problem string }

func (r *reloaded) try(s *Server, what string, reload func() (bool, error)) (changed bool) {
	changed, err := reload()
	switch {
	case err != nil && err.Error() != r.problem:
		r.problem = err.Error()
		s.log.Error("reload failed; the previous content stays in use", "what", what, "err", err)
	case err == nil:
		r.problem = ""
	}
	if changed {
		s.log.Info("read anew", "what", what)
	}
	return changed
}
