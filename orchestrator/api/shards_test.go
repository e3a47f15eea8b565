package api

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// A client downloads a manifest and each shard, whose SHA-256 is in the manifest.
func TestGetShards(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	h.control.add("digits-1", "", 1)
	const key = "checkpoints/digits-1/0/000000000003-1.shards"
	sum := sha256.Sum256([]byte("one"))
	sha := hex.EncodeToString(sum[:])
	h.store.data[key] = fmt.Appendf(nil, `{"shards": [{"bytes": 3, "sha256": %q}, {"bytes": 3, "sha256": "00"}]}`, sha)
	h.store.data[key+".0"], h.store.data[key+".1"] = []byte("one"), []byte("two")
	h.store.data["c/4.shards"] = []byte("{}")
	h.control.change("digits-1", func(s *fakeSweep) {
		s.trials[0].Checkpoints = []*outbidv1.Checkpoint{
			{Key: key, Step: 3, Shards: 2, ShardBytes: 6, Bytes: 1},
			{Key: "c/4.shards", Step: 4, Shards: 2},
			{Key: "c/5.shards", Step: 5, Shards: 2},
		}
	}, 0)
	client := h.dial(t, "")
	get := func(step int64, shard *int32) ([]byte, *outbidv1.Checkpoint, error) {
		stream, err := client.GetCheckpoint(t.Context(), &outbidv1.GetCheckpointRequest{Sweep: "digits-1", Step: &step, Shard: shard})
		if err != nil {
			t.Fatal(err)
		}
		var data []byte
		var about *outbidv1.Checkpoint
		for {
			piece, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return data, about, nil
			}
			if err != nil {
				return data, about, err
			}
			if piece.GetCheckpoint() != nil {
				about = piece.GetCheckpoint()
			}
			data = append(data, piece.GetData()...)
		}
	}
	if data, about, err := get(3, nil); err != nil || string(data) != string(h.store.data[key]) || about.GetShards() != 2 {
		t.Errorf("the manifest: %q, %v, %v", data, about, err)
	}
	if data, about, err := get(3, proto.Int32(0)); err != nil || string(data) != "one" || about.GetSha256() != sha || about.GetBytes() != 3 {
		t.Errorf("a shard: %q, %v, %v", data, about, err)
	}
	for _, c := range []struct {
		step  int64
		shard int32
		want  codes.Code
	}{{3, 1, codes.DataLoss}, {3, 2, codes.InvalidArgument}, {3, -1, codes.InvalidArgument}, {4, 0, codes.DataLoss}, {5, 0, codes.NotFound}} {
		if _, _, err := get(c.step, &c.shard); status.Code(err) != c.want {
			t.Errorf("shard %d of step %d: %v, want %v", c.shard, c.step, err, c.want)
		}
	}
}
