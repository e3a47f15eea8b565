// Packages of npm hold Go files; a module of its own keeps them out of ./... here.
module github.com/outbid-dev/outbid/orchestrator/dashboard/web

go 1.26
