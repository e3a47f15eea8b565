package api

import (
	"encoding/base64"
	"encoding/json"
	"math"

	"google.golang.org/protobuf/proto"
)

const (
	defaultPage = 1000
	maxPage     = 10000
	// maxAnswer bounds a message's size: clients of gRPC take 4 MiB unless they are told otherwise.
	maxAnswer = 3 << 20
	// maxChunk is the size at which messages of streams are sent.
	maxChunk = 1 << 20
)

// pageToken says where a listing goes on. It names the listing, so that a token of another one is refused.
type pageToken struct {
	List  string `json:"l"`
	Next  int    `json:"n,omitempty"`
	After string `json:"a,omitempty"`
}

func (t pageToken) String() string {
	b, err := json.Marshal(t)
	if err != nil {
		return "" // a struct of strings and ints always encodes
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// parsePageToken reads the token of a request for a listing; the empty token is the beginning.
func parsePageToken(s, list string) (pageToken, error) {
	t := pageToken{List: list}
	if s == "" {
		return t, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		t = pageToken{}
		err = json.Unmarshal(b, &t)
	}
	if err != nil || t.List != list || t.Next < 0 || t.Next > math.MaxInt32 {
		return t, fieldError("page_token", "%.40q is no token of this listing; send next_page_token of the page before, "+
			"with the same request otherwise", s)
	}
	return t, nil
}

// pageSize checks a page_size.
func pageSize(n int32) (int, error) {
	switch {
	case n < 0:
		return 0, fieldError("page_size", "%d is below 0; leave it out for %d", n, defaultPage)
	case n > maxPage:
		return 0, fieldError("page_size", "%d is above the limit of %d; use page_token to read on", n, maxPage)
	case n == 0:
		return defaultPage, nil
	}
	return int(n), nil
}

// fit returns how many of the messages fit into one of at most limit bytes, at least one if there is one.
func fit[M proto.Message](messages []M, limit int) int {
	size := 0
	for i, m := range messages {
		// Tag and length take a few bytes.
		size += proto.Size(m) + 8
		if size > limit && i > 0 {
			return i
		}
	}
	return len(messages)
}
