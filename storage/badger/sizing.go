package badger

import (
	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

const (
	// maxInline is the most that Badger allows a value in the tree to have. Larger
	// ones go to the value log, a file of their own that is synced before the
	// transaction is.
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
//
// Most of what the engine takes under lasting writes are the buffers in which
// tables are built. Badger keeps them in one pool, for memtables and for merging
// alike, so that each grows to the largest use: a buffer holds a table both
// unpacked and packed, and doubles until it does. A dozen are in use when tables
// are merged, 27 at the most (13 for each of two compactors, one for a memtable).
// So memtable and table are chosen together: with records that pack to a quarter,
// as those of the ledger do, both fit a buffer of 14 times table.
//
// With normal, a memtable is 3.5 tables, and the first level of merged tables 3,
// because Badger splits a merge into parts of three tables. The parts run in
// parallel, and each holds a core for 10 ms before Go lets a call run. With twice
// these sizes the p99 of calls at saturation on one core was 80 ms while tables
// were merged; it is 50 ms now, and 35 ms without merges.
type sizing struct {
	memtable    int64 // writes gathered in memory, and again in a log file
	table       int64 // a table that was merged, packed
	baseLevel   int64 // what the first level of merged tables holds
	blockCache  int64 // blocks of tables, decompressed
	indexCache  int64 // indexes and Bloom filters of tables
	rows        int64 // values that were read lately
	heapReserve int64 // what the heap may grow by between two garbage collections, beside what Go lets it
}

// sizings are the words of `memory`.
var sizings = map[string]sizing{
	"small":  {memtable: 7 << 18, table: 256 << 10, baseLevel: 3 << 18, blockCache: 4 << 20, indexCache: 4 << 20, rows: 8 << 20, heapReserve: 0},
	"normal": {memtable: 7 << 19, table: 1 << 20, baseLevel: 3 << 20, blockCache: 16 << 20, indexCache: 32 << 20, rows: 128 << 20, heapReserve: 16 << 20},
	"large":  {memtable: 28 << 20, table: 4 << 20, baseLevel: 24 << 20, blockCache: 128 << 20, indexCache: 128 << 20, rows: 128 << 20, heapReserve: 32 << 20},
}

const (
	// mergeAt tables at level 0 are merged into the level below, and a memtable
	// waits while there are mostUnmerged. With four or more, Badger may merge them
	// among themselves instead, in a buffer of at least 256 MiB.
	mergeAt      = 2
	mostUnmerged = 3

	// levelRatio is how many times more a level holds than the one above it. Each
	// three tables that one table is merged with are one part of the work, with a
	// buffer of its own; with 5 instead of Badger's 10 there are two such parts.
	levelRatio = 5
)

// inline is the largest value that is kept in the tree: no more than a
// transaction may have.
func (s sizing) inline() int64 { return min(maxInline, s.memtable*15/100) }

// reserve returns memory that is never written to, so that the kernel never provides it.
// Go starts a garbage collection when the heap has doubled, and counts the reserve as a
// part of the heap: small memtables make a small heap, which it would collect more than
// twice as often for the same calls. A greater GOGC would multiply what merging tables
// takes, too (measured with 300: 516 MiB in all, which must be 300 MiB at most).
func (s sizing) reserve() []byte { return make([]byte, s.heapReserve) }

// leastFree is the free space that the logs of all memtables, their tables and
// two compactions may take before a commit can be refused.
func (s sizing) leastFree() int64 { return 8*s.memtable + 4*s.baseLevel }

// minFree is the default of the free space kept.
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

		// verifyTables has looked at the tables before they are opened.
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

		// Much of what a transaction looks for is not there, as the key of
		// idempotency of whatever is done for the first time: each table that is
		// taken to have it, 1 in 100 by default, unpacks a block in vain.
		WithBloomFalsePositive(0.001).

		// Records are JSON: Snappy makes the tables 3.6 times smaller and a read
		// 5 % slower.
		WithCompression(options.Snappy).
		WithBaseTableSize(s.table).
		WithBaseLevelSize(s.baseLevel).
		WithLevelSizeMultiplier(levelRatio).
		WithNumLevelZeroTables(mergeAt).
		WithNumLevelZeroTablesStall(mostUnmerged)
	o.TableSizeMultiplier = 1 // tables of deep levels, and their buffers, would be larger
	return o
}
