package trace

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

// checkParse checks a parser on any input: it ends, every job is valid and in order, and a successful strict reading
// gives the same as a lenient one, which then skips nothing.
func checkParse(t *testing.T, data []byte, read func(*reader) error) {
	t.Helper()
	parse := func(lenient bool) (*Trace, error) {
		plain, err := unpack(bytes.NewReader(data), "fuzz")
		if err != nil {
			return nil, err
		}
		in := &reader{
			file: "fuzz", opts: Options{Lenient: lenient}, in: plain, trace: &Trace{Name: "fuzz"}, seen: map[string]bool{},
		}
		err = read(in)
		in.trace.Order()
		return in.trace, err
	}
	strict, err := parse(false)
	var row *RowError
	if errors.As(err, &row) && (row.Line < 1 || row.File == "" || row.Reason == "") {
		t.Fatalf("the error does not say where or why: %+v", row)
	}
	lenient, lenientErr := parse(true)
	if err == nil && (lenientErr != nil || lenient.Report.Broken > 0 || len(lenient.Jobs) != len(strict.Jobs)) {
		t.Fatalf("strict reading is content, lenient is not: %v, %s", lenientErr, lenient.Report.String())
	}
	if lenient == nil {
		return
	}
	seen := make(map[string]bool)
	for i := range lenient.Jobs {
		job := &lenient.Jobs[i]
		if err := job.Validate(); err != nil {
			t.Fatalf("job %d: %v", i, err)
		}
		if seen[job.ID] || i > 0 && job.Submit < lenient.Jobs[i-1].Submit {
			t.Fatalf("job %d, %q: twice, or out of order", i, job.ID)
		}
		seen[job.ID] = true
	}
	lenient.Summary()
}

// seeds adds the good and the broken samples of some formats.
func seeds(f *testing.F, formats ...string) {
	f.Helper()
	for _, s := range samples() {
		if len(formats) == 0 || slices.Contains(formats, s.name) {
			f.Add([]byte(s.text))
			f.Add([]byte(s.broken))
		}
	}
}

func FuzzCommonCSV(f *testing.F) {
	seeds(f, "common")
	f.Fuzz(func(t *testing.T, data []byte) { checkParse(t, data, readCommonCSV) })
}

func FuzzPhilly(f *testing.F) {
	seeds(f, "philly")
	f.Fuzz(func(t *testing.T, data []byte) { checkParse(t, data, readPhilly) })
}

func FuzzHelios(f *testing.F) {
	seeds(f, "helios")
	f.Fuzz(func(t *testing.T, data []byte) { checkParse(t, data, readHelios) })
}

func FuzzPAI(f *testing.F) {
	seeds(f, "pai")
	f.Fuzz(func(t *testing.T, data []byte) { checkParse(t, data, readPAI) })
}

func FuzzOpenb(f *testing.F) {
	seeds(f, "openb")
	f.Fuzz(func(t *testing.T, data []byte) { checkParse(t, data, readOpenb) })
}

func FuzzGavel(f *testing.F) {
	seeds(f, "gavel")
	f.Fuzz(func(t *testing.T, data []byte) { checkParse(t, data, readGavel) })
}

func FuzzGavelVC(f *testing.F) {
	seeds(f, "gavel vc")
	f.Fuzz(func(t *testing.T, data []byte) { checkParse(t, data, readGavelVC) })
}

func FuzzShockwave(f *testing.F) {
	seeds(f, "shockwave")
	f.Fuzz(func(t *testing.T, data []byte) { checkParse(t, data, readShockwave) })
}

func FuzzMuri(f *testing.F) {
	seeds(f, "muri", "tiresias")
	f.Fuzz(func(t *testing.T, data []byte) { checkParse(t, data, readMuri) })
}

func FuzzOutbidJSON(f *testing.F) {
	f.Add([]byte("{\"kind\":\"trace\",\"version\":1,\"name\":\"x\"}\n{\"kind\":\"app\",\"id\":\"a\",\"tuner\":\"none\"}\n" +
		"{\"kind\":\"job\",\"id\":\"j\",\"submit_s\":1,\"min_gpus\":1,\"max_gpus\":2,\"share\":1,\"weight\":1,\"app\":\"a\"}\n"))
	f.Fuzz(func(t *testing.T, data []byte) { checkParse(t, data, readOutbidJSON) })
}

func FuzzOutbidCSV(f *testing.F) {
	f.Add([]byte("id,submit_s,min_gpus,max_gpus,app,app_eta,loss,utility\na,0,1,1,x,2,1;2;3;4,1;2;3\nb,0,1,1,x,2,,\n"))
	f.Fuzz(func(t *testing.T, data []byte) { checkParse(t, data, readOutbidCSV) })
}

// FuzzRead also covers the detection of the format, and gzip.
func FuzzRead(f *testing.F) {
	seeds(f)
	f.Add([]byte{0x1f, 0x8b, 8, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Read(bytes.NewReader(data), "fuzz", Options{Lenient: true})
		if (got == nil) == (err == nil) {
			t.Fatalf("got %v and %v", got, err)
		}
		if err != nil && !strings.Contains(err.Error(), "fuzz") {
			t.Fatalf("the error does not name the file: %v", err)
		}
	})
}

func FuzzThroughputs(f *testing.F) {
	f.Add([]byte(smallTable))
	f.Add([]byte("model,num_gpus,gpu_type,steps_per_s,num_colocated_entries\nA3C,1,k80,3.4,26\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := ReadThroughputs(bytes.NewReader(data), "fuzz")
		if err != nil {
			if !strings.Contains(err.Error(), "fuzz") {
				t.Fatalf("the error does not name the file: %v", err)
			}
			return
		}
		for _, gpuType := range table.GPUTypes() {
			for _, job := range table.JobTypes(gpuType) {
				if speed, err := table.Isolated(job.Model, job.GPUs, gpuType); err != nil || !(speed >= 0) {
					t.Fatalf("%s on %s: %g, %v", job, gpuType, speed, err)
				}
			}
		}
	})
}
