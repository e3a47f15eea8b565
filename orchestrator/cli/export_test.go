package cli

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"google.golang.org/protobuf/types/known/structpb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

func TestExportCSV(t *testing.T) {
	url, _ := serveFake(t, newFake(), "127.0.0.1:0")
	t.Chdir(t.TempDir())
	app := newTestApp(nil, nil)
	wantExit(t, app, app.start(t.Context(), "export", "digits", "--server", url), exitOK)
	trials := readCSV(t, "digits-2-trials.csv")
	want := map[string]string{
		"trial": "1", "state": "running", "best": "0.9611", "config.lr": "0.0123456789", "config.width": "64",
		"config.opt.name": "adam", "config.opt.momentum": "", "metric.accuracy": "0.9511", "metric.loss": "NaN",
		"created": "2026-05-04T11:58:00Z", "ended": "",
	}
	for name, value := range want {
		if got := trials[1][name]; got != value {
			t.Errorf("trial 1: %s is %q, want %q", name, got, value)
		}
	}
	if got := trials[0]["best"]; got != "" {
		t.Errorf("trial 0 never reported, but its best is %q", got)
	}
	reports := readCSV(t, "digits-2-reports.csv")
	if len(reports) != 2 || reports[0]["metric.accuracy"] != "" || reports[1]["metric.loss"] != "NaN" {
		t.Errorf("reports: %v", reports)
	}
}

func readCSV(t *testing.T, file string) []map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]string
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

func TestExportParquet(t *testing.T) {
	t.Parallel()
	url, _ := serveFake(t, newFake(), "127.0.0.1:0")
	dir := t.TempDir()
	trials, reports := filepath.Join(dir, "t.parquet"), filepath.Join(dir, "r.parquet")
	app := newTestApp(nil, nil)
	wantExit(t, app, app.start(t.Context(), "export", "digits", "--trials", trials, "--reports", reports, "--server", url),
		exitOK)
	rows, columns := readParquet(t, trials)
	wantColumns := []string{
		"sweep", "trial", "state", "reason", "bracket", "step", "until_step", "best", "best_step", "device_seconds",
		"steps_per_second", "resumes", "restarts", "node", "created", "ended", "config.lr", "config.opt.momentum",
		"config.opt.name", "config.width", "metric.accuracy", "metric.loss",
	}
	if diff := cmp.Diff(wantColumns, columns); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	if got := rows[1]["config.width"].Int64(); got != 64 {
		t.Errorf("config.width is %d, want 64", got)
	}
	if v := rows[1]["metric.loss"]; v.IsNull() || !math.IsNaN(v.Double()) {
		t.Errorf("metric.loss is %v, want NaN", v)
	}
	for _, name := range []string{"best", "ended", "config.opt.momentum"} {
		row := rows[1]
		if name == "best" {
			row = rows[0]
		}
		if !row[name].IsNull() {
			t.Errorf("%s is %v, want null", name, row[name])
		}
	}
	if got := rows[0]["created"].Int64(); got != ago(0).AsTime().UnixMicro()-120e6 {
		t.Errorf("created is %d", got)
	}
	if rows, _ := readParquet(t, reports); len(rows) != 2 {
		t.Errorf("%d reports, want 2", len(rows))
	}
}

func readParquet(t *testing.T, file string) (rows []map[string]parquet.Value, columns []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	pf, err := parquet.OpenFile(f, stat.Size())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range pf.Root().Columns() {
		columns = append(columns, c.Name())
	}
	for _, g := range pf.RowGroups() {
		r := g.Rows()
		buf := make([]parquet.Row, g.NumRows())
		n, _ := r.ReadRows(buf)
		for _, line := range buf[:n] {
			row := map[string]parquet.Value{}
			for _, v := range line {
				row[columns[v.Column()]] = v.Clone()
			}
			rows = append(rows, row)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return rows, columns
}

func TestExportRefusesBadRequests(t *testing.T) {
	t.Parallel()
	url, _ := serveFake(t, newFake(), "127.0.0.1:0")
	for _, args := range [][]string{
		{"--format", "xlsx"},
		{"--trials", "-", "--reports", "-"},
		{"--trials", filepath.Join(t.TempDir(), "trials.xlsx")},
		{"--reports", filepath.Join(t.TempDir(), "reports")},
		{"--trials", filepath.Join(t.TempDir(), "no", "such", "dir.csv")},
	} {
		app := newTestApp(nil, nil)
		wantExit(t, app, app.start(t.Context(), append([]string{"export", "digits", "--server", url}, args...)...), exitUsage)
	}
}

func TestFailedExportLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.trials["digits-2"][1].ConfigJson = `{"lr":"high","opt":{"name":"adam"},"width":1.5}`
	url, _ := serveFake(t, f, "127.0.0.1:0")
	dir := t.TempDir()
	app := newTestApp(nil, nil)
	wantExit(t, app, app.start(t.Context(), "export", "digits", "--trials", filepath.Join(dir, "t.csv"), "--server", url),
		exitFailed)
	if !strings.Contains(app.err.String(), "config.width: 1.5 is not a whole number") {
		t.Errorf("stderr: %s", app.err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestKindOfParameters(t *testing.T) {
	t.Parallel()
	choice := func(values ...any) *outbidv1.Parameter {
		list, err := structpb.NewList(values)
		if err != nil {
			t.Fatal(err)
		}
		return &outbidv1.Parameter{Kind: &outbidv1.Parameter_Choice{Choice: &outbidv1.Choice{Values: list.GetValues()}}}
	}
	for _, tc := range []struct {
		p    *outbidv1.Parameter
		want columnKind
	}{
		{choice(1, 2, 3), kindInt},
		{choice(1, 2.5), kindFloat},
		{choice(true, false), kindBool},
		{choice(true, 1), kindText},
		{choice("a", 1), kindText},
		{choice([]any{1, 2}), kindText},
		{choice(map[string]any{"a": 1}), kindText},
		{choice(nil, 1), kindInt},
		{choice(1e300), kindFloat},
		{&outbidv1.Parameter{Kind: &outbidv1.Parameter_Constant{Constant: structpb.NewNumberValue(0.5)}}, kindFloat},
		{&outbidv1.Parameter{Kind: &outbidv1.Parameter_Float{}}, kindFloat},
		{&outbidv1.Parameter{Kind: &outbidv1.Parameter_Int{}}, kindInt},
	} {
		if got := kindOf(tc.p); got != tc.want {
			t.Errorf("%v: kind %d, want %d", tc.p, got, tc.want)
		}
	}
}

func TestCheckpointIsWholeOrNotThere(t *testing.T) {
	t.Parallel()
	f := newFake()
	url, _ := serveFake(t, f, "127.0.0.1:0")
	file := filepath.Join(t.TempDir(), "best.safetensors")
	app := newTestApp(nil, nil)
	wantExit(t, app, app.start(t.Context(), "best", "digits", "--checkpoint", file, "--server", url), exitOK)
	if data, err := os.ReadFile(file); err != nil || string(data) != "the weights" {
		t.Fatalf("the file holds %q: %v", data, err)
	}
	f.blob = []byte("the weighs")
	for _, args := range [][]string{{"best", "digits"}, {"show", "digits/1"}} {
		app := newTestApp(nil, nil)
		wantExit(t, app, app.start(t.Context(), append(args, "--checkpoint", file, "--server", url)...), exitFailed)
		if !strings.Contains(app.err.String(), "arrived damaged") {
			t.Errorf("stderr: %s", app.err)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "the weights" {
		t.Errorf("the file of before is %q now: %v", data, err)
	}
}
