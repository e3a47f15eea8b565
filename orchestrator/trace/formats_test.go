package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sample is a small file in a published format, and the expected result of reading it.
type sample struct {
	name, text, format string
	want               []Job
	rows               int
	leftOut            map[string]int
	rescaled           int
	// broken is a text with one broken row; line and column are its position.
	broken string
	line   int
	column string
}

const gavelLine = "python3 main.py --data_dir=%s/cifar10\timage_classification/cifar10\t--num_steps\t1\t"

func samples() []sample {
	return []sample{
		{
			name: "common", format: "common csv", rows: 2,
			text: "job_id,submit_s,num_gpus,duration_s,tenant,status,model,gpu_type,extra\n" +
				"0,0.0,1,666.9,vc1,Pass,ResNet-50 (batch size 64),v100,steps=2931;priority=2;user=u;nodes=1\n" +
				"1,5,1,,LS,Running,,,cpu_milli=6000;mem_mib=12288;gpu_milli=460;sched=5\n",
			want: []Job{
				{
					ID: "0", Tenant: "vc1", User: "u", MinGPUs: 1, MaxGPUs: 1, Share: 1, Duration: 666.9, Weight: 2, Nodes: 1,
					Status: "Pass", Model: "ResNet-50 (batch size 64)", TotalSteps: 2931, MeasuredOn: "v100",
				},
				{
					ID: "1", Tenant: "LS", Submit: 5, MinGPUs: 1, MaxGPUs: 1, Share: .46, Weight: 1, Status: "Running",
					CPUs: 6, Memory: 12 << 30,
				},
			},
			broken: "job_id,submit_s,num_gpus,duration_s,tenant,status,model,gpu_type,extra\n0,0,1,5,,,,,\n1,0,1.5,5,,,,,\n",
			line:   3, column: "num_gpus",
		},
		{
			name: "philly", format: "philly json", rows: 4,
			leftOut: map[string]int{"no attempt held a GPU": 1, "no attempt has both start and end": 1},
			text: `[
 {"status": "Pass", "vc": "ee9e8c", "jobid": "application_2", "user": "ce2f4c",
  "submitted_time": "2017-10-07 01:11:39", "attempts": [
   {"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:23", "detail": [{"ip": "m47", "gpus": ["gpu0"]}]},
   {"start_time": "2017-10-07 01:13:30", "end_time": "2017-10-09 06:53:12",
    "detail": [{"ip": "m412", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0", "gpu1"]}]}]},
 {"status": "Killed", "vc": "6214e9", "jobid": "application_1", "submitted_time": "2017-10-07 01:11:29", "user": "b",
  "attempts": [{"start_time": "2017-10-07 01:12:00", "end_time": "2017-10-07 01:12:10", "detail": [{"ip": "m1", "gpus": ["gpu3"]}]}]},
 {"status": "Failed", "vc": "6214e9", "jobid": "application_3", "submitted_time": "2017-10-07 01:12:00", "user": "b", "attempts": []},
 {"status": "Pass", "vc": "6214e9", "jobid": "application_4", "submitted_time": "2017-10-07 01:12:00", "user": "b",
  "attempts": [{"start_time": "2017-10-07 01:12:00", "end_time": null, "detail": [{"ip": "m1", "gpus": ["gpu3"]}]}]}
]`,
			want: []Job{
				{
					ID: "application_1", Tenant: "6214e9", User: "b", MinGPUs: 1, MaxGPUs: 1, Share: 1, Nodes: 1, Duration: 10,
					Weight: 1, Status: "Killed",
				},
				{
					ID: "application_2", Tenant: "ee9e8c", User: "ce2f4c", Submit: 10, MinGPUs: 4, MaxGPUs: 4, Share: 1, Nodes: 2,
					Duration: 74 + 2*86400 + 5*3600 + 39*60 + 42, Weight: 1, Status: "Pass",
				},
			},
			broken: "[\n{\"jobid\": \"a\", \"submitted_time\": \"2017-10-07 01:11:39\"},\n{\"jobid\": \"b\", \"submitted_time\": \"soon\"}]",
			line:   3, column: "submitted_time",
		},
		{
			name: "helios", format: "helios csv", rows: 2,
			text: "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n" +
				"1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0\n" +
				"1425511,uXBbc,vcJkd,0,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0\n",
			want: []Job{
				{
					ID: "1425511", Tenant: "vcJkd", User: "uXBbc", Share: 1, Nodes: 1, Duration: 36848, Weight: 1,
					Status: "COMPLETED", CPUs: 1,
				},
				{
					ID: "1425512", Tenant: "vchbv", User: "uVMrF", Submit: 26, MinGPUs: 4, MaxGPUs: 4, Share: 1, Nodes: 1,
					Duration: 249, Weight: 1, Status: "FAILED", CPUs: 16,
				},
			},
			broken: "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n" +
				"1,u,v,1,1,1,FAILED,yesterday,,,249,0\n",
			line: 2, column: "submit_time",
		},
		{
			name: "pai", format: "pai_task_table", rows: 4,
			leftOut: map[string]int{"a task never started or never ended": 1},
			text: "4f05,tensorflow,1.0,Terminated,1739162.0,1739200.0,600.0,29.296875,50.0,MISC\n" +
				"aa01,ps,2.0,Terminated,1739152.0,1739300.0,400.0,10.0,,\n" +
				"bb02,worker,1.0,Waiting,,,400.0,10.0,100.0,T4\n" +
				"aa01,worker,3.0,Failed,1739160.0,1739262.0,100.0,2.0,200.0,V100\n",
			want: []Job{
				{
					ID: "aa01", MinGPUs: 6, MaxGPUs: 6, Share: 1, GPUTypes: []string{"V100"}, Duration: 148, Weight: 1,
					Status: "Failed", CPUs: 11, Memory: 26 << 30,
				},
				{
					ID: "4f05", Submit: 10, MinGPUs: 1, MaxGPUs: 1, Share: .5, GPUTypes: []string{"MISC"}, Duration: 38, Weight: 1,
					Status: "Terminated", CPUs: 6, Memory: 31457280000,
				},
			},
			broken: "4f05,tensorflow,1.0,Terminated,1739162.0,1739200.0,600.0,29.296875,50.0,MISC\n" +
				"4f06,tensorflow,1.0,Terminated,1739162.0,1739200.0,600.0,29.296875,half,MISC\n",
			line: 2, column: "plan_gpu",
		},
		{
			name: "openb", format: "openb csv", rows: 3,
			text: "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n" +
				"openb-pod-0005,20000,65536,0,0,,LS,Running,1,13,2\n" +
				"openb-pod-0031,16000,32768,1,250,V100M16|V100M32,LS,Running,11,17,12\n" +
				"openb-pod-0017,88000,327680,8,1000,,Burstable,Pending,20,30,\n",
			want: []Job{
				{ID: "openb-pod-0005", Tenant: "LS", Submit: 1, Share: 1, Duration: 11, Weight: 1, Status: "Running", CPUs: 20, Memory: 64 << 30},
				{
					ID: "openb-pod-0031", Tenant: "LS", Submit: 11, MinGPUs: 1, MaxGPUs: 1, Share: .25, Duration: 5, Weight: 1,
					GPUTypes: []string{"V100M16", "V100M32"}, Status: "Running", CPUs: 16, Memory: 32 << 30,
				},
				{
					ID: "openb-pod-0017", Tenant: "Burstable", Submit: 20, MinGPUs: 8, MaxGPUs: 8, Share: 1, Duration: 10, Weight: 1,
					Status: "Pending", CPUs: 88, Memory: 320 << 30,
				},
			},
			broken: "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n" +
				"a,20000,65536,0,0,,LS,Running,10,13,2\nb,20000,65536,0,0,,LS,Running,10,3,2\n",
			line: 3, column: "deletion_time",
		},
		{
			name: "gavel", format: "gavel trace", rows: 2,
			text: "ResNet-18 (batch size 32)\t" + gavelLine + "646858\t2\t5\t1.200000\t0\n" +
				"A3C\t" + gavelLine + "51665\t1\t1\t-1.000000\t129\n",
			want: []Job{
				{ID: "0", MinGPUs: 2, MaxGPUs: 2, Share: 1, TotalSteps: 646858, Model: "ResNet-18 (batch size 32)", Weight: 5, SLO: 1.2},
				{ID: "1", Submit: 129, MinGPUs: 1, MaxGPUs: 1, Share: 1, TotalSteps: 51665, Model: "A3C", Weight: 1},
			},
			broken: "A3C\t" + gavelLine + "5\t1\t1\t-1\t129\nA3C\t" + gavelLine + "5\t0\t1\t-1\t129\n",
			line:   2, column: "scale factor",
		},
		{
			name: "gavel vc", format: "gavel vc trace", rows: 1,
			text: "Transformer (batch size 16)\tcd %s && python3 train.py\t-step\t1\t82787\t55.000000\t8\n",
			want: []Job{{
				ID: "0", Tenant: "gavel vc", Submit: 55, MinGPUs: 8, MaxGPUs: 8, Share: 1, TotalSteps: 82787,
				Model: "Transformer (batch size 16)", Weight: 1,
			}},
			broken: "A3C\tcmd\t-n\t1\tmany\t5\t1\n", line: 1, column: "total steps",
		},
		{
			name: "shockwave", format: "shockwave trace", rows: 1, rescaled: 1,
			text: "LM (batch size 10)\t" + gavelLine + "134583\t1\tgns\t1\t-1.000000\t1418\t7\n",
			want: []Job{{
				ID: "0", Submit: 7, MinGPUs: 1, MaxGPUs: 1, Share: 1, TotalSteps: 134583, Model: "LM (batch size 10)", Weight: 1,
				Duration: 1418,
			}},
			broken: "LM\t" + gavelLine + "1\t1\tnow and then\t1\t-1\t1\t7\n", line: 1, column: "mode",
		},
		{
			name: "muri", format: "muri csv", rows: 1,
			text: "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time," +
				"resource_time_0,resource_time_1,resource_time_2,priority\n0,8,91000,10956,gpt2,4,5095000,91000,437,0.6,419,49,1\n",
			want: []Job{{
				ID: "0", Submit: 91, MinGPUs: 8, MaxGPUs: 8, Share: 1, TotalSteps: 10956, Model: "gpt2 (batch size 4)", Weight: 1,
				Duration: 5095, Status: "priority=1",
			}},
			broken: "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time\n" +
				"0,8,0,1,gpt2,4,-5,0,437\n",
			line: 2, column: "duration",
		},
		{
			name: "tiresias", format: "tiresias csv", rows: 1,
			text: "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n1,8,30,133,vgg11,147,23\n",
			want: []Job{{
				ID: "1", Submit: 30, MinGPUs: 8, MaxGPUs: 8, Share: 1, TotalSteps: 133, Model: "vgg11", Weight: 1, Duration: 147,
			}},
			broken: "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n1,8,30,133,vgg11,147,23\n1,8,30,1,vgg11,1,2\n",
			line:   3, column: "job id",
		},
	}
}

func TestReadsEveryFormatByContent(t *testing.T) {
	t.Parallel()
	for _, s := range samples() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			got, err := Read(strings.NewReader(s.text), s.name, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(s.want, got.Jobs); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
			want := Report{Format: s.format, Rows: s.rows, LeftOut: s.leftOut, Rescaled: s.rescaled}
			if diff := cmp.Diff(want, got.Report); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			for _, ending := range []string{"\r\n"} {
				text := strings.ReplaceAll(s.text, "\n", ending)
				if again, err := Read(strings.NewReader(text), s.name, Options{}); err != nil || !cmp.Equal(got, again) {
					t.Errorf("with line ends %q: %v, %s", ending, err, cmp.Diff(got, again))
				}
			}
		})
	}
}

func TestReadsCompressedFiles(t *testing.T) {
	t.Parallel()
	for _, s := range samples() {
		path := filepath.Join(t.TempDir(), s.name+".gz")
		if err := os.WriteFile(path, packed(t, s.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s.want, got.Jobs); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.name, diff)
		}
	}
}

func packed(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestBrokenRowIsNamedOrCounted(t *testing.T) {
	t.Parallel()
	for _, s := range samples() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(strings.NewReader(s.broken), "jobs.csv", Options{})
			var row *RowError
			if !errors.As(err, &row) {
				t.Fatalf("got %v, want a RowError", err)
			}
			if row.File != "jobs.csv" || row.Line != s.line || row.Column != s.column || row.Reason == "" {
				t.Errorf("got %q, want jobs.csv line %d column %s", row, s.line, s.column)
			}
			got, err := Read(strings.NewReader(s.broken), "jobs.csv", Options{Lenient: true})
			if err != nil {
				t.Fatalf("lenient: %v", err)
			}
			if got.Report.Broken != 1 || len(got.Report.Errors) != 1 || got.Report.Errors[0].Error() != row.Error() {
				t.Errorf("lenient: report %+v, want one broken row, %v", got.Report, row)
			}
		})
	}
}

func TestPAITakesUserAndArrivalFromItsJobTable(t *testing.T) {
	t.Parallel()
	table := filepath.Join(t.TempDir(), "pai_job_table.csv")
	text := "job_name,inst_id,user,status,start_time,end_time\n4f05,x,u7,Terminated,1739100.0,1739200.0\n"
	if err := os.WriteFile(table, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tasks := "4f05,tensorflow,1.0,Terminated,1739162.0,1739200.0,600.0,29.2,50.0,MISC\n" +
		"4f06,tensorflow,1.0,Terminated,1739110.0,1739200.0,600.0,29.2,50.0,MISC\n"
	got, err := Read(strings.NewReader(tasks), "tasks", Options{JobTable: table})
	if err != nil {
		t.Fatal(err)
	}
	if got.Jobs[0].ID != "4f05" || got.Jobs[0].User != "u7" || got.Jobs[0].Submit != 0 || got.Jobs[0].Duration != 38 ||
		got.Jobs[1].Submit != 10 {
		t.Errorf("got %+v", got.Jobs)
	}
}

func TestWhatIsNoTraceIsRefusedWithAReason(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{"", "the trace is empty"},
		{"\n \n", "the trace is empty"},
		{"a,b,c\n1,2,3\n", `no known format begins with "a,b,c"`},
		{`{"v100": {"('A3C', 1)": {"null": 1.5}}}`, "give it to --throughputs"},
		{"model,num_gpus,gpu_type,steps_per_s\n", "give it to --throughputs"},
		{"name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,1\n", "no creation_time"},
		{"a,b,u,Terminated,1,2\n", "pai_job_table"},
		{"[{\"jobid\": ", "cut short"},
		{"[{\"jobid\" 5}]", "not JSON"},
		{"{\"kind\":\"trace\",\"version\":9}\n", "version 1"},
		{"{\"kind\":\"job\",\"id\":\"a\",\"gpu\":1}\n", "unknown field"},
		{"{\"kind\":\"dog\"}\n", "want trace, app or job"},
		{"{\"kind\":\"job\",\"id\":\"a\",\"min_gpus\":2,\"max_gpus\":1}\n", "0 <= min <= max"},
		{"{\"kind\":\"job\",\"id\":\"a\",\"app\":\"x\"}\n", "no earlier line of kind app"},
		{"job_id,submit_s,num_gpus,duration_s,tenant,status,model,gpu_type,extra\n1,2\n", "2 columns, want 9"},
		{"id,submit_s,min_gpus,max_gpus\na,0,1,1\na,0,1,1\n", "unique ids"},
	} {
		text, want := c[0], c[1]
		_, err := Read(strings.NewReader(text), "f", Options{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "f:") {
			t.Errorf("%q: got %v, want it to begin with the file and say %q", text, err, want)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Read(bytes.NewReader(packed(t, "job_id")[:12]), "f", Options{}); err == nil {
		t.Error("a file cut short was read")
	}
}
