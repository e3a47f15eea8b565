// Package trace holds workloads: the jobs of clusters, read from Outbid's formats and those in which clusters published
// theirs. Every workload is a Trace of Jobs in one neutral form.
//
// Open detects a file's format from its content, compressed with gzip or not:
//
//	Outbid's JSON lines and CSV            outbid_json.go, outbid_csv.go
//	the common CSV (job_id,submit_s,…)     commoncsv.go
//	Microsoft Philly (cluster_job_log)     philly.go
//	SenseTime Helios (cluster_log.csv)     helios.go
//	Alibaba 2020 (pai_task_table)          pai.go
//	Alibaba 2023 (openb_pod_list)          openb.go
//	Gavel (.trace, 10 or 7 columns)        gavel.go
//	Shockwave (.trace, 12 columns)         shockwave.go
//	Muri and Tiresias (.csv)               muri.go
//
// A broken row is an error with file, line, column and reason; with Options.Lenient it is counted and skipped.
// OpenThroughputs reads throughput tables.
package trace
