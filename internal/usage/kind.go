package usage

import "slices"

// Kinds is the number of kinds of tokens.
const Kinds = 6

// kindNames are the kinds' names in metrics, log lines and records, in the
// order of ByKind.
var kindNames = [Kinds]string{"input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning"}

// KindName returns the name of a kind by its index in ByKind.
func KindName(kind int) string { return kindNames[kind] }

// KindNames returns the names of all kinds, in the order of ByKind.
func KindNames() []string { return slices.Clone(kindNames[:]) }

// ByKind returns the tokens as a table.
func (t Tokens) ByKind() [Kinds]int64 {
	return [Kinds]int64{t.Input, t.Output, t.CacheRead, t.CacheWrite5m, t.CacheWrite1h, t.Reasoning}
}

// OfKinds returns the tokens of a table.
func OfKinds(n [Kinds]int64) Tokens { return Tokens{n[0], n[1], n[2], n[3], n[4], n[5]} }

// AllInput is the input of all kinds.
func (t Tokens) AllInput() int64 { return t.Input + t.CacheRead + t.CacheWrite5m + t.CacheWrite1h }

// AllOutput is the output of all kinds.
func (t Tokens) AllOutput() int64 { return t.Output + t.Reasoning }

// Plus returns the sum of t and u, kind by kind.
func (t Tokens) Plus(u Tokens) Tokens {
	return Tokens{
		Input: t.Input + u.Input, Output: t.Output + u.Output, CacheRead: t.CacheRead + u.CacheRead,
		CacheWrite5m: t.CacheWrite5m + u.CacheWrite5m, CacheWrite1h: t.CacheWrite1h + u.CacheWrite1h, Reasoning: t.Reasoning + u.Reasoning,
	}
}

// Minus returns the difference of t and u, kind by kind.
func (t Tokens) Minus(u Tokens) Tokens {
	return t.Plus(Tokens{-u.Input, -u.Output, -u.CacheRead, -u.CacheWrite5m, -u.CacheWrite1h, -u.Reasoning})
}
