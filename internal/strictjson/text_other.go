//go:build !amd64 || purego

package strictjson

// text is textByWords, where there is no assembly. See text_amd64.go.
func text(b []byte, i int) (next, high int) { return textByWords(b, i) }
