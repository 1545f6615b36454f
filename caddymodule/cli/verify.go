package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/storage"
)

func verifyCommand() *cobra.Command {
	cmd := command("verify", "Rebuilds every balance from entries and transfers and checks that money, tasks and the records of files add up", func(cmd *cobra.Command, _ []string) error {
		backup, _ := cmd.Flags().GetString("backup")
		engine, _ := cmd.Flags().GetString("engine")
		found := verifyServer
		if backup != "" {
			found = func(cmd *cobra.Command) (adminapi.Verification, error) {
				return verifyBackup(cmd.Context(), engine, backup)
			}
		}
		v, err := found(cmd)
		if err != nil {
			return err
		}
		if err := printed(cmd, v, func(w io.Writer) { printVerified(w, v) }); err != nil {
			return err
		}
		if v.Report.Problems > 0 {
			return errors.New(counted(v.Report.Problems, "problem", "problems"))
		}
		return nil
	})
	cmd.Flags().String("backup", "", "Check this backup instead of the running gateway")
	cmd.Flags().String("engine", "badger", "The storage engine to read the backup with")
	return cmd
}

func verifyServer(cmd *cobra.Command) (v adminapi.Verification, err error) {
	c, err := newClient(cmd)
	if err != nil {
		return v, err
	}
	err = c.call(cmd.Context(), http.MethodPost, "/modelgate/verify", nil, &v)
	return v, err
}

// verifyBackup reads a backup into a store of its own beside it, which is
// removed afterwards, and checks that.
func verifyBackup(ctx context.Context, engine, file string) (v adminapi.Verification, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".modelgate-verify-*")
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fresh := filepath.Join(dir, "store")
	if err := restore(ctx, engine, file, fresh); err != nil {
		return v, err
	}
	opened, err := openFresh(ctx, engine, fresh)
	if err != nil {
		return v, err
	}
	store := storage.New(opened, storage.Options{})
	v, err = adminapi.Verify(ctx, store)
	return v, errors.Join(err, store.Close())
}

func printVerified(w io.Writer, v adminapi.Verification) {
	fmt.Fprintf(w, "%s, %s, %s, %s, %s of %s in %v\n",
		counted(v.Accounts, "account", "accounts"), counted(v.Entries, "entry", "entries"), counted(v.Transfers, "transfer", "transfers"),
		counted(v.Calls, "call", "calls"), counted(v.Holds, "hold", "holds"), counted(v.Users, "user", "users"), v.Took.Round(time.Millisecond))
	if v.Report.Problems == 0 {
		fmt.Fprintln(w, "Everything adds up.")
		return
	}
	for _, p := range v.Problems {
		fmt.Fprintf(w, "%s: %s\n", p.Where, p.What)
	}
	if told := int64(len(v.Problems)); told < v.Report.Problems {
		fmt.Fprintf(w, "and %d more\n", v.Report.Problems-told)
	}
}
