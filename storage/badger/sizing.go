package badger

import (
	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

const (
	// maxInline is the largest value that is kept in the tree beside its key,
	// and the most Badger allows there. Larger ones go to the value log, a file
	// of their own that is synced before the transaction is.
	maxInline = 1 << 20

	// valueLogSize is where Badger begins a new value-log file. It maps twice
	// that into memory and must not have to grow the mapping: readers hold
	// slices of it. maxLargeValues keeps every transaction within.
	valueLogSize   = 64 << 20
	maxLargeValues = 48 << 20

	// maxKey is Badger's bound for keys; its own error would print the key.
	maxKey = 65000
)

// sizing is what a word of `memory` stands for, in bytes.
type sizing struct {
	memtable   int64 // writes gathered in memory, and again in a log file
	blockCache int64 // blocks of tables, decompressed
	indexCache int64 // indexes and Bloom filters of tables
	rows       int64 // values that were read lately
}

// sizings are the words of `memory`.
var sizings = map[string]sizing{
	"small":  {memtable: 8 << 20, blockCache: 8 << 20, indexCache: 8 << 20, rows: 128 << 20},
	"normal": {memtable: 32 << 20, blockCache: 32 << 20, indexCache: 32 << 20, rows: 128 << 20},
	"large":  {memtable: 128 << 20, blockCache: 128 << 20, indexCache: 128 << 20, rows: 128 << 20},
}

// leastFree is the free space that the logs of all memtables, their tables and
// a compaction of them may take before a commit can be refused.
func (s sizing) leastFree() int64 { return 8 * s.memtable }

// minFree is the default of the free space kept.
func (s sizing) minFree() int64 { return max(256<<20, s.leastFree()) }

// options returns Badger's options for a directory.
func (s sizing) options(dir string, log badger.Logger) badger.Options {
	return badger.DefaultOptions(dir).
		WithLogger(log).
		WithMetricsEnabled(false).

		// Durability: every commit is synced before it is acknowledged. Updates
		// run one at a time, which is more than Badger's own detection of
		// conflicts gives (it misses keys that a scan did not find).
		WithSyncWrites(true).
		WithDetectConflicts(false).
		WithNumVersionsToKeep(1).

		// The directory is locked by this package from before Open until after
		// Close, because files are removed before Open.
		WithBypassLockGuard(true).

		// verifyTables has looked at the tables before they are opened.
		WithChecksumVerificationMode(options.NoVerification).
		WithVerifyValueChecksum(true).
		WithValueThreshold(maxInline).
		WithValueLogFileSize(valueLogSize).

		// One memtable takes writes while at most two others become tables.
		WithMemTableSize(s.memtable).
		WithNumMemtables(2).
		WithNumCompactors(2).
		WithBlockCacheSize(s.blockCache).
		WithIndexCacheSize(s.indexCache).

		// Much of what a transaction looks for is not there, as the key of
		// idempotency of whatever is done for the first time: each table that is
		// taken to have it, 1 in 100 by default, unpacks a block in vain.
		WithBloomFalsePositive(0.001).

		// Records are JSON: Snappy makes the tables 3.6 times smaller and a read
		// 5 % slower.
		WithCompression(options.Snappy)
}
