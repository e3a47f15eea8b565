package cli

import (
	"context"
	"fmt"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/api"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// browserWait is how long an opener of URLs may take to fail. Some run for as long as the browser does.
const browserWait = 2 * time.Second

// dashboardCommand opens the dashboard.
type dashboardCommand struct {
	*client
	// browse opens a URL in this machine's browser.
	browse func(ctx context.Context, link string) error
}

func (d *dashboardCommand) uiCommand() *cobra.Command {
	var printOnly bool
	cmd := &cobra.Command{
		Use:   "ui [SWEEP]",
		Short: "Open the dashboard in a browser",
		Long: `Ui opens the server's web pages, or the page of a sweep, in this machine's browser.

If the server asks for a token, the link signs you in with yours: it works once, within a minute, and does not contain
the token. --print prints the link instead of opening it, for a browser on another machine.`,
		Example: `  outbid ui
  outbid ui digits
  outbid ui --print`,
		Args:              optionalArg,
		ValidArgsFunction: d.completeSweeps(),
		RunE: func(cmd *cobra.Command, args []string) error {
			link, err := d.dashboardLink(cmd.Context(), args)
			if err != nil {
				return err
			}
			plain, _, signsIn := strings.Cut(link, "#")
			if printOnly {
				d.printf("%s\n", link)
				return nil
			}
			if err := d.browse(cmd.Context(), link); err == nil {
				d.notef("opened %s", plain)
				return nil
			}
			note := "no browser could be opened here: open this link"
			if signsIn {
				note += " within a minute; it works once"
			}
			d.notef("%s", note)
			d.printf("%s\n", link)
			return nil
		},
	}
	cmd.Flags().BoolVar(&printOnly, "print", false, "print the link")
	return cmd
}

// dashboardLink returns the URL of the pages, or of the page of a sweep. With a token it ends in a code that signs in.
func (d *dashboardCommand) dashboardLink(ctx context.Context, args []string) (string, error) {
	c, err := d.connect()
	if err != nil {
		return "", err
	}
	defer c.close()
	sweep := ""
	if len(args) > 0 {
		found, err := c.find(ctx, args[0])
		if err != nil {
			return "", err
		}
		sweep = found.GetId()
	} else if _, err := c.GetServerInfo(ctx, &outbidv1.GetServerInfoRequest{}); err != nil {
		return "", err
	}
	link := pageURL(c.target.url, sweep)
	if c.target.token != "" {
		link += "#code=" + api.NewSignInCode(c.target.token, d.now())
	}
	return link, nil
}

// pageURL returns the address of the dashboard of a server, or of a sweep's page.
func pageURL(server, sweep string) string {
	base := strings.TrimSuffix(server, "/") + "/ui/"
	if sweep == "" {
		return base
	}
	return base + "sweeps/" + url.PathEscape(sweep)
}

// openBrowser opens a URL with the machine's own opener.
func openBrowser(ctx context.Context, link string) error {
	name, args := "xdg-open", []string{link}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", link}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), name, args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(browserWait):
		return nil
	}
}

// optionalArg accepts at most one argument.
func optionalArg(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return fmt.Errorf("unexpected argument %q", args[1])
	}
	return nil
}
