package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// apiPage is the number of sweeps or trials that are read from the API at once.
	apiPage = 100
	// maxScanned is the maximum number of sweeps or trials that one call reads.
	maxScanned = 5000
	// maxAnswer is the largest size of a list in bytes. A longer list is cut.
	maxAnswer = 40_000
)

// sweep returns the sweep with that id, or else the newest sweep with that name.
func (c *call) sweep(ctx context.Context, name string) (*outbidv1.Sweep, error) {
	if strings.Contains(name, "/") {
		return nil, fmt.Errorf("sweep: %q names a trial; give the sweep alone: %q", cleanLine(name, maxName), cleanLine(before(name, "/"), maxName))
	}
	got, err := c.API.GetSweep(ctx, &outbidv1.GetSweepRequest{Sweep: name})
	if status.Code(err) != codes.NotFound {
		return got.GetSweep(), err
	}
	near := ""
	req := &outbidv1.ListSweepsRequest{PageSize: apiPage}
	for read := 0; read < maxScanned; {
		page, err := c.API.ListSweeps(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, s := range page.GetSweeps() {
			if s.GetSpec().GetName() == name {
				return s, nil
			}
			if near == "" && (strings.HasPrefix(s.GetId(), name) || strings.HasPrefix(name, s.GetSpec().GetName())) {
				near = s.GetId()
			}
		}
		read += len(page.GetSweeps())
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	hint := "list_sweeps lists them"
	if near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return nil, fmt.Errorf("sweep: there is no sweep %q on %s: %s", cleanLine(name, maxName), c.Where, hint)
}

func before(s, sep string) string {
	head, _, _ := strings.Cut(s, sep)
	return head
}

// trial returns a trial of a sweep, the best one if number is nil.
func (c *call) trial(ctx context.Context, s *outbidv1.Sweep, number *int32) (*outbidv1.Trial, error) {
	if number == nil {
		if s.GetBest() == nil {
			return nil, fmt.Errorf("trial: %s has no best trial, because no trial has reported %q; give a number", s.GetId(),
				cleanLine(s.GetSpec().GetMetric(), maxName))
		}
		number = new(s.GetBest().GetNumber())
	}
	got, err := c.API.GetTrial(ctx, &outbidv1.GetTrialRequest{Sweep: s.GetId(), Trial: *number})
	return got.GetTrial(), err
}

// item returns the trial that SWEEP/NUMBER, SWEEP/best or SWEEP (its best trial) names, with its sweep.
func (c *call) item(ctx context.Context, name string) (*outbidv1.Sweep, *outbidv1.Trial, error) {
	sweep, number, _ := strings.Cut(name, "/")
	var wanted *int32
	if number != "" && number != "best" {
		n, err := strconv.ParseInt(number, 10, 32)
		if err != nil || n < 0 {
			return nil, nil, fmt.Errorf("items: %q: must be SWEEP/NUMBER or SWEEP/best, such as digits-1/17", cleanLine(name, maxName))
		}
		wanted = new(int32(n))
	}
	s, err := c.sweep(ctx, sweep)
	if err != nil {
		return nil, nil, err
	}
	t, err := c.trial(ctx, s, wanted)
	return s, t, err
}

// position is a place in a list of the API: a page, and the number of its items before the place.
type position struct {
	Page string `json:"p,omitempty"`
	Skip int    `json:"s,omitempty"`
}

// token returns the position as a page_token.
func (p position) token() string {
	text, err := json.Marshal(p)
	if err != nil {
		return "" // a string and an int always encode
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func parsePosition(token string) (position, error) {
	var p position
	if token == "" {
		return p, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil || p.Skip < 0 {
		return p, fmt.Errorf("page_token: must be the next_page_token of an earlier answer of this tool, got %q", cleanLine(token, 40))
	}
	return p, nil
}

// list is a part of a list of sweeps or trials.
type list[V any] struct {
	items []V
	// next is the page_token of the rest, or "" at the end.
	next string
	// why tells why the list ends before the end, or "".
	why string
}

// readList reads a list of the API from a position: at most limit items that keep accepts, of at most maxAnswer bytes.
func readList[T, V any](token string, limit int, fetch func(page string) ([]T, string, error), keep func(T) bool, view func(T) V,
) (list[V], error) {
	at, err := parsePosition(token)
	got := list[V]{items: []V{}}
	if err != nil {
		return got, err
	}
	size, scanned := 0, 0
	for {
		page, next, err := fetch(at.Page)
		if err != nil {
			return got, err
		}
		for ; at.Skip < len(page); at.Skip++ {
			scanned++
			if !keep(page[at.Skip]) {
				continue
			}
			item := view(page[at.Skip])
			text, err := encode(item)
			if err != nil {
				return got, err
			}
			size += len(text)
			switch {
			case len(got.items) == limit:
				got.why = fmt.Sprintf("there are more than limit=%d", limit)
			case size > maxAnswer && len(got.items) > 0:
				got.why = fmt.Sprintf("the list ends after %d bytes", maxAnswer)
			}
			if got.why != "" {
				got.next = at.token()
				return got, nil
			}
			got.items = append(got.items, item)
		}
		if next == "" {
			return got, nil
		}
		at = position{Page: next}
		if scanned >= maxScanned {
			got.why, got.next = fmt.Sprintf("one call reads at most %d", maxScanned), at.token()
			return got, nil
		}
	}
}

// cutIn records in an answer that a list was cut.
func (l list[V]) cutIn(a *answer, what string) {
	if l.why != "" {
		a.cut("%s: %s; repeat the call with page_token=next_page_token to read on", what, l.why)
	}
}
