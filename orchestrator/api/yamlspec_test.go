package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func TestASweepsFileIsPreviewedAndSubmitted(t *testing.T) {
	t.Parallel()
	h := serve(t, nil)
	file := "name: digits\nexternal: {}\nmetric: loss\nmode: min\nspace:\n  lr: {float: {low: 0.1, high: 1}}\n" +
		"tuner: {random: {max_steps: 4}}\nlimits: {trials: 3}\n"
	for _, c := range []struct {
		path, body string
		code       int
		want       string
	}{
		{"/v1/sweeps:preview", file, 200, `"trials":3`},
		{"/v1/sweeps:preview?step_seconds=3600", file, 200, `"device_hours":12`},
		{"/v1/sweeps:preview", strings.Replace(file, "low: 0.1", "low: 2", 1), 400, "line 6"},
		{"/v1/sweeps:preview", strings.Replace(file, "metric:", "metrik:", 1), 400, "line 3"},
		{"/v1/sweeps", "name: [", 400, "line 1"},
		{"/v1/sweeps", file, 200, `"id":"digits-1"`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL()+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", yamlType)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var answer json.RawMessage
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if text := strings.ReplaceAll(string(answer), " ", ""); resp.StatusCode != c.code || !strings.Contains(text, strings.ReplaceAll(c.want, " ", "")) {
			t.Errorf("%s: %d %s, want %d with %s", c.path, resp.StatusCode, answer, c.code, c.want)
		}
	}
}
