package settings

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
)

// Reader reads the arguments and the block of a word. The dispenser is at the word. Errors name
// file and line.
type Reader = func(d *caddyfile.Dispenser) error

// Block reads the lines of a block, each by the reader of its first word. It refuses arguments
// before the block, unknown words, and words that appear twice, unless they are among repeated.
func Block(d *caddyfile.Dispenser, words map[string]Reader, repeated ...string) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	seen := make(map[string]bool)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		read, ok := words[word]
		if !ok {
			return d.Errf("unknown word %q; allowed: %s", word, strings.Join(slices.Sorted(maps.Keys(words)), ", "))
		}
		if seen[word] && !slices.Contains(repeated, word) {
			return d.Errf("%q is given twice", word)
		}
		seen[word] = true
		if err := read(d); err != nil {
			return err
		}
	}
	return nil
}

// Located adds file and line to an error; nil stays nil.
func Located(d *caddyfile.Dispenser, err error) error {
	if err == nil {
		return nil
	}
	return d.WrapErr(err)
}

// One returns a reader of one argument.
func One(take func(word string) error) Reader {
	return func(d *caddyfile.Dispenser) error {
		var word string
		if !d.Args(&word) || d.NextArg() {
			return d.ArgErr()
		}
		return Located(d, take(word))
	}
}

// Parsed returns a reader of one argument, which parse converts.
func Parsed[T any](into *T, parse func(word string) (T, error)) Reader {
	return One(func(word string) (err error) {
		*into, err = parse(word)
		return err
	})
}

// Checked returns a reader of one argument, which check may refuse.
func Checked(into *string, check func(word string) error) Reader {
	return One(func(word string) error {
		*into = word
		return check(word)
	})
}

// Count returns a reader of a whole number from 1 to most.
func Count[T int | int64](into *T, most int64) Reader {
	return Parsed(into, func(word string) (T, error) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || n < 1 || n > most {
			return *into, fmt.Errorf("%q is not a number from 1 to %d", word, most)
		}
		return T(n), nil
	})
}

// Duration returns a reader of a duration of at least a millisecond.
func Duration(into *caddy.Duration) Reader {
	return Parsed(into, func(word string) (caddy.Duration, error) {
		value, err := caddy.ParseDuration(word)
		if err != nil || value < time.Millisecond {
			return *into, fmt.Errorf("%q is not a duration of at least 1ms, such as 90s", word)
		}
		return caddy.Duration(value), nil
	})
}

// Size returns a reader of a number of bytes, at most 1 PiB.
func Size(into *int64) Reader {
	return Parsed(into, func(word string) (int64, error) {
		value, err := humanize.ParseBytes(word)
		if err != nil || value == 0 || value > 1<<50 {
			return *into, fmt.Errorf("%q is not a size, such as 512MiB", word)
		}
		return int64(value), nil
	})
}

// OnOff returns a reader of on or off; the word alone is on.
func OnOff(into *bool) Reader {
	return func(d *caddyfile.Dispenser) error {
		words := d.RemainingArgs()
		if len(words) > 1 || len(words) == 1 && words[0] != "on" && words[0] != "off" {
			return d.Errf("%q: only on or off is allowed here", strings.Join(words, " "))
		}
		*into = len(words) == 0 || words[0] == "on"
		return nil
	}
}

// Flag returns a reader of a word without arguments.
func Flag(into *bool) Reader {
	return func(d *caddyfile.Dispenser) error {
		if d.NextArg() {
			return d.ArgErr()
		}
		*into = true
		return nil
	}
}

// Then returns a reader that runs check after read.
func Then(read Reader, check func() error) Reader {
	return func(d *caddyfile.Dispenser) error {
		if err := read(d); err != nil {
			return err
		}
		return Located(d, check())
	}
}

// Into returns a reader that calls read with into.
func Into[T any](into *T, read func(d *caddyfile.Dispenser, into *T) error) Reader {
	return func(d *caddyfile.Dispenser) error { return read(d, into) }
}
