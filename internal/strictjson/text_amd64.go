//go:build !purego

package strictjson

// text skips plain text of a string, as long as there are stride bytes of b after the index.
// Next is the index of the first byte from i on that ends plain text: a quote, a backslash or
// a control character. If less than stride bytes are after it, it may be plain text. High is
// the index of the first byte that is not ASCII, or next or more if there is none before
// next.
//
// The assembly makes a scan of a body of 200 KB NUMBERS. Compare with -tags purego:
//
//	go test ./internal/strictjson -run '^$' -bench Scan -count 6
//
//go:noescape
func text(b []byte, i int) (next, high int)
