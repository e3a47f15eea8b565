// Package subreaper runs a command below a process that the kernel makes the parent of every orphan below it: when the
// command has ended, all that it left behind is found there and ended, wherever it went. It is for machines without
// control groups.
//
// The process is this program once more. It talks with the worker over a socket, and the end of the worker is the end
// of the socket: then it ends everything too.
package subreaper
