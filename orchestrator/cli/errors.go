package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outbid-dev/outbid/orchestrator/server"
	"github.com/outbid-dev/outbid/orchestrator/sim/experiment"
)

// The exit codes, documented at Main.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitStopped     = 3
	exitUnreachable = 4
	exitInterrupted = 130
)

// errInterrupted ends a command that the user interrupted.
var errInterrupted = &exitError{code: exitInterrupted, msg: "interrupted"}

// exitError is an error with an exit code. Its text is msg, or that of err if msg is empty. With neither, nothing is
// printed, because the command has already printed everything.
type exitError struct {
	code int
	msg  string
	err  error
}

// Error implements error.
func (e *exitError) Error() string {
	if e.msg == "" && e.err != nil {
		return e.err.Error()
	}
	return e.msg
}

// Unwrap returns the wrapped error for package errors.
func (e *exitError) Unwrap() error { return e.err }

// badInput returns an error with exit code 2.
func badInput(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// exitSilently ends a command with an exit code but without a message.
func exitSilently(code int) error { return &exitError{code: code} }

// exitMessage returns an error's exit code and its message on one line.
func exitMessage(err error) (int, string) {
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.code, oneLine(err.Error())
	}
	if _, ok := errors.AsType[*experiment.InputError](err); ok {
		return exitUsage, oneLine(err.Error())
	}
	if field, ok := errors.AsType[*server.FieldError](err); ok {
		return exitUsage, oneLine(field.Named(flagOf(field.Field)))
	}
	if away, ok := errors.AsType[*server.UnreachableError](err); ok {
		return exitUnreachable, oneLine(away.Error())
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted, "interrupted"
	}
	if s, ok := grpcStatus(err); ok {
		return codeOf(s.Code()), oneLine(s.Message())
	}
	return exitFailed, oneLine(err.Error())
}

// grpcStatus returns the status in an error's chain. It returns false if err is nil or does not have a status.
func grpcStatus(err error) (*status.Status, bool) {
	carrier, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err)
	if !ok {
		return nil, false
	}
	return carrier.GRPCStatus(), true
}

// codeOf maps a gRPC code to an exit code.
func codeOf(c codes.Code) int {
	switch c {
	case codes.OK:
		return exitOK
	case codes.InvalidArgument, codes.NotFound, codes.OutOfRange:
		return exitUsage
	case codes.Unavailable:
		return exitUnreachable
	case codes.Canceled:
		return exitInterrupted
	default:
		return exitFailed
	}
}

// isCode reports whether an error has that gRPC code.
func isCode(err error, c codes.Code) bool {
	s, ok := grpcStatus(err)
	return ok && s.Code() == c
}

// oneLine joins the lines of a text.
func oneLine(s string) string {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	for i, p := range parts {
		parts[i] = strings.TrimSpace(p)
	}
	return strings.Join(parts, "; ")
}

// usageError converts cobra's error to one line that names the relevant help.
func usageError(root, cmd *cobra.Command, args []string, err error) error {
	if _, ok := errors.AsType[*exitError](err); ok {
		return err
	}
	msg, _, _ := strings.Cut(err.Error(), "\n")
	if cmd == nil || cmd == root {
		msg += suggestion(root, args)
		return badInput("%s (see 'outbid help')", msg)
	}
	return badInput("%s (see '%s --help')", msg, cmd.CommandPath())
}

// suggestion names the commands that were probably meant.
func suggestion(root *cobra.Command, args []string) string {
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		if near := root.SuggestionsFor(arg); len(near) > 0 {
			return fmt.Sprintf("; did you mean %s?", strings.Join(near, " or "))
		}
		return ""
	}
	return ""
}

// exactArgs requires one argument for each name, and names a missing one.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return fmt.Errorf("%s is missing", names[len(args)])
		}
		if len(args) > len(names) {
			return fmt.Errorf("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// flagOf returns the flag that sets a field of server.Config, server.LoneWorkerConfig or server.LedgerConfig.
func flagOf(field string) string {
	if flag, ok := map[string]string{
		"API": "--api", "TLSCert": "--tls-cert", "TLSKey": "--tls-key", "Bidders": "--bidder",
		"NATS.URL": "--nats", "NATS.Listen": "--nats-listen", "NATS.CA": "--ca", "NATS.NKey": "--nats-nkey",
		"NATS.Replicas": "--nats-replicas", "NATS.Creds": "--nats-creds", "NATS.Public": "--nats-public",
		"PolicyOptions": "--policy-option", "Trials.Trust": "--trust-trials", "Trials.User": "--trial-user",
		"Trials.Groups": "--trial-group", "Trials.Dir": "--trial-dir", "Trials.Processes": "--trial-processes",
		"Trials.Files": "--trial-files", "Trials.Network": "--trial-network", "Labels": "--label",
		"OIDC.IssuerURL": "--oidc-issuer-url", "OIDC.ClientID": "--oidc-client-id", "OIDC.CAFile": "--oidc-ca-file",
		"OIDC.UsernameClaim": "--oidc-username-claim", "OIDC.GroupsClaim": "--oidc-groups-claim",
		"OIDC.Scopes": "--oidc-scopes", "OIDC.Bindings": "--oidc-bindings",
		"ServiceAccounts.Accounts": "--service-accounts",
	}[field]; ok {
		return flag
	}
	name := field[strings.LastIndexByte(field, '.')+1:] // other flags have the field's name
	var flag strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			flag.WriteByte('-')
		}
		flag.WriteRune(unicode.ToLower(r))
	}
	return "--" + flag.String()
}
