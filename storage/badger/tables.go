package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/ristretto/v2/z"
	"golang.org/x/sync/errgroup"
)

// verifyTables reads every table that the manifest names and checks the checksums
// of its blocks. Badger treats a block that it cannot read as a block without
// keys, so damage must be found before it opens the directory. Badger has an
// option for this check. But it then also checks each table that it has just
// written, with all blocks of the table in memory. That takes half of the time and
// most of the memory of tables (measured, v4.9.6).
func verifyTables(dir string, opts badger.Options) error {
	file, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a new store
	}
	if err != nil {
		return err
	}
	defer file.Close()
	manifest, _, err := badger.ReplayManifestFile(file, opts.ExternalMagicVersion, opts)
	if err != nil {
		return err
	}
	var tables errgroup.Group
	tables.SetLimit(3) // as many as Badger opens at once
	for _, id := range slices.Sorted(maps.Keys(manifest.Tables)) {
		tables.Go(func() error {
			if err := verifyTable(table.NewFilename(id, dir), manifest.Tables[id].Compression, opts); err != nil {
				return fmt.Errorf("table %d is damaged; restore a backup: %w", id, err)
			}
			return nil
		})
	}
	return tables.Wait()
}

func verifyTable(name string, compression options.CompressionType, opts badger.Options) (err error) {
	// The library panics on a damaged index.
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("its index cannot be read: %.200v", why)
		}
	}()
	file, err := z.OpenMmapFile(name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	t, err := table.OpenTable(file, table.Options{
		ReadOnly: true, BlockSize: opts.BlockSize, Compression: compression, ChkMode: options.OnTableRead,
	})
	if err != nil {
		return err
	}
	return t.Close(-1)
}
