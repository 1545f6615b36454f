package badger

import (
	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

const (
	// maxInline is the largest value that Badger allows in the tree. Larger
	// ones go to the value log, a separate file that is synced before the
	// transaction is.
	maxInline = 1 << 20

	// valueLogSize is the size at which Badger begins a new value-log file.
	// Badger maps twice that into memory. The mapping must never grow, because
	// readers hold slices of it. maxLargeValues keeps every transaction within
	// it.
	valueLogSize   = 64 << 20
	maxLargeValues = 48 << 20

	// maxKey is Badger's limit for keys; Badger's own error would print the
	// key.
	maxKey = 65000
)

// sizing holds the sizes in bytes for one value of `memory`.
//
// Under sustained writes, most memory of the engine is the buffers in which
// tables are built. Badger keeps them in one pool for memtables and merges, so
// each buffer grows to the largest use. A buffer holds a table both
// uncompressed and compressed, and doubles until that fits. A dozen are in use
// when tables are merged, 27 at most (13 for each of two compactors, one for a
// memtable). So memtable and table are chosen together. Records of the ledger
// compress to a quarter; then both fit a buffer of 14 times table.
//
// With normal, a memtable is 3.5 tables, and the first level of merged tables 3,
// because Badger splits a merge into parts of three tables. The parts run in
// parallel, and each holds a core for 10 ms before Go lets a call run. With twice
// these sizes the p99 of calls at saturation on one core was 80 ms while tables
// were merged. It is 50 ms now, and 35 ms without merges.
type sizing struct {
	memtable   int64 // writes collected in memory, and again in a log file
	table      int64 // a merged table, compressed
	baseLevel  int64 // size of the first level of merged tables
	blockCache int64 // blocks of tables, decompressed
	indexCache int64 // indexes and Bloom filters of tables
	rows       int64 // values that were read recently
	heapGrowth int64 // at least, between two garbage collections
}

// sizings has the values of `memory`.
var sizings = map[string]sizing{
	"small":  {memtable: 7 << 18, table: 256 << 10, baseLevel: 3 << 18, blockCache: 4 << 20, indexCache: 4 << 20, rows: 8 << 20, heapGrowth: 32 << 20},
	"normal": {memtable: 7 << 19, table: 1 << 20, baseLevel: 3 << 20, blockCache: 16 << 20, indexCache: 32 << 20, rows: 64 << 20, heapGrowth: 64 << 20},
	"large":  {memtable: 28 << 20, table: 4 << 20, baseLevel: 24 << 20, blockCache: 128 << 20, indexCache: 128 << 20, rows: 128 << 20, heapGrowth: 128 << 20},
}

const (
	// mergeAt is the number of tables at level 0 that are merged into the level
	// below; memtables wait at maxUnmerged. With four or more, Badger may
	// merge them among themselves instead, in a buffer of at least 256 MiB.
	mergeAt     = 2
	maxUnmerged = 3

	// levelRatio is the size ratio of one level to the level above. Badger
	// splits the merge of one table into parts of three tables of the next level,
	// with one buffer each. With 5 instead of Badger's 10 there are two such parts.
	levelRatio = 5
)

// inline returns the largest value in bytes that is stored in the tree: no more
// than a transaction may have.
func (s sizing) inline() int64 { return min(maxInline, s.memtable*15/100) }

// leastFree returns the free space that the logs of all memtables, their tables
// and two compactions may use before a commit can be refused.
func (s sizing) leastFree() int64 { return 8*s.memtable + 4*s.baseLevel }

// minFree returns the default of Badger.MinFree.
func (s sizing) minFree() int64 { return max(256<<20, s.leastFree()) }

// options returns Badger's options for a directory.
func (s sizing) options(dir string, log badger.Logger) badger.Options {
	o := badger.DefaultOptions(dir).
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

		// verifyTables has checked the tables before they are opened.
		WithChecksumVerificationMode(options.NoVerification).
		WithVerifyValueChecksum(true).
		WithValueThreshold(s.inline()).
		WithValueLogFileSize(valueLogSize).

		// One memtable takes writes while at most two others become tables.
		WithMemTableSize(s.memtable).
		WithNumMemtables(2).
		WithNumCompactors(2).
		WithBlockCacheSize(s.blockCache).
		WithIndexCacheSize(s.indexCache).

		// Many keys that a transaction reads are absent, such as a new
		// idempotency key. Each false positive, 1 in 100 by default, decompresses
		// a block in vain.
		WithBloomFalsePositive(0.001).

		// Records are JSON: Snappy makes the tables 3.6 times smaller and a read
		// 5 % slower.
		WithCompression(options.Snappy).
		WithBaseTableSize(s.table).
		WithBaseLevelSize(s.baseLevel).
		WithLevelSizeMultiplier(levelRatio).
		WithNumLevelZeroTables(mergeAt).
		WithNumLevelZeroTablesStall(maxUnmerged)
	o.TableSizeMultiplier = 1 // tables of deep levels, and their buffers, would be larger
	return o
}
