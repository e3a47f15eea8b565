package workload_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbid-dev/outbid/orchestrator/sim/workload"
	"github.com/outbid-dev/outbid/orchestrator/trace"
)

const common = "job_id,submit_s,num_gpus,duration_s,tenant,status,model,gpu_type,extra\n" +
	"a,0,1,100,x,,,,\nb,50,2,100,y,,,,\ncpu,60,0,100,y,,,,\nc,4000,2,100,y,,,,\nd,90000,4,100,x,,,,\n"

func file(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.csv")
	if err := os.WriteFile(path, []byte(common), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func ids(t *trace.Trace) string {
	var out []string
	for _, j := range t.Jobs {
		out = append(out, j.ID)
	}
	return strings.Join(out, " ")
}

func TestSelection(t *testing.T) {
	t.Parallel()
	path := file(t)
	for name, c := range map[string]struct {
		request workload.Request
		want    string
	}{
		"all that need a GPU": {workload.Request{}, "a b c d"},
		"first":               {workload.Request{Jobs: 2}, "a b"},
		"window":              {workload.Request{Window: "1h:1.5d"}, "c d"},
		"busiest":             {workload.Request{Window: "busiest:2h"}, "a b c"},
		"tenant":              {workload.Request{Tenants: []string{"y"}, Jobs: 1}, "b"},
	} {
		c.request.File = path
		got, err := c.request.Trace()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if ids(got) != c.want {
			t.Errorf("%s: jobs %s, want %s", name, ids(got), c.want)
		}
	}
	got, err := workload.Request{File: path, Load: 2, Length: 3}.Trace()
	if err != nil || got.Jobs[2].Submit != 2000 || got.Jobs[2].Duration != 300 {
		t.Errorf("scaled: %v, %+v", err, got)
	}
}

func TestWhatCannotBeLoaded(t *testing.T) {
	t.Parallel()
	path := file(t)
	if _, err := (workload.Request{}).Trace(); !errors.Is(err, workload.ErrNothing) {
		t.Errorf("nothing: %v", err)
	}
	for want, r := range map[string]workload.Request{
		"--window 5: want FROM:TO":                    {File: path, Window: "5"},
		"--window 2h:1h: want FROM:TO":                {File: path, Window: "2h:1h"},
		"--window busiest:0s: want":                   {File: path, Window: "busiest:0s"},
		"--window -1d:2d":                             {File: path, Window: "-1d:2d"},
		"--tenants z: jobs has no such tenant; it ha": {File: path, Tenants: []string{"z"}},
		"--jobs -1: want 1 or more":                   {File: path, Jobs: -1},
		"none of the 5 jobs of jobs is left to run":   {File: path, Window: "20d:30d"},
		"scale by load -1":                            {File: path, Load: -1},
		"no such file":                                {File: path + "x"},
	} {
		if _, err := r.Trace(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
