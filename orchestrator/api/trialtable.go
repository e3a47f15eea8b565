package api

import (
	"crypto/rand"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

const (
	// maxColumns limits the columns of a table. Those of later metrics, parameters and attributes are left out.
	maxColumns = 256
	// maxTables and maxTableCells limit the tables that are kept for later calls.
	maxTables     = 32
	maxTableCells = 8 << 20
)

// trialTables are the tables of the sweeps that were read last.
type trialTables struct {
	mu   sync.Mutex
	open []*trialTable // the one used last is the last
}

// table returns the table of a sweep. Old tables are forgotten if there are too many.
func (t *trialTables) table(sweep string) *trialTable {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.IndexFunc(t.open, func(one *trialTable) bool { return one.sweep == sweep })
	var found *trialTable
	if at >= 0 {
		found = t.open[at]
		t.open = slices.Delete(t.open, at, at+1)
	} else {
		found = newTrialTable(sweep)
	}
	t.open = append(t.open, found)
	cells := int64(0)
	for i, one := range slices.Backward(t.open) {
		if cells += one.cells.Load(); i < len(t.open)-1 && (len(t.open)-i > maxTables || cells > maxTableCells) {
			t.open = slices.Delete(t.open, 0, i+1)
			break
		}
	}
	return found
}

// forget removes the table of a sweep that was deleted.
func (t *trialTables) forget(table *trialTable) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = slices.DeleteFunc(t.open, func(one *trialTable) bool { return one == table })
}

// trialTable has the trials of a sweep as columns. It is read from Control once, and then kept up to date.
type trialTable struct {
	id    string // distinguishes the versions of this table from those of others
	sweep string
	cells atomic.Int64

	mu      sync.Mutex
	view    *outbidv1.Sweep
	begin   time.Time // when the sweep was submitted
	version uint64    // of Control
	next    <-chan struct{}
	read    time.Time
	changed []uint64 // the version of each trial's last change
	configs []string
	columns []*trialColumn
	index   map[columnKey]*trialColumn
	// sent has the newest updates, which several watchers ask for.
	sent []sentUpdate
}

type columnKey struct {
	kind outbidv1.TrialColumnKind
	name string
}

// trialColumn has the numbers and the texts of trials; both may be shorter than the table.
type trialColumn struct {
	columnKey
	numbers []float64
	text    []int32 // 0 for none, else the number of a word, counted from 1
	words   []string
	word    map[string]int32
}

func newTrialTable(sweep string) *trialTable {
	return &trialTable{id: rand.Text()[:10], sweep: sweep, index: map[columnKey]*trialColumn{}}
}

// refresh reads what changed. The caller holds t.mu.
func (t *trialTable) refresh(c Control) error {
	if t.view == nil {
		sweep, err := c.Sweep(t.sweep)
		if err != nil {
			return err
		}
		t.begin = sweep.GetSubmitted().AsTime()
	}
	for {
		version, next, err := c.EachChange(t.sweep, t.version, t.take)
		if err != nil {
			return err
		}
		settled := version == t.version && t.view != nil
		t.version, t.next, t.read = version, next, time.Now()
		t.cells.Store(int64(len(t.changed)) * int64(len(t.columns)+2))
		if t.view, err = c.Sweep(t.sweep); err != nil {
			return err
		}
		// The sweep may be newer than the trials, and next does not announce the changes before its end.
		if settled || !sweepEnded(t.view.GetState()) {
			return nil
		}
	}
}

// take puts the state of a trial into its row.
func (t *trialTable) take(trial *outbidv1.Trial) {
	row := int(trial.GetNumber())
	for len(t.changed) <= row {
		t.changed = append(t.changed, 0)
		t.configs = append(t.configs, "")
	}
	t.changed[row] = t.version + 1 // after the version that was read before, and not after the one that is being read
	sameConfig := t.configs[row] == trial.GetConfigJson()
	for _, c := range t.columns {
		if !sameConfig || c.kind != outbidv1.TrialColumnKind_TRIAL_COLUMN_KIND_PARAMETER {
			c.clear(row)
		}
	}
	own := func(name string) *trialColumn {
		return t.column(outbidv1.TrialColumnKind_TRIAL_COLUMN_KIND_TRIAL, name)
	}
	own("state").setText(row, trial.GetState().String())
	own("step").setNumber(row, float64(trial.GetStep()))
	own("until_step").setNumber(row, float64(trial.GetUntilStep()))
	own("reason").setText(row, trial.GetReason())
	if trial.Best != nil {
		own("best").setNumber(row, trial.GetBest())
		own("best_step").setNumber(row, float64(trial.GetBestStep()))
	}
	own("device_seconds").setNumber(row, single(trial.GetDeviceSeconds()))
	own("created").setNumber(row, t.secondsOf(trial.GetCreated()))
	own("ended").setNumber(row, t.secondsOf(trial.GetEnded()))
	if trial.CopiedFrom != nil {
		own("copied_from").setNumber(row, float64(trial.GetCopiedFrom()))
	}
	if trial.GetRounds() > 0 {
		own("rounds").setNumber(row, float64(trial.GetRounds()))
	}
	for _, name := range sortedKeys(trial.GetLast().GetMetrics()) {
		t.column(outbidv1.TrialColumnKind_TRIAL_COLUMN_KIND_METRIC, name).setNumber(row, trial.GetLast().GetMetrics()[name])
	}
	for _, name := range sortedKeys(trial.GetAttributes()) {
		t.column(outbidv1.TrialColumnKind_TRIAL_COLUMN_KIND_ATTRIBUTE, name).setText(row, trial.GetAttributes()[name])
	}
	if !sameConfig {
		t.configs[row] = trial.GetConfigJson()
		var config map[string]any
		if json.Unmarshal([]byte(trial.GetConfigJson()), &config) == nil {
			t.takeConfig(row, "", config)
		}
	}
}

// secondsOf returns a time in seconds after the sweep was submitted, or NaN for none.
func (t *trialTable) secondsOf(at *timestamppb.Timestamp) float64 {
	if at == nil {
		return math.NaN()
	}
	return single(at.AsTime().Sub(t.begin).Seconds())
}

// single rounds a number so that it is sent in four bytes.
func single(v float64) float64 { return float64(float32(v)) }

// takeConfig puts a configuration, or a group of one, into a row.
func (t *trialTable) takeConfig(row int, group string, config map[string]any) {
	for _, name := range sortedKeys(config) {
		column := func() *trialColumn {
			return t.column(outbidv1.TrialColumnKind_TRIAL_COLUMN_KIND_PARAMETER, group+name)
		}
		switch v := config[name].(type) {
		case map[string]any:
			t.takeConfig(row, group+name+".", v)
		case float64:
			column().setNumber(row, v)
		case string:
			column().setText(row, v)
		default:
			if text, err := json.Marshal(v); err == nil {
				column().setText(row, string(text))
			}
		}
	}
}

// sortedKeys returns the keys of a map in order. Most maps have few.
func sortedKeys[V any](m map[string]V) []string {
	if len(m) == 0 {
		return nil
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// column returns a column, which it adds if it is new; nil if there are too many.
func (t *trialTable) column(kind outbidv1.TrialColumnKind, name string) *trialColumn {
	key := columnKey{kind, name}
	c := t.index[key]
	if c == nil && len(t.columns) < maxColumns {
		c = &trialColumn{columnKey: key, word: map[string]int32{}}
		t.index[key] = c
		t.columns = append(t.columns, c)
	}
	return c
}

// parseSince returns the version in a token of this table; 0 for the start.
func (t *trialTable) parseSince(token string) uint64 {
	id, text, _ := strings.Cut(token, ".")
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil || id != t.id || version > t.version {
		return 0
	}
	return version
}

// rowsAfter lists the trials that changed after a version.
func (t *trialTable) rowsAfter(version uint64) []int32 {
	var rows []int32
	for row, changed := range t.changed {
		if changed > version {
			rows = append(rows, int32(row))
		}
	}
	return rows
}

func (c *trialColumn) clear(row int) {
	if row < len(c.numbers) {
		c.numbers[row] = math.NaN()
	}
	if row < len(c.text) {
		c.text[row] = 0
	}
}

func (c *trialColumn) setNumber(row int, v float64) {
	if c == nil {
		return
	}
	for len(c.numbers) <= row {
		c.numbers = append(c.numbers, math.NaN())
	}
	c.numbers[row] = v
}

func (c *trialColumn) setText(row int, v string) {
	if c == nil || v == "" {
		return
	}
	for len(c.text) <= row {
		c.text = append(c.text, 0)
	}
	n, ok := c.word[v]
	if !ok {
		c.words = append(c.words, v)
		n = int32(len(c.words))
		c.word[v] = n
	}
	c.text[row] = n
}

// number returns the number of a trial, NaN for none.
func (c *trialColumn) number(row int32) float64 {
	if int(row) < len(c.numbers) {
		return c.numbers[row]
	}
	return math.NaN()
}

// textOf returns the number of a trial's word, 0 for none.
func (c *trialColumn) textOf(row int32) int32 {
	if int(row) < len(c.text) {
		return c.text[row]
	}
	return 0
}
