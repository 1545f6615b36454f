package call

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// parseInOrder parses the tokens of a block's directives into routes, in the order of the
// file. Caddy only exports a parser that sorts directives. Its route directive does not sort,
// so this parses the block as a route directive and takes the routes from its JSON.
func parseInOrder(h httpcaddyfile.Helper, name caddyfile.Token, inner []caddyfile.Token) (caddyhttp.RouteList, error) {
	last := inner[len(inner)-1]
	at := func(text string, line int) caddyfile.Token {
		return caddyfile.Token{File: name.File, Line: line, Text: text}
	}
	end := last.Line + last.NumLineBreaks() + 1
	wrapped := slices.Concat(
		[]caddyfile.Token{
			at(name.Text, name.Line-1), at("{", name.Line-1),
			at("route", name.Line), at("{", name.Line),
		},
		inner,
		[]caddyfile.Token{at("}", end), at("}", end+1)},
	)

	sorted, err := httpcaddyfile.ParseSegmentAsSubroute(h.WithDispenser(caddyfile.NewDispenser(wrapped)))
	if err != nil {
		return nil, err
	}
	outer, ok := sorted.(*caddyhttp.Subroute)
	if !ok || len(outer.Routes) != 1 || len(outer.Routes[0].HandlersRaw) != 1 {
		return nil, fmt.Errorf("%s:%d: this block cannot be read", name.File, name.Line)
	}
	var inOrder caddyhttp.Subroute
	if err := json.Unmarshal(outer.Routes[0].HandlersRaw[0], &inOrder); err != nil {
		return nil, fmt.Errorf("%s:%d: reading the block: %w", name.File, name.Line, err)
	}
	return inOrder.Routes, nil
}
