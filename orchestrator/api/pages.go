package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// newPages returns everything that is not gRPC: REST, health, metrics and the index.
func newPages(cfg Config, g *gate, conn *grpc.ClientConn) (http.Handler, error) {
	gateway := newGateway()
	client := outbidv1.NewOutbidServiceClient(conn)
	// The gateway's handlers call over conn for as long as it is open.
	if err := outbidv1.RegisterOutbidServiceHandlerClient(context.Background(), gateway, client); err != nil {
		return nil, fmt.Errorf("register REST paths: %w", err)
	}
	metrics := promhttp.HandlerFor(cfg.Registry, promhttp.HandlerOpts{})
	mux := http.NewServeMux()
	mux.Handle("/", gateway)
	mux.HandleFunc("GET /v1/sweeps/{sweep}/trials/{trial}/checkpoint", rawCheckpoint(client, gateway))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, index()) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { ready(w, g) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if _, err := g.authenticate(r.Header.Values("Authorization")); err != nil {
			writeError(w, err)
			return
		}
		metrics.ServeHTTP(w, r)
	})
	return mux, nil
}

// ready says whether this server takes commands: it is the leader and is not stopping.
func ready(w http.ResponseWriter, g *gate) {
	switch {
	case g.stopping.Err() != nil:
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "stopping"})
	case !g.control.Info().GetLeader():
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "standing by"})
	default:
		writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
	}
}

// index is what a browser at / sees.
func index() any {
	return map[string]any{
		"name": "Outbid",
		"paths": map[string]string{
			"/v1/sweeps": "sweeps", "/v1/nodes": "nodes and their devices", "/v1/server": "the server",
			"/healthz": "is it alive", "/readyz": "does it take commands", "/metrics": "metrics for Prometheus",
		},
	}
}
