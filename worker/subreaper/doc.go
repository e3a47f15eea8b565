// Package subreaper runs a command below a process that the kernel makes the parent of all its orphaned descendants.
// When the command has ended, the subreaper finds and ends everything that it left behind. It is for machines without
// control groups.
//
// The subreaper is another process of this program. It communicates with the worker over a socket. When the worker
// ends, the socket closes, and the subreaper ends everything too.
package subreaper
