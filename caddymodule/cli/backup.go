package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/storage"
)

func backup(c *call) error {
	client, err := newClient(c.Command)
	if err != nil {
		return err
	}
	resp, err := client.send(c.Context(), http.MethodGet, "/modelgate/backup", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	file := c.args["file"]
	var n int64
	if file == "-" {
		if _, err = io.Copy(c.OutOrStdout(), resp.Body); err != nil {
			err = fmt.Errorf("the backup is incomplete: %w", err)
		}
	} else {
		n, err = writeWhole(file, resp.Body)
	}
	if err != nil {
		return err
	}
	// The gateway cannot detect whether the file is complete.
	if err := client.call(c.Context(), http.MethodPost, "/modelgate/backup/completed", nil, new(struct{})); err != nil {
		fmt.Fprintln(c.ErrOrStderr(), "the gateway did not record this backup:", err)
	}
	if file == "-" {
		return nil
	}
	return c.printed(map[string]any{"file": file, "bytes": n}, func(w *tabwriter.Writer, _ *call, _ []byte) error {
		_, err := fmt.Fprintf(w, "%s: %d bytes\n", file, n)
		return err
	})
}

// writeWhole writes r to a new file that only its owner can read. It names the file after
// all of it is on the disk.
func writeWhole(name string, r io.Reader) (n int64, err error) {
	if _, err := os.Lstat(name); err == nil {
		return 0, errExit{exitRefused, fmt.Errorf("%s already exists", name)}
	}
	temp, err := os.CreateTemp(filepath.Dir(name), ".modelgate-backup-*")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temp.Name()))
		}
	}()
	n, err = io.Copy(temp, r)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return n, fmt.Errorf("the backup is incomplete: %w", err)
	}
	return n, os.Rename(temp.Name(), name)
}

func restore(c *call) error {
	directory := c.args["directory"]
	if err := restoreInto(c.Context(), c.flag("engine"), c.args["file"], directory); err != nil {
		return err
	}
	return c.printed(map[string]any{"directory": directory}, func(w *tabwriter.Writer, _ *call, _ []byte) error {
		_, err := fmt.Fprintf(w, "restored into %s\n", directory)
		return err
	})
}

// restoreInto opens a new store by its module, as a configuration would, and reads the
// backup into it. If that fails, it removes the directory.
func restoreInto(ctx context.Context, engine, file, directory string) (err error) {
	backup, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return errExit{exitNotFound, err}
	}
	if err != nil {
		return err
	}
	defer backup.Close()
	if entries, err := os.ReadDir(directory); err == nil && len(entries) > 0 {
		return errExit{exitRefused, fmt.Errorf("%s is not empty", directory)}
	}
	opened, err := openFresh(ctx, engine, directory)
	if err != nil {
		return err
	}
	if into, ok := opened.(storage.Backuper); ok {
		err = into.Restore(ctx, backup)
	} else {
		err = errUsage("--engine %s: the engine has no restore", engine)
	}
	if err = errors.Join(err, opened.Close()); err != nil {
		return errors.Join(err, os.RemoveAll(directory))
	}
	return nil
}

func openFresh(ctx context.Context, engine, directory string) (storage.Engine, error) {
	raw, err := json.Marshal(map[string]string{"path": directory})
	if err != nil {
		return nil, err
	}
	quiet := &caddy.CustomLog{BaseLog: caddy.BaseLog{Level: "WARN"}}
	caddyCtx, err := caddy.ProvisionContext(&caddy.Config{
		Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{caddy.DefaultLoggerName: quiet}},
	})
	if err != nil {
		return nil, err
	}
	module, err := caddyCtx.LoadModuleByID("modelgate.storage."+engine, raw)
	if err != nil {
		return nil, errUsage("--engine %s: %w", engine, err)
	}
	opener, ok := module.(storage.Opener)
	if !ok {
		return nil, errUsage("--engine %s: the module is not a storage engine", engine)
	}
	return opener.Open(ctx)
}
