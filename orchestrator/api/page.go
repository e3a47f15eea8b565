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
	// maxAnswer limits a message's size, because gRPC clients accept at most 4 MiB by default.
	maxAnswer = 3 << 20
	// maxChunk is the size of a stream's messages.
	maxChunk = 1 << 20
)

// pageToken is the position in a listing. It names the listing, so a token of another listing is rejected.
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

// parsePageToken decodes the token of a request for a listing. The empty token is the start.
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
		return t, fieldError("page_token", "%.40q is not a page token of this listing; send next_page_token of the previous page, "+
			"with the rest of the request unchanged", s)
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

// fit returns how many of the messages fit into limit bytes, but at least one if there are any.
func fit[M proto.Message](messages []M, limit int) int {
	return fitBy(messages, limit, func(m M) int { return proto.Size(m) })
}

// fitBy is fit for messages with known sizes.
func fitBy[M proto.Message](messages []M, limit int, sizeOf func(M) int) int {
	size := 0
	for i, m := range messages {
		// The tag and length take a few bytes.
		size += sizeOf(m) + 8
		if size > limit && i > 0 {
			return i
		}
	}
	return len(messages)
}
