//go:build !amd64

package strictjson

// text passes over plain text of a string, as far as there are stride bytes of b
// at a time. Next is the index of the first byte from i on that is none: a
// quote, a backslash or a control character; with less than stride bytes behind
// it, it may be plain text all the same. High is the index of the first byte
// that is not ASCII, next or more where there is none before it.
func text(b []byte, i int) (next, high int) { return byWords(b, i) }
