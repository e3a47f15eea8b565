package trace

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
)

func paiTaskColumns() []string {
	return []string{
		"job_name", "task_name", "inst_num", "status", "start_time",
		"end_time", "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
	}
}

func paiJobColumns() []string {
	return []string{"job_name", "inst_id", "user", "status", "start_time", "end_time"}
}

// paiTask is a row of pai_task_table.
type paiTask struct {
	line             int
	instances        float64
	start, end       float64
	cpus, mem, share float64
	gpus             int
	kind             string
	status           string
}

// readPAI reads Alibaba's GPU trace of 2020, pai_task_table.csv, as published: without header (it is in a
// separate file), ten columns, one task a row; the tasks of a job need not be together:
//
//	job_name, task_name   a job has one task or more: worker, ps, evaluator, …
//	inst_num              instances of the task
//	status                Terminated (which is success), Failed, Running or Waiting
//	start_time, end_time  seconds from an unknown day; empty if it did not start or end
//	plan_cpu              percent of a core, for each instance
//	plan_mem              GB, for each instance
//	plan_gpu              percent of a GPU, for each instance; empty for none
//	gpu_type              T4, P100, V100, MISC, …; empty for none
//
// A job's gang is the sum over its tasks of instances times GPUs. Part of a GPU counts as one GPU, and Share corrects
// the sum. A job lasts from its first task's start to its last task's end. Jobs with a task that never started or
// never ended are skipped and counted. The arrival and the user are in pai_job_table: see Options.JobTable.
func readPAI(r *reader) error {
	t, err := r.csvTable(paiTaskColumns())
	if err != nil {
		return err
	}
	return t.readTasks()
}

// readPAIWithHeader reads the same table with a header on top.
func readPAIWithHeader(r *reader) error {
	t, err := r.csvTable(nil)
	if err != nil {
		return err
	}
	return t.readTasks()
}

func (t *table) readTasks() error {
	var owners map[string]paiOwner
	if t.opts.JobTable != "" {
		var err error
		if owners, err = readPAIOwners(t.opts.JobTable); err != nil {
			return err
		}
	}
	tasks, names := make(map[string][]paiTask), []string(nil)
	err := t.each(func(w *row) error {
		name, task := w.text("job_name"), w.paiTask()
		if name == "" {
			w.bad("job_name", "a name")
		}
		if w.err != nil {
			return w.fault(w.err)
		}
		if _, known := tasks[name]; !known {
			names = append(names, name)
		}
		tasks[name] = append(tasks[name], task)
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := t.addPAI(name, tasks[name], owners[name]); err != nil {
			return err
		}
	}
	t.trace.FromZero()
	return nil
}

func (w *row) paiTask() paiTask {
	task := paiTask{
		line:      w.line,
		instances: w.optional("inst_num"),
		start:     w.optional("start_time"),
		end:       w.optional("end_time"),
		cpus:      w.optional("plan_cpu") / 100,
		mem:       w.optional("plan_mem"),
		share:     w.optional("plan_gpu") / 100,
		kind:      w.text("gpu_type"),
		status:    w.text("status"),
	}
	if task.instances != math.Trunc(task.instances) || task.instances > MaxGPUs {
		w.bad("inst_num", "a whole number")
		return task
	}
	if perInstance := math.Ceil(task.share); perInstance*task.instances > MaxGPUs {
		w.bad("plan_gpu", fmt.Sprintf("at most %d GPUs", MaxGPUs))
	} else {
		task.gpus = int(perInstance * task.instances)
	}
	return task
}

func (t *table) addPAI(name string, tasks []paiTask, owner paiOwner) error {
	job := Job{ID: name, Tenant: owner.user, User: owner.user, Submit: math.Inf(1), Weight: 1, Share: 1}
	end, wanted, mem := 0.0, 0.0, 0.0
	for _, task := range tasks {
		if task.start == 0 || task.end == 0 {
			t.trace.Report.leaveOut("a task never started or never ended")
			return nil
		}
		job.Submit, end = min(job.Submit, task.start), max(end, task.end)
		job.MaxGPUs += task.gpus
		wanted += float64(task.instances * task.share)
		job.CPUs += float64(task.instances * task.cpus)
		mem += float64(task.instances * task.mem)
		if task.gpus > 0 && task.kind != "" && !slices.Contains(job.GPUTypes, task.kind) {
			job.GPUTypes = append(job.GPUTypes, task.kind)
		}
		if job.Status == "" || task.status != "Terminated" {
			job.Status = task.status
		}
	}
	slices.SortFunc(job.GPUTypes, cmp.Compare[string])
	job.MinGPUs, job.Duration, job.Memory = job.MaxGPUs, end-job.Submit, int64(min(mem, 1e9)*(1<<30))
	if job.MaxGPUs > 0 {
		job.Share = min(1, wanted/float64(job.MaxGPUs))
	}
	if job.Duration < 0 {
		reason := "a task of the job ends before its first task starts"
		return t.fault(&RowError{Line: tasks[0].line, Column: "end_time", Reason: reason})
	}
	if owner.submit > 0 && owner.submit <= job.Submit {
		job.Submit = owner.submit
	}
	return t.add(tasks[0].line, job)
}

// paiOwner is the data of a job in pai_job_table.
type paiOwner struct {
	user   string
	submit float64
}

// readPAIOwners reads pai_job_table.csv, with or without header: job_name, inst_id, user, status, start_time (the
// submission), end_time.
func readPAIOwners(path string) (map[string]paiOwner, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the job table: %w", err)
	}
	defer f.Close()
	plain, err := unpack(f, path)
	if err != nil {
		return nil, err
	}
	in := csv.NewReader(plain)
	in.FieldsPerRecord, in.ReuseRecord = len(paiJobColumns()), true
	owners := make(map[string]paiOwner)
	for first := true; ; first = false {
		cells, err := in.Read()
		if errors.Is(err, io.EOF) {
			return owners, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the job table %s: %w", path, err)
		}
		if first && cells[0] == "job_name" {
			continue
		}
		line, _ := in.FieldPos(0)
		submit, err := strconv.ParseFloat(cells[4], 64)
		if err != nil && cells[4] != "" || !(submit >= 0 && submit <= MaxSeconds) {
			bad := badValue(line, "start_time", cells[4], "want seconds")
			bad.File = path
			return nil, bad
		}
		owners[cells[0]] = paiOwner{user: cells[2], submit: submit}
	}
}

func knownPAIStatus(s string) bool {
	return s == "Terminated" || s == "Failed" || s == "Running" || s == "Waiting"
}

// plausiblePAI reports whether a row without header looks like a task.
func plausiblePAI(cells []string) bool {
	_, err := strconv.ParseFloat(cells[2], 64)
	return knownPAIStatus(cells[3]) && (err == nil || cells[2] == "")
}
