package api

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outbid-dev/outbid/orchestrator/audit"
)

// StandbyMetrics serves a registry as /metrics of a server that does not lead. It exports metrics of the process, not
// of tenants. With tokens the caller must send one, of any role, or a token of signIn, which may be nil.
func StandbyMetrics(registry *prometheus.Registry, tokens *Tokens, signIn *SignIn) http.Handler {
	i := &interceptor{tokens: tokens, signIn: signIn}
	return i.sameOrigin(metricsHandler(registry, i))
}

// metricsHandler serves a registry, and the metrics of the tenants that the caller may see.
func metricsHandler(registry *prometheus.Registry, i *interceptor) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := i.authenticate(r.Context(), r.Header.Values("Authorization"))
		if err != nil {
			i.recordHTTP(r, Principal{}, "get", "metrics", audit.DeniedUnauthenticated, err)
			writeError(w, err)
			return
		}
		all := prometheus.Gatherers{registry}
		if i.control != nil {
			tenants := prometheus.NewRegistry()
			tenants.MustRegister(newTenantMetrics(i.control, withMemberships(i.control, who)))
			all = append(all, tenants)
		}
		promhttp.HandlerFor(all, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
}
