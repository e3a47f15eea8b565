package api

import (
	"io"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// BenchmarkAsk measures a call from a client to Control and back, without the work of Control.
func BenchmarkAsk(b *testing.B) {
	control := newFakeControl()
	control.add("digits-1", "", 1)
	s, err := New(Config{
		Control: control, Store: &fakeStore{}, Logs: &fakeLogs{}, Registry: prometheus.NewRegistry(), Addr: "127.0.0.1:0",
	})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(b.Context()) }()
	b.Cleanup(func() {
		if err := <-done; err != nil { // b.Context has ended
			b.Error(err)
		}
	})
	b.Run("gRPC", func(b *testing.B) {
		conn, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		client := outbidv1.NewOutbidServiceClient(conn)
		for b.Loop() {
			if _, err := client.AskTrial(b.Context(), &outbidv1.AskTrialRequest{Sweep: "digits-1"}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("REST", func(b *testing.B) {
		for b.Loop() {
			resp, err := http.Get(s.URL() + "/v1/sweeps/digits-1/trials/0")
			if err != nil {
				b.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}
