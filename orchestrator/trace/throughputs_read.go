package trace

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/sanitize"
)

// OpenThroughputs reads a table of speeds from a file, compressed or not, in one of two forms known by the content:
//
//	Gavel's JSON  {"v100": {"('A3C', 1)": {"null": steps/s alone, "('LM (batch size 5)', 1)": [own, other's], …}, …}, …}
//	CSV           model,num_gpus,gpu_type,steps_per_s[,…] with a header
func OpenThroughputs(path string) (*Throughputs, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the throughputs: %w", err)
	}
	defer f.Close()
	return ReadThroughputs(f, path)
}

// ReadThroughputs is OpenThroughputs for an open file. name is its name in errors.
func ReadThroughputs(r io.Reader, name string) (*Throughputs, error) {
	in, err := unpack(r, name)
	if err != nil {
		return nil, err
	}
	table := newThroughputs(name)
	head, _ := in.Peek(sniffed)
	if strings.HasPrefix(strings.TrimLeft(string(head), " \t\r\n\ufeff"), "{") {
		err = table.readJSON(in, name)
	} else {
		err = table.readCSV(&reader{file: name, in: in, trace: &Trace{}}, head)
	}
	if err != nil {
		return nil, err
	}
	if table.Len() == 0 {
		return nil, fmt.Errorf("%s: the table has no throughputs", name)
	}
	return table, nil
}

func (t *Throughputs) readJSON(in io.Reader, name string) error {
	var raw map[string]map[string]map[string]json.RawMessage
	if err := json.NewDecoder(in).Decode(&raw); err != nil {
		return fmt.Errorf("%s: not a table of throughputs: %w", name, err)
	}
	shape := regexp.MustCompile(`^\('(.+)', (\d{1,6})\)$`)
	for gpuType, jobs := range raw {
		for key, values := range jobs {
			job, err := parseJobType(shape, key)
			if err != nil {
				return fmt.Errorf("%s: type %s: %w", name, gpuType, err)
			}
			if err := t.takeJSON(shape, gpuType, job, values); err != nil {
				return fmt.Errorf("%s: type %s, job %s: %w", name, gpuType, key, err)
			}
		}
	}
	return nil
}

func (t *Throughputs) takeJSON(shape *regexp.Regexp, gpuType string, job JobType, all map[string]json.RawMessage) error {
	for key, value := range all {
		if key == "null" {
			var speed float64
			if err := json.Unmarshal(value, &speed); err != nil || !(speed >= 0 && speed <= MaxSeconds) {
				return fmt.Errorf("%q: want steps per second, 0 or more", sanitize.Line(string(value), 40))
			}
			t.set(gpuType, job, speed)
			continue
		}
		other, err := parseJobType(shape, key)
		if err != nil {
			return err
		}
		var speeds []float64
		err = json.Unmarshal(value, &speeds)
		if err != nil || len(speeds) != 2 || !(min(speeds[0], speeds[1]) >= 0) || max(speeds[0], speeds[1]) > MaxSeconds {
			return fmt.Errorf("together with %s: %q: want two speeds, 0 or more", key, sanitize.Line(string(value), 40))
		}
		t.setPair(gpuType, job, other, [2]float64{speeds[0], speeds[1]})
	}
	return nil
}

// parseJobType parses ('LM (batch size 5)', 4).
func parseJobType(shape *regexp.Regexp, key string) (JobType, error) {
	parts := shape.FindStringSubmatch(key)
	if parts == nil {
		return JobType{}, fmt.Errorf("job type %q: want ('MODEL', GPUS)", sanitize.Line(key, 60))
	}
	gpus, err := strconv.Atoi(parts[2])
	if err != nil || gpus < 1 {
		return JobType{}, fmt.Errorf("job type %q: want at least 1 GPU", sanitize.Line(key, 60))
	}
	return JobType{parts[1], gpus}, nil
}

func (t *Throughputs) readCSV(r *reader, head []byte) error {
	line, _, _ := strings.Cut(strings.TrimPrefix(string(head), "\ufeff"), "\n")
	columns := []string{"model", "num_gpus", "gpu_type", "steps_per_s"}
	if !containsAll(strings.Split(strings.TrimSpace(line), ","), columns) {
		return fmt.Errorf("%s: no table of throughputs begins with %q: known are Gavel's JSON and CSV with the columns %s",
			r.file, sanitize.Line(line, 80), strings.Join(columns, ", "))
	}
	rows, err := r.csvTable(nil)
	if err != nil {
		return err
	}
	return rows.each(func(w *row) error {
		job := JobType{w.text("model"), w.whole("num_gpus", 1)}
		gpuType, speed := w.text("gpu_type"), w.number("steps_per_s")
		if job.Model == "" {
			w.bad("model", "a name")
		}
		if gpuType == "" {
			w.bad("gpu_type", "a name")
		}
		if w.err != nil {
			return w.fault(w.err)
		}
		if _, twice := t.isolated[gpuType][job]; twice {
			reason := fmt.Sprintf("%s of type %s is a duplicate", job, gpuType)
			return w.fault(&RowError{Line: w.line, Reason: reason})
		}
		t.set(gpuType, job, speed)
		return nil
	})
}
