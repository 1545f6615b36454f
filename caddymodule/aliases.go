package caddymodule

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/settings"
)

// Resolve returns the model that an alias stands for. It returns any other name unchanged.
func (a *App) Resolve(model string) string {
	if target, ok := a.Aliases[model]; ok {
		return target
	}
	return model
}

// unmarshalAlias reads
//
//	alias <name> <model>
func (a *App) unmarshalAlias(d *caddyfile.Dispenser) error {
	var name, target string
	if !d.Args(&name, &target) || d.NextArg() {
		return d.ArgErr()
	}
	if _, ok := a.Aliases[name]; ok {
		return d.Errf("alias %s is given twice", name)
	}
	if a.Aliases == nil {
		a.Aliases = make(map[string]string)
	}
	a.Aliases[name] = target
	return settings.Located(d, validateAliases(a.Aliases))
}

// validateAliases returns an error if a name is a pattern, or if the target of an alias is an alias.
func validateAliases(aliases map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(aliases)) {
		target := aliases[name]
		for _, word := range []string{name, target} {
			p, err := catalog.ParsePattern(word)
			if err != nil {
				return fmt.Errorf("alias %s: %w", name, err)
			}
			if !p.Exact() {
				return fmt.Errorf("alias %s: %q is a pattern: only exact names are allowed", name, word)
			}
		}
		switch next, chained := aliases[target]; {
		case target == name:
			return fmt.Errorf("alias %s: the target is the alias itself: name another model", name)
		case next == name:
			return fmt.Errorf("alias %s: the target %s is an alias of %[1]s: a loop; name the model as the target", name, target)
		case chained:
			return fmt.Errorf("alias %s: the target %s is itself an alias, of %s: name the model as the target", name, target, next)
		}
	}
	return nil
}

// provisionAliases checks the aliases against each other and against the prices, and adds them to the
// list of models.
func (a *App) provisionAliases() error {
	if err := validateAliases(a.Aliases); err != nil {
		return err
	}
	var errs []error
	for _, name := range a.prices.Names() {
		if target, ok := a.Aliases[name]; ok {
			errs = append(errs, fmt.Errorf("alias %s: it has a price, but its calls have the price of %s: remove price %[1]s", name, target))
		}
	}
	a.Offer(slices.Collect(maps.Keys(a.Aliases))...)
	return errors.Join(errs...)
}
