package cli

import (
	"context"
	"io"
	"net"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/mcp"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// mcpFlags has the flags of mcp.
type mcpFlags struct {
	http            string
	tlsCert, tlsKey string
	readOnly        bool
}

// mcpCommand serves assistants.
type mcpCommand struct {
	*process
}

func (m *mcpCommand) command() *cobra.Command {
	var o mcpFlags
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Let a coding assistant run sweeps and read their results",
		Long: `Mcp serves the Model Context Protocol to a coding assistant. Its tools list, show, explain and compare sweeps and
trials, simulate other policies, and preview, start, pause, resume, stop, extend and annotate sweeps. They act on the
same server as the other commands, with the permissions of the same token. --read-only offers only the tools that read.

The assistant starts this command and talks to it over standard input and output. With --http it serves any number of
assistants at http://HOST:PORT/mcp instead. If the server requires tokens, each HTTP request then needs its own, as
"Authorization: Bearer TOKEN": --token, --token-file and OUTBID_TOKEN are not used for others. Other machines can
connect only with --tls-cert and --tls-key, and only if the server requires tokens.`,
		Example: `  outbid mcp
  outbid mcp --read-only
  outbid mcp --http 127.0.0.1:7780
  claude mcp add outbid -- outbid mcp`,
		Args:              exactArgs(),
		ValidArgsFunction: cobra.NoFileCompletions,
		Annotations:       map[string]string{ownInterrupts: "ends", globalFlags: globalServer + " " + globalLog},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("log-level") {
				m.opts.logLevel = "warn" // clients show the log as errors
			}
			ctx, stop := m.interrupts.until(cmd.Context())
			defer stop()
			err := m.runMCP(ctx, o)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // it ended as requested
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.http, "http", "", "serve HTTP on this `HOST:PORT` instead of standard input and output; port 0 chooses a free one")
	f.BoolVar(&o.readOnly, "read-only", false, "offer only tools that change nothing")
	f.StringVar(&o.tlsCert, "tls-cert", "", "with --http: PEM `FILE` of the certificate")
	f.StringVar(&o.tlsKey, "tls-key", "", "with --http: PEM `FILE` of its key")
	_ = cmd.MarkFlagFilename("tls-cert")
	_ = cmd.MarkFlagFilename("tls-key")
	return cmd
}

// runMCP serves assistants until ctx ends or, on standard input, until the assistant leaves.
func (m *mcpCommand) runMCP(ctx context.Context, o mcpFlags) error {
	if (o.tlsCert == "") != (o.tlsKey == "") {
		return badInput("--tls-cert and --tls-key belong together: give both or none")
	}
	logger, err := m.logger()
	if err != nil {
		return err
	}
	cfg := mcp.Config{Version: m.version, ReadOnly: o.readOnly, Example: string(exampleSweep), Logger: logger}
	if o.http != "" {
		return m.serveMCP(ctx, o, cfg)
	}
	if o.tlsCert != "" {
		return badInput("--tls-cert is for HTTP: give --http HOST:PORT too")
	}
	cfg.Connect = func(context.Context, string) (*mcp.Connection, error) {
		c, err := m.connect()
		if err != nil {
			return nil, err
		}
		return m.mcpConnection(c.target, c, c.close), nil
	}
	return mcp.New(cfg).Run(ctx, &sdk.IOTransport{Reader: io.NopCloser(m.stdin), Writer: writeNopCloser{m.stdout}})
}

// serveMCP serves assistants over HTTP.
func (m *mcpCommand) serveMCP(ctx context.Context, o mcpFlags, cfg mcp.Config) error {
	host, _, err := net.SplitHostPort(o.http)
	if err != nil {
		return badInput("--http %q: want HOST:PORT, such as 127.0.0.1:7780", o.http)
	}
	open := host != "localhost" && !net.ParseIP(host).IsLoopback()
	switch {
	case open && o.tlsCert == "":
		return badInput("--http %s: other machines could read tokens on the way: give --tls-cert and --tls-key, or an address of this machine "+
			"such as 127.0.0.1:7780", o.http)
	case m.opts.token != "" || m.opts.tokenFile != "":
		return badInput("--token cannot be used with --http: each assistant sends its own token, as \"Authorization: Bearer TOKEN\"")
	}
	cfg.Connect = m.connectAs
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.http)
	if err != nil {
		return badInput("--http %s: %w", o.http, err)
	}
	scheme := "http"
	if o.tlsCert != "" {
		scheme = "https"
	}
	m.printf("the Model Context Protocol is served at %s://%s%s\n", scheme, l.Addr(), mcp.Path)
	return mcp.New(cfg).Serve(ctx, l, mcp.HTTPConfig{Open: open, TLSCert: o.tlsCert, TLSKey: o.tlsKey})
}

// connectAs connects to the server with an assistant's token, and never with that of this process.
func (m *mcpCommand) connectAs(_ context.Context, token string) (*mcp.Connection, error) {
	t, err := m.findServer()
	if err != nil {
		return nil, err
	}
	t.token = token
	conn, err := dial(t, m.caFile(), func() {})
	if err != nil {
		return nil, err
	}
	return m.mcpConnection(t, outbidv1.NewOutbidServiceClient(conn), func() { _ = conn.Close() }), nil
}

func (m *mcpCommand) mcpConnection(t target, client outbidv1.OutbidServiceClient, done func()) *mcp.Connection {
	return &mcp.Connection{
		API: client, Where: t.where(), Close: done,
		Page: func(sweep string) string { return pageURL(t.url, sweep) },
	}
}

// writeNopCloser is a writer that is not closed with its user.
type writeNopCloser struct{ io.Writer }

// Close implements io.Closer.
func (writeNopCloser) Close() error { return nil }
