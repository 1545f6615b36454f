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
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

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
	return c.printed(map[string]any{"file": file, "bytes": n}, fixed("%s: %d bytes\n", file, n))
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
	directory, config := c.args["directory"], c.flag("config")
	if (directory == "") == (config == "") {
		return errUsage("name the directory of the new store, or with --config a configuration whose store is shared")
	}
	into, result := directory, map[string]any{"directory": directory}
	var err error
	if config != "" {
		into, result = "the store of "+config, map[string]any{"config": config}
		err = restoreShared(c.Context(), config, c.flag("adapter"), c.args["file"])
	} else {
		err = restoreInto(c.Context(), c.flag("engine"), c.args["file"], directory)
	}
	if err != nil {
		return err
	}
	return c.printed(result, fixed("restored into %s\n", into))
}

// restoreInto opens a new store by its module, as a configuration would, and reads the
// backup into it. If that fails, it removes the directory.
func restoreInto(ctx context.Context, engine, file, directory string) (err error) {
	backup, err := openBackup(file)
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
	if err := restoreEngine(ctx, opened, backup); err != nil {
		return errors.Join(err, os.RemoveAll(directory))
	}
	return nil
}

// restoreShared reads the backup into the shared store of a configuration. If that fails, the
// store is empty, as before.
func restoreShared(ctx context.Context, config, adapter, file string) (err error) {
	backup, err := openBackup(file)
	if err != nil {
		return err
	}
	defer backup.Close()
	raw, _, _, err := caddycmd.LoadConfig(config, adapter)
	if err != nil {
		return err
	}
	var whole struct {
		Apps struct {
			Modelgate struct {
				Storage map[string]json.RawMessage `json:"storage"`
			} `json:"modelgate"`
		} `json:"apps"`
	}
	if err := json.Unmarshal(raw, &whole); err != nil {
		return err
	}
	storageOf := whole.Apps.Modelgate.Storage
	var engine string
	_ = json.Unmarshal(storageOf["engine"], &engine) // "" without a store
	delete(storageOf, "engine")
	raw, err = json.Marshal(storageOf)
	if err != nil {
		return err
	}
	opener, err := loadOpener(engine, raw)
	if err != nil {
		return fmt.Errorf("the store of %s: %w", config, err)
	}
	if shared, ok := opener.(storage.Sharer); !ok || !shared.Shared() {
		return errUsage("the store of %s is on one machine; name its directory instead of --config", config)
	}
	opened, err := opener.Open(ctx)
	if err != nil {
		return err
	}
	return restoreEngine(ctx, opened, backup)
}

func openBackup(file string) (*os.File, error) {
	backup, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errExit{exitNotFound, err}
	}
	return backup, err
}

// restoreEngine reads a backup into an engine and closes it.
func restoreEngine(ctx context.Context, opened storage.Engine, backup io.Reader) (err error) {
	if into, ok := opened.(storage.Backuper); ok {
		err = into.Restore(ctx, backup)
	} else {
		err = errUsage("the engine has no restore")
	}
	if errors.Is(err, storage.ErrNotEmpty) {
		err = errExit{exitRefused, err}
	}
	return errors.Join(err, opened.Close())
}

func openFresh(ctx context.Context, engine, directory string) (storage.Engine, error) {
	raw, err := json.Marshal(map[string]string{"path": directory})
	if err != nil {
		return nil, err
	}
	opener, err := loadOpener(engine, raw)
	if err != nil {
		return nil, errUsage("--engine %s: %w", engine, err)
	}
	return opener.Open(ctx)
}

// loadOpener provisions the module of a store, outside of a server.
func loadOpener(engine string, raw json.RawMessage) (storage.Opener, error) {
	quiet := &caddy.CustomLog{BaseLog: caddy.BaseLog{Level: "WARN"}}
	caddyCtx, err := caddy.ProvisionContext(&caddy.Config{
		Logging: &caddy.Logging{Logs: map[string]*caddy.CustomLog{caddy.DefaultLoggerName: quiet}},
	})
	if err != nil {
		return nil, err
	}
	module, err := caddyCtx.LoadModuleByID("modelgate.storage."+engine, raw)
	if err != nil {
		return nil, err
	}
	opener, ok := module.(storage.Opener)
	if !ok {
		return nil, errors.New("the module is not a storage engine")
	}
	return opener, nil
}
