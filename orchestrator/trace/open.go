package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/outbid-dev/outbid/orchestrator/sanitize"
)

// Options are options of reading.
type Options struct {
	// Lenient counts and skips broken rows, instead of failing at the first.
	Lenient bool
	// JobTable is the path of the pai_job_table for Alibaba's pai_task_table. It has the user and the submission of a
	// job. Without it a job's tenant is unknown, and it arrives when its first task started.
	JobTable string
}

// sniffed is the size of a file's beginning from which its format is detected.
const sniffed = 64 << 10

// Open reads a trace from a file and detects the format from its content. Files may be compressed with gzip. Errors are
// those of the file system, *RowError for a broken row, or list the known formats.
func Open(path string, opts Options) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the trace: %w", err)
	}
	defer f.Close()
	t, err := Read(f, path, opts)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Read is Open for an open file. name is its name in errors, and gives the trace its name.
func Read(r io.Reader, name string, opts Options) (*Trace, error) {
	plain, err := unpack(r, name)
	if err != nil {
		return nil, err
	}
	head, err := plain.Peek(sniffed)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("read the trace %s: %w", name, err)
	}
	format, read, err := sniff(head)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	in := &reader{file: name, opts: opts, in: plain, trace: &Trace{Name: baseName(name)}, seen: make(map[string]bool)}
	in.trace.Report.Format = format
	if err := read(in); err != nil {
		return nil, err
	}
	if in.trace.Source == "" {
		in.trace.Source = format + ", " + in.trace.Name
	}
	in.trace.Order()
	return in.trace, nil
}

// unpack returns the content of a file that may be compressed.
func unpack(r io.Reader, name string) (*bufio.Reader, error) {
	raw := bufio.NewReaderSize(r, sniffed)
	magic, _ := raw.Peek(2)
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return raw, nil
	}
	z, err := gzip.NewReader(raw)
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", name, err)
	}
	return bufio.NewReaderSize(z, sniffed), nil
}

// baseName returns a file's name without folder and extensions.
func baseName(path string) string {
	name := strings.TrimSuffix(filepath.Base(path), ".gz")
	for _, ending := range []string{".csv", ".trace", ".jsonl", ".json"} {
		name = strings.TrimSuffix(name, ending)
	}
	return name
}

// layout is a format of delimited text that is detected from its header.
type layout struct {
	format string
	read   func(*reader) error
	// columns must all be in the header.
	columns []string
}

func layouts() []layout {
	return []layout{
		{"outbid csv", readOutbidCSV, []string{"id", "submit_s", "min_gpus", "max_gpus"}},
		{"common csv", readCommonCSV, commonColumns()},
		{"helios csv", readHelios, []string{"job_id", "gpu_num", "node_num", "state", "submit_time", "duration"}},
		{"openb csv", readOpenb, []string{"name", "cpu_milli", "num_gpu", "gpu_milli", "creation_time"}},
		{"muri csv", readMuri, []string{"job_id", "num_gpu", "submit_time", "model_name", "duration"}},
		{"pai_task_table", readPAIWithHeader, paiTaskColumns()},
	}
}

// sniff detects the format from a file's beginning.
func sniff(head []byte) (string, func(*reader) error, error) {
	text := strings.TrimPrefix(string(head), "\ufeff")
	text = strings.TrimLeft(text, " \t\r\n")
	line, _, _ := strings.Cut(text, "\n")
	line = strings.TrimSuffix(line, "\r")
	switch {
	case line == "":
		return "", nil, errors.New("the trace is empty")
	case line[0] == '[':
		return "philly json", readPhilly, nil
	case line[0] == '{' && strings.Contains(line, `"kind"`):
		return "outbid json lines", readOutbidJSON, nil
	case line[0] == '{' && strings.Contains(text, `"null":`):
		return "", nil, errors.New("this is a table of throughputs, not a trace: give it to --throughputs")
	}
	switch strings.Count(line, "\t") + 1 {
	case gavelColumns:
		return "gavel trace", readGavel, nil
	case shockwaveColumns:
		return "shockwave trace", readShockwave, nil
	case gavelVCColumns:
		return "gavel vc trace", readGavelVC, nil
	}
	return sniffCSV(line)
}

func sniffCSV(line string) (string, func(*reader) error, error) {
	cells := strings.Split(line, ",")
	for i := range cells {
		cells[i] = strings.Trim(strings.TrimSpace(cells[i]), `"`)
	}
	for _, l := range layouts() {
		if containsAll(cells, l.columns) {
			return l.format, l.read, nil
		}
	}
	switch {
	case containsAll(cells, []string{"steps_per_s", "gpu_type"}):
		return "", nil, errors.New("this is a table of throughputs, not a trace: give it to --throughputs")
	case containsAll(cells, []string{"cpu_milli", "num_gpu", "gpu_milli"}):
		return "", nil, errors.New("this list of openb pods has no creation_time and deletion_time: " +
			"a trace needs these times")
	case len(cells) == len(paiTaskColumns()) && plausiblePAI(cells):
		return "pai_task_table", readPAI, nil
	case len(cells) == len(paiJobColumns()) && (cells[3] == "status" || knownPAIStatus(cells[3])):
		return "", nil, errors.New("this is Alibaba's pai_job_table, which names no GPUs: " +
			"open pai_task_table and give this one as its job table")
	}
	return "", nil, fmt.Errorf("no known format begins with %q: known are Outbid's JSON lines and CSV, "+
		"job_id,submit_s,num_gpus,duration_s,… CSV, Philly's cluster_job_log, Helios's cluster_log.csv, "+
		"Alibaba's pai_task_table and openb_pod_list, Gavel's and Shockwave's .trace, Muri's CSV", sanitize.Line(line, 80))
}

func containsAll(have, want []string) bool {
	set := make(map[string]bool, len(have))
	for _, h := range have {
		set[h] = true
	}
	for _, w := range want {
		if !set[w] {
			return false
		}
	}
	return true
}
