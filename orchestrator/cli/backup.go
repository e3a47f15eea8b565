package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/outbid-dev/outbid/orchestrator/atomicfile"
	"github.com/outbid-dev/outbid/orchestrator/backup"
	"github.com/outbid-dev/outbid/orchestrator/server"
)

// backupCommands save and restore clusters.
type backupCommands struct {
	*client
	version string
}

func (b *backupCommands) command() *cobra.Command {
	return groupCommand(&cobra.Command{
		Use:   "backup",
		Short: "Save a running cluster to a file, inspect it, and restore it",
		Long: `Backup saves a cluster while it runs, and restores it into an empty data directory or an empty NATS. It works with the
cluster's keys, on the server's machine or where they were copied to, and not through the API: its users are
administrators of the cluster.`,
		Example:     "  outbid backup save /backups",
		Annotations: map[string]string{globalFlags: "ca " + globalLog},
	}, b.saveCommand(), b.inspectCommand(), b.restoreCommand())
}

// backupFlags adds the flags that save and restore share.
func backupFlags(cmd *cobra.Command, cfg *server.BackupConfig) {
	f := cmd.Flags()
	f.StringVar(&cfg.Data, "data", defaultData, "the server's data `DIR`")
	f.StringVar(&cfg.Store, "store", "", "`STORE` of checkpoints, as for 'outbid serve' (default: DATA/store)")
	f.StringVar(&cfg.NATS.URL, "nats", "", "`URL` of NATS, if it is not in the server's process")
	f.StringVar(&cfg.NATS.Keys, "keys", "", "`DIR` of the cluster's keys (default: DATA/keys)")
	natsFlags(cmd, &cfg.NATS)
	_ = cmd.MarkFlagDirname("data")
	_ = cmd.MarkFlagDirname("keys")
}

// prepare sets what the global flags and the build determine.
func (b *backupCommands) prepare(cfg *server.BackupConfig) (err error) {
	cfg.Version, cfg.NATS.CA = b.version, b.opts.ca
	cfg.Logger, err = b.logger()
	return err
}

func (b *backupCommands) saveCommand() *cobra.Command {
	var cfg server.BackupConfig
	cmd := &cobra.Command{
		Use:   "save FILE|DIR",
		Short: "Save a cluster to a file while it runs",
		Long: `Save writes everything that was acknowledged before it began: the ledger up to its last batch, the newest snapshot,
tenants' secrets (encrypted), the list of workers, the cluster's keys, and a list of the store's objects. In a
directory the file is named by the time. With --objects it also contains the objects: checkpoints and functions.

Whoever can read the file can act as the server; it is readable only by its owner. The output of trials, the tokens
file and certificates are not saved.`,
		Example: `  outbid backup save /backups
  outbid backup save cluster.backup --objects
  outbid backup save cluster.backup --nats nats://127.0.0.1:4222 --keys .outbid/keys`,
		Args: exactArgs("FILE|DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := b.prepare(&cfg); err != nil {
				return err
			}
			path := args[0]
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				path = filepath.Join(path, "outbid-"+b.now().UTC().Format("20060102T150405Z")+".backup")
			}
			m, err := saveBackup(cmd.Context(), path, cfg)
			if err != nil {
				return err
			}
			b.printf("wrote %s: %s batches of the ledger, to %s\n", path, formatCount(int64(m.Seq)), m.SeqTime.Format(time.RFC3339))
			return nil
		},
	}
	backupFlags(cmd, &cfg)
	cmd.Flags().BoolVar(&cfg.Copy, "objects", false, "save checkpoints and functions, not only their names")
	cmd.Flags().BoolVar(&cfg.WithoutKeys, "without-keys", false, "leave out the cluster's keys; restoring then needs them in --keys")
	return cmd
}

// saveBackup writes a backup to a file, which only its owner can read.
func saveBackup(ctx context.Context, path string, cfg server.BackupConfig) (m *backup.Manifest, err error) {
	err = atomicfile.WriteSynced(path, 0o600, func(f *os.File) error {
		m, err = server.SaveBackup(ctx, io.Writer(f), cfg)
		return err
	})
	return m, err
}

func (b *backupCommands) inspectCommand() *cobra.Command {
	var out format
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Check a backup and show what it contains",
		Long: `Inspect reads the whole file, checks every checksum and the chain of the ledger's batches, and prints what it contains.
It exits with 1 if the file is damaged.`,
		Example: "  outbid backup inspect cluster.backup",
		Args:    exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := backup.Open(args[0])
			if err != nil {
				return err
			}
			if err := errors.Join(f.Verify(cmd.Context()), f.Close()); err != nil {
				return err
			}
			if out != formatTable {
				return b.printObject(out, f.Manifest)
			}
			b.showBackup(&f.Manifest)
			return nil
		},
	}
	outputFlag(cmd, &out)
	return cmd
}

func (b *backupCommands) showBackup(m *backup.Manifest) {
	objects := "listed"
	if m.Copied {
		objects = "copied"
	}
	t := table{header: []string{"PART", "CONTENT"}, rows: [][]string{
		{"saved", m.Time.Format(time.RFC3339) + " by " + clean(m.Version)},
		{"ledger", formatCount(int64(m.Seq)) + " batches, to " + m.SeqTime.Format(time.RFC3339)},
		{"snapshot", "of batch " + formatCount(int64(m.Snapshot))},
		{"keys", strconv.Itoa(m.Keys) + " files"},
		{"objects", formatCount(int64(m.Objects)) + " " + objects + ", " + formatBytes(m.ObjectBytes)},
	}}
	for _, name := range sortedKeys(m.Streams) {
		t.rows = append(t.rows, []string{clean(name), formatCount(int64(m.Streams[name])) + " messages"})
	}
	t.width = b.columns()
	t.write(b.stdout)
	b.printf("every checksum is right\n")
}

func (b *backupCommands) restoreCommand() *cobra.Command {
	var cfg server.BackupConfig
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a cluster from a backup",
		Long: `Restore writes a backup into an empty data directory, or with --nats into a NATS without a ledger. It checks the whole
file first. Then start the server: sweeps continue from the last batch of the backup, and trials from their last
checkpoint. All servers of the cluster must be stopped.

Without --objects the backup does not contain checkpoints: give the server the store that it had.`,
		Example: `  outbid backup restore cluster.backup --data .outbid
  outbid backup restore cluster.backup --nats nats://127.0.0.1:4222 --keys .outbid/keys`,
		Args: exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := b.prepare(&cfg); err != nil {
				return err
			}
			f, err := backup.Open(args[0])
			if err != nil {
				return err
			}
			err = f.Verify(cmd.Context())
			if err == nil {
				err = server.RestoreBackup(cmd.Context(), f, cfg)
			}
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
			b.printf("restored %s batches, to %s; next: start the server\n", formatCount(int64(f.Seq)), f.SeqTime.Format(time.RFC3339))
			return nil
		},
	}
	backupFlags(cmd, &cfg)
	cmd.Flags().IntVar(&cfg.NATS.Replicas, "nats-replicas", 1, "copies of the ledger in a NATS cluster")
	return cmd
}
