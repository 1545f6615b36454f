package usage

import "slices"

// Kinds is the number of kinds of tokens.
const Kinds = 10

// The kinds of tokens, as indices of ByKind.
const (
	KindInput = iota
	KindOutput
	KindCacheRead
	KindCacheWrite5m
	KindCacheWrite1h
	KindReasoning
	KindAudioInput
	KindAudioOutput
	KindImageInput
	KindImageOutput
)

// kindNames are the names of the kinds in metrics, log lines and records, by index.
var kindNames = [Kinds]string{
	"input", "output", "cache_read", "cache_write_5m", "cache_write_1h", "reasoning",
	"audio_input", "audio_output", "image_input", "image_output",
}

// KindName returns the name of a kind by its index in ByKind.
func KindName(kind int) string { return kindNames[kind] }

// KindNames returns the names of all kinds, in the order of ByKind.
func KindNames() []string { return slices.Clone(kindNames[:]) }

// ByKind returns the count of each kind.
func (t Tokens) ByKind() [Kinds]int64 {
	return [Kinds]int64{
		t.Input, t.Output, t.CacheRead, t.CacheWrite5m, t.CacheWrite1h, t.Reasoning,
		t.AudioInput, t.AudioOutput, t.ImageInput, t.ImageOutput,
	}
}

// OfKinds returns the tokens with these counts, in the order of ByKind.
func OfKinds(n [Kinds]int64) Tokens {
	return Tokens{n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9]}
}

// AllInput returns the input of all kinds.
func (t Tokens) AllInput() int64 {
	return t.Input + t.CacheRead + t.CacheWrite5m + t.CacheWrite1h + t.AudioInput + t.ImageInput
}

// AllOutput returns the output of all kinds.
func (t Tokens) AllOutput() int64 { return t.Output + t.Reasoning + t.AudioOutput + t.ImageOutput }

// Plus returns the sum of t and u, kind by kind.
func (t Tokens) Plus(u Tokens) Tokens {
	return Tokens{
		Input: t.Input + u.Input, Output: t.Output + u.Output, CacheRead: t.CacheRead + u.CacheRead,
		CacheWrite5m: t.CacheWrite5m + u.CacheWrite5m, CacheWrite1h: t.CacheWrite1h + u.CacheWrite1h, Reasoning: t.Reasoning + u.Reasoning,
		AudioInput: t.AudioInput + u.AudioInput, AudioOutput: t.AudioOutput + u.AudioOutput,
		ImageInput: t.ImageInput + u.ImageInput, ImageOutput: t.ImageOutput + u.ImageOutput,
	}
}

// Minus returns the difference of t and u, kind by kind.
func (t Tokens) Minus(u Tokens) Tokens {
	n := u.ByKind()
	for kind := range n {
		n[kind] = -n[kind]
	}
	return t.Plus(OfKinds(n))
}
