package spot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/outbid-dev/outbid/orchestrator/sanitize"
)

const (
	// answersWithin limits the time of a request.
	answersWithin = 2 * time.Second
	// maxAnswer limits the size of an answer.
	maxAnswer = 64 << 10
	// tokenSeconds is how long a token of EC2 is valid.
	tokenSeconds = "21600"
	// shownAnswer limits how much of an answer is shown in an error.
	shownAnswer = 80
)

// metadata is the metadata service of a cloud.
type metadata struct {
	url    *url.URL
	client *http.Client
	// token authenticates requests to EC2 (IMDSv2); "" until the service asks for one.
	token string
	// machine is the name of this machine on Azure; "" until it is known.
	machine string
}

func newMetadata(u *url.URL) *metadata {
	return &metadata{url: u, client: &http.Client{
		Timeout:   answersWithin,
		Transport: &http.Transport{DisableKeepAlives: true}, // not through a proxy
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}
}

// Look implements Source.
func (m *metadata) Look(ctx context.Context) (string, error) {
	status, body, err := m.ask(ctx, http.MethodGet, m.url)
	if err == nil && status == http.StatusUnauthorized {
		if err = m.renewToken(ctx); err == nil {
			status, body, err = m.ask(ctx, http.MethodGet, m.url)
		}
	}
	switch {
	case err != nil:
		return "", err
	case status == http.StatusNotFound, status == http.StatusNoContent:
		return "", nil
	case status != http.StatusOK:
		return "", m.wrong("answers %d %s", status, http.StatusText(status))
	}
	return m.read(ctx, strings.TrimSpace(string(body)))
}

// ask makes a request and returns the status and the body.
func (m *metadata) ask(ctx context.Context, method string, u *url.URL) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin) // includes the time of the body
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return 0, nil, m.wrong("%w", err)
	}
	// Each cloud ignores the headers of the others.
	r.Header.Set("Metadata-Flavor", "Google")
	r.Header.Set("Metadata", "true")
	if method == http.MethodPut {
		r.Header.Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", tokenSeconds)
	} else if m.token != "" {
		r.Header.Set("X-Aws-Ec2-Metadata-Token", m.token)
	}
	resp, err := m.client.Do(r)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err // without the address, which is added below
		}
		return 0, nil, m.wrong("%w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return 0, nil, m.wrong("%w", err)
	case len(body) > maxAnswer:
		return 0, nil, m.wrong("answers more than %d bytes", maxAnswer)
	}
	return resp.StatusCode, body, nil
}

// renewToken gets a token from EC2.
func (m *metadata) renewToken(ctx context.Context) error {
	at := *m.url
	at.Path, at.RawQuery = "/latest/api/token", ""
	status, body, err := m.ask(ctx, http.MethodPut, &at)
	token := strings.TrimSpace(string(body))
	switch {
	case err != nil:
		return err
	case status != http.StatusOK || token == "" || strings.ContainsAny(token, "\r\n"):
		return m.wrong("wants a token, and %s gives none (%d %s)", at.Path, status, http.StatusText(status))
	}
	m.token = token
	return nil
}

// answer is an answer of EC2 or Azure.
type answer struct {
	// EC2: what happens to the machine, and when.
	Action string `json:"action"`
	Time   string `json:"time"`
	// Azure: what happens to machines.
	Events *[]event `json:"Events"`
}

type event struct {
	EventType, NotBefore string
	Resources            []string
}

// read returns the notice in an answer, or "".
func (m *metadata) read(ctx context.Context, body string) (string, error) {
	switch strings.ToUpper(body) {
	case "", "FALSE", "NONE":
		return "", nil
	case "TRUE": // GCE
		return text("the machine is preempted"), nil
	}
	var a answer
	if err := json.Unmarshal([]byte(body), &a); err != nil || a.Action == "" && a.Events == nil {
		return "", m.wrong("answers %q: want TRUE or FALSE, or JSON with action (EC2) or Events (Azure)", sanitize.Line(body, shownAnswer))
	}
	if a.Action != "" {
		return text(a.Action + at(a.Time)), nil
	}
	for _, e := range *a.Events {
		// A freeze lasts seconds; trials survive it.
		if ends := slices.Contains([]string{"Preempt", "Terminate", "Reboot", "Redeploy"}, e.EventType); ends && m.concerns(ctx, e) {
			return text(e.EventType + at(e.NotBefore)), nil
		}
	}
	return "", nil
}

// concerns reports whether an event of Azure is about this machine: a machine of a scale set gets the events of the others too.
// If its own name is not known, every event counts.
func (m *metadata) concerns(ctx context.Context, e event) bool {
	if len(e.Resources) == 0 {
		return true
	}
	if m.machine == "" {
		u := *m.url
		u.Path, u.RawQuery = "/metadata/instance/compute/name", "api-version=2021-02-01&format=text"
		if status, body, err := m.ask(ctx, http.MethodGet, &u); err == nil && status == http.StatusOK {
			m.machine = strings.TrimSpace(string(body))
		}
	}
	return m.machine == "" || slices.ContainsFunc(e.Resources, func(name string) bool { return strings.EqualFold(name, m.machine) })
}

func at(when string) string {
	if when == "" {
		return ""
	}
	return " at " + when
}

func (m *metadata) wrong(format string, args ...any) error {
	return fmt.Errorf("spot notice: %s "+format, append([]any{m.url.Redacted()}, args...)...)
}
