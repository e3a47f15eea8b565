package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbid-dev/outbid/orchestrator/identity"
)

// Storage is JetStream's use of files on one NATS server.
type Storage struct {
	// Server is the name of the NATS server.
	Server string
	// Used and Limit (max_file_store) are in bytes. Limit is 0 if it is unlimited or unknown.
	Used, Limit int64
}

// Storage returns how much this server stores.
func (s *Server) Storage() (Storage, error) {
	info, err := s.ns.Jsz(nil)
	if err != nil {
		return Storage{}, fmt.Errorf("read the storage usage of NATS: %w", err)
	}
	return Storage{Server: s.ns.Name(), Used: int64(info.Store), Limit: max(info.Config.MaxStore, 0)}, nil
}

// storageSilence is how long to wait for another answer before the answers of a cluster's servers are considered
// complete.
const storageSilence = 500 * time.Millisecond

// AskStorage asks every NATS server of a cluster, over a connection as the user that identity.Keys.Observer creates.
func AskStorage(ctx context.Context, observer *nats.Conn) ([]Storage, error) {
	inbox := observer.NewRespInbox()
	answers, err := observer.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("read the storage usage of NATS: %w", err)
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := observer.PublishRequest(identity.StorageSubject, inbox, nil); err != nil {
		return nil, fmt.Errorf("read the storage usage of NATS: %w", err)
	}
	var all []Storage
	for {
		wait, cancel := context.WithTimeout(ctx, storageSilence)
		m, err := answers.NextMsgWithContext(wait)
		cancel()
		switch {
		case err != nil && len(all) > 0:
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read the storage usage of NATS: %w", err)
		}
		var answer struct {
			Server server.ServerInfo `json:"server"`
			Data   server.JSInfo     `json:"data"`
		}
		if err := json.Unmarshal(m.Data, &answer); err != nil {
			return nil, fmt.Errorf("read the storage usage of a NATS server: %w", err)
		}
		if !answer.Data.Disabled {
			all = append(all, Storage{answer.Server.Name, int64(answer.Data.Store), max(answer.Data.Config.MaxStore, 0)})
		}
	}
}

// AccountStorage returns how much the account of a connection stores, and the account's limit, for a NATS with
// separately managed users.
func AccountStorage(ctx context.Context, nc *nats.Conn) (Storage, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return Storage{}, fmt.Errorf("read the storage usage of NATS: %w", err)
	}
	info, err := js.AccountInfo(ctx)
	if err != nil {
		return Storage{}, fmt.Errorf("read the storage usage of NATS: %w", err)
	}
	return Storage{Server: "account", Used: int64(info.Store), Limit: max(info.Limits.MaxStore, 0)}, nil
}
