package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/storage"
)

func verify(c *call) (err error) {
	var v adminapi.Verification
	if file := c.flag("backup"); file != "" {
		v, err = verifyBackup(c.Context(), c.flag("engine"), file)
	} else {
		err = c.send(http.MethodPost, "/modelgate/verify", &v)
	}
	if err != nil {
		return err
	}
	if err := c.printed(v, decoded(printVerified)); err != nil {
		return err
	}
	if v.Report.Problems > 0 {
		return errors.New(counted(v.Report.Problems, "problem", "problems"))
	}
	return nil
}

// verifyBackup restores a backup into a temporary store in the same directory and checks
// that store.
func verifyBackup(ctx context.Context, engine, file string) (v adminapi.Verification, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".modelgate-verify-*")
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fresh := filepath.Join(dir, "store")
	if err := restoreInto(ctx, engine, file, fresh); err != nil {
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

func printVerified(w *tabwriter.Writer, v *adminapi.Verification) {
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
	if listed := int64(len(v.Problems)); listed < v.Report.Problems {
		fmt.Fprintf(w, "and %d more\n", v.Report.Problems-listed)
	}
}
