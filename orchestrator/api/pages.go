package api

import (
	"context"
	"fmt"
	"net/http"

	"google.golang.org/grpc"

	"github.com/outbid-dev/outbid/orchestrator/dashboard"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// newPages returns the handler for everything except gRPC: REST, health, metrics and the index.
func newPages(cfg Config, i *interceptor, conn *grpc.ClientConn) (http.Handler, error) {
	gateway := newGateway()
	client := outbidv1.NewOutbidServiceClient(conn)
	// The gateway's handlers use conn until it is closed.
	if err := outbidv1.RegisterOutbidServiceHandlerClient(context.Background(), gateway, client); err != nil {
		return nil, fmt.Errorf("register REST paths: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", gateway)
	mux.Handle("GET /v1/sweeps", newSweepList(conn, gateway))
	mux.HandleFunc("GET /v1/sweeps/{sweep}/trials/{trial}/checkpoint", rawCheckpoint(client, gateway))
	mux.HandleFunc("GET /v1/sweeps/{sweep}/columns", rawColumns(client, gateway))
	mux.HandleFunc("POST /v1/sweeps", yamlSpec(gateway, outbidv1.OutbidService_SubmitSweep_FullMethodName, submitFile(client)))
	mux.HandleFunc("POST /v1/sweeps:preview", yamlSpec(gateway, outbidv1.OutbidService_PreviewSweep_FullMethodName, previewFile(client)))
	mux.Handle("GET /{$}", dashboard.ForBrowsers(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, index())
	})))
	mux.Handle("GET "+dashboard.Path, dashboard.Handler())
	mux.HandleFunc("POST "+SessionPath, i.sessions.signIn)
	mux.HandleFunc("DELETE "+SessionPath, i.sessions.signOut)
	mux.HandleFunc("GET "+SignInPath, cfg.SignIn.info)
	mux.HandleFunc("GET "+signInStartPath, i.sessions.startSignIn)
	mux.HandleFunc("GET "+signInDonePath, i.sessions.finishSignIn)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { ready(w, i) })
	mux.Handle("GET /metrics", metricsHandler(cfg.Registry, i))
	return mux, nil
}

// readiness is the answer of /readyz.
type readiness struct {
	Status string `json:"status"`
	// WaitsFor lists the parts that do not work now, such as "store". The server runs without a store; operations that
	// need it wait.
	WaitsFor []string `json:"waits_for,omitempty"`
}

// ready reports whether this server accepts commands: it is the leader and is not stopping. GetServerInfo has the
// details of failing checks, for authorised callers.
func ready(w http.ResponseWriter, i *interceptor) {
	info := i.control.Info()
	answer, code := readiness{Status: "ready"}, http.StatusOK
	for _, c := range info.GetChecks() {
		if !c.GetOk() {
			answer.WaitsFor = append(answer.WaitsFor, c.GetName())
		}
	}
	switch {
	case i.stopping.Err() != nil:
		answer.Status, code = "stopping", http.StatusServiceUnavailable
	case i.waits() != "":
		answer.Status, code = "waiting for NATS", http.StatusServiceUnavailable
	case !info.GetLeader():
		answer.Status, code = "standing by", http.StatusServiceUnavailable
	}
	writeJSON(w, code, answer)
}

// index is the page that a browser shows for /.
func index() any {
	return map[string]any{
		"name": "Outbid",
		"paths": map[string]string{
			"/v1/sweeps": "sweeps", "/v1/nodes": "nodes and their devices", "/v1/server": "the server",
			"/healthz": "is it alive", "/readyz": "does it accept commands", "/metrics": "metrics for Prometheus",
		},
	}
}
