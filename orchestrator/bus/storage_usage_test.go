package bus

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/identity"
)

// fill stores a message, so that the storage is not empty.
func fill(t *testing.T, nc *nats.Conn) {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(testContext(t), jetstream.StreamConfig{Name: "FILL", Subjects: []string{"fill"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(testContext(t), "fill", make([]byte, 10_000)); err != nil {
		t.Fatal(err)
	}
}

func TestStorageOfTheServerInside(t *testing.T) {
	t.Parallel()
	s := startServer(t, ServerConfig{})
	fill(t, connect(t, ConnConfig{Server: s}))
	got, err := s.Storage()
	if err != nil || got.Server != "outbid" || got.Used < 10_000 || got.Limit < got.Used {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestStorageOfAServerOfItsOwn(t *testing.T) {
	t.Parallel()
	keys := makeKeys(t)
	s, _ := externalServer(t, keys)
	admin, err := keys.Orchestrator()
	if err != nil {
		t.Fatal(err)
	}
	nc := connect(t, ConnConfig{URL: s.ClientURL(), User: admin})
	fill(t, nc)
	observer, err := keys.Observer()
	if err != nil {
		t.Fatal(err)
	}
	asking := connect(t, ConnConfig{URL: s.ClientURL(), User: observer})
	got, err := AskStorage(testContext(t), asking)
	if err != nil || len(got) != 1 || got[0].Server != s.Name() || got[0].Used < 10_000 || got[0].Limit < got[0].Used {
		t.Errorf("as the observer: %+v, %v", got, err)
	}
	account, err := AccountStorage(testContext(t), nc)
	if err != nil || account.Server != "account" || account.Used < 10_000 || account.Limit != 0 {
		t.Errorf("as the account: %+v, %v", account, err)
	}
	// The user may ask only for the storage.
	for _, subject := range []string{"$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ"} {
		if m, err := asking.Request(subject, nil, storageSilence); err == nil {
			t.Errorf("%s is answered: %.100s", subject, m.Data)
		}
	}
	if m, err := asking.Request(identity.StorageSubject, nil, patience); err != nil || len(m.Data) == 0 {
		t.Errorf("it may not ask any more: %v", err)
	}
}
