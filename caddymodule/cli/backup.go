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

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/storage"
)

func backupCommand() *cobra.Command {
	cmd := command("backup <file>", "Writes a backup of the running gateway's store to a new file", func(cmd *cobra.Command, args []string) error {
		c, err := newClient(cmd)
		if err != nil {
			return err
		}
		resp, err := c.send(cmd.Context(), http.MethodGet, "/modelgate/backup", nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		n, err := writeWhole(args[0], resp.Body)
		if err != nil {
			return err
		}
		return printed(cmd, map[string]any{"file": args[0], "bytes": n}, func(w io.Writer) {
			fmt.Fprintf(w, "%s: %d bytes\n", args[0], n)
		})
	})
	cmd.Long = `Writes a backup of the running gateway's store to a new file.

It holds users, money and tasks. The master key is not in it, nor are the files
of results: these lie beside the store, in its directory .media or the configured
place, for 7 days. Where they are not restored, their links answer 410.`
	return cmd
}

// writeWhole writes r to a new file, readable by its owner only, which gets its
// name when all of it is on the disk.
func writeWhole(name string, r io.Reader) (n int64, err error) {
	if _, err := os.Lstat(name); err == nil {
		return 0, errExit{exitRefused, fmt.Errorf("%s is there already", name)}
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
		return n, fmt.Errorf("the backup is not whole: %w", err)
	}
	return n, os.Rename(temp.Name(), name)
}

func restoreCommand() *cobra.Command {
	cmd := command("restore <file> <directory>", "Reads a backup into a fresh store directory; the server that will use it must not run", func(cmd *cobra.Command, args []string) error {
		engine, _ := cmd.Flags().GetString("engine")
		if err := restore(cmd.Context(), engine, args[0], args[1]); err != nil {
			return err
		}
		return printed(cmd, map[string]any{"directory": args[1]}, func(w io.Writer) {
			fmt.Fprintf(w, "restored into %s\n", args[1])
		})
	})
	cmd.Flags().String("engine", "badger", "The storage engine of the directory")
	return cmd
}

// restore opens a fresh store by its module, as a configuration would, and
// reads the backup into it. What a failed restore has left there is removed.
func restore(ctx context.Context, engine, file, directory string) (err error) {
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
		err = errUsage("--engine %s cannot be restored", engine)
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
		return nil, errUsage("--engine %s opens no store", engine)
	}
	return opener.Open(ctx)
}
